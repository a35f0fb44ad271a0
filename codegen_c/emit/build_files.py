"""`Makefile` and `CMakeLists.txt` of a package: the library, the self-test, and a board's firmware."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.emit.firmware import instruction_shift, qemu_arguments
from codegen_c.emit.templates import render
from codegen_c.targets.registry import startup_of
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, WARNING_FLAGS


def emit_build_files(model: str, sources: Sequence[str], platform: Platform, optimize: Optimize) -> dict[str, str]:
    """Build files that work wherever the folder is copied.

    sources: the library's C files, relative names; the self-test and `board/` are added here.
    """
    toolchain, board = platform.toolchain, platform.board
    values = {
        "model": model,
        "platform": platform.name,
        "sources": sorted(sources),
        "prefix": toolchain.prefix,
        "language_flags": LANGUAGE_FLAGS,
        "warning_flags": WARNING_FLAGS,
        "platform_flags": toolchain.flags,
        "optimize_flags": toolchain.speed_flags if optimize == "speed" else toolchain.size_flags,
        "board": board is not None,
        "emulator": startup_of(platform).emulator if board else "",
        "qemu": qemu_arguments(board, shift=instruction_shift(board)) if board else [],
    }
    return {name: render(f"{name}.j2", **values) for name in ("CMakeLists.txt", "Makefile")}
