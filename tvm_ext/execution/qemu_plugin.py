"""Plugins of QEMU's: C that is compiled on the machine where QEMU runs."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

from tvm_ext.core.platform import HOST_TOOLCHAIN
from tvm_ext.core.toolchain import compile_objects, shared_library


def compiled_plugin(package: str, name: str, folder: Path) -> Path:
    """The library of a plugin in `folder`. package: Python's, in which `<name>.c` stands.

    Raises MissingTool, BuildFailed.
    """
    with as_file(files("tvm_ext.execution")) as headers, as_file(files(package) / f"{name}.c") as source:
        objects = compile_objects([source], folder, HOST_TOOLCHAIN, flags=["-fPIC"], include_dirs=[headers])
    return shared_library(objects, folder / f"{name}.so", HOST_TOOLCHAIN)


def quoted(path: Path) -> str:
    """A path as QEMU reads it in a list of options: two commas are one."""
    return str(path.resolve()).replace(",", ",,")
