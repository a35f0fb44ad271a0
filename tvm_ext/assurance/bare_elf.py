"""A package's library linked by itself, for platforms without a board: what it calls of the C library is there, too."""

from __future__ import annotations

from pathlib import Path

from tvm_ext.core.platform import Toolchain
from tvm_ext.core.toolchain import find_compiler, run_tool


def bare_elf(library: Path, elf: Path, toolchain: Toolchain, run: str) -> Path:
    """Link what the function `run` reaches; it is never run. Raises MissingTool, BuildFailed."""
    fixed = ["-nostartfiles", "-Wl,--gc-sections", f"-Wl,-e,{run}", f"-Wl,-u,{run}"]
    files = ["-o", str(elf.resolve()), str(library.resolve()), "-lm"]
    run_tool([*find_compiler(toolchain), *toolchain.flags, *fixed, *files], library.parent, reads=[library])
    return elf
