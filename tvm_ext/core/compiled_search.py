"""Searches written in C, compiled when they are first asked for, and called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_ext.core.errors import BuildFailed, MissingTool, OutOfMemory
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import compile_objects, shared_library


def compiled_search(sources: Sequence[Path]) -> ctypes.CDLL | None:
    """The library of some C files; None where no compiler is at hand."""
    toolchain = Toolchain(speed_flags=("-O3",))
    with TemporaryDirectory() as name:
        try:
            objects = compile_objects(sources, Path(name), toolchain, flags=["-fPIC"])
            return ctypes.CDLL(str(shared_library(objects, Path(name) / "search.so", toolchain)))
        except (MissingTool, BuildFailed, OutOfMemory, OSError):
            return None


def starts(groups: Sequence[Sequence[int] | dict[int, int]]) -> list[int]:
    """Where each group begins when all stand one behind the other, and where the last one ends."""
    begins = [0]
    for group in groups:
        begins.append(begins[-1] + len(group))
    return begins
