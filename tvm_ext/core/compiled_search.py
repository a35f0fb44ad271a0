"""Searches written in C, which are compiled at their first use and called through ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tvm_ext.core.errors import BuildFailed, MissingTool, OutOfMemory
from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import compile_objects, shared_library


def compiled_search(sources: Sequence[Path]) -> ctypes.CDLL | None:
    """Return a library of some C files, or None where no compiler is available."""
    toolchain = Toolchain(speed_flags=("-O3",))
    with TemporaryDirectory() as name:
        try:
            objects = compile_objects(sources, Path(name), toolchain, flags=["-fPIC"])
            return ctypes.CDLL(str(shared_library(objects, Path(name) / "search.so", toolchain)))
        except (MissingTool, BuildFailed, OutOfMemory, OSError):
            return None


def starts(groups: Sequence[Sequence[int] | dict[int, int]]) -> list[int]:
    """Return where each group starts when all groups are concatenated, and where the last group ends."""
    begins = [0]
    for group in groups:
        begins.append(begins[-1] + len(group))
    return begins
