"""`Makefile` and `CMakeLists.txt` of a package: the library, the self-test, and a board's firmware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from codegen_c.emit.firmware import instruction_shift, qemu_arguments
from codegen_c.emit.image import LINK_FLAGS, image_flags
from codegen_c.emit.templates import render
from codegen_c.targets.registry import startup_of
from tvm_ext.core.options import Optimize
from tvm_ext.core.platform import Platform
from tvm_ext.core.toolchain import LANGUAGE_FLAGS, WARNING_FLAGS


def emit_build_files(
    model: str,
    sources: Sequence[str],
    platform: Platform,
    optimize: Optimize,
    *,
    tested: Sequence[str] = (),
    otherwise: Sequence[str] = (),
    image: bool = False,
    own_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    several: bool = False,
    driver: str = "",
) -> dict[str, str]:
    """Build files that work wherever the folder is copied.

    sources: the library's C files, relative names; the self-test and `board/` are added here. tested: of a bundle its
    models, whose self-tests and firmware come with its own. otherwise: sources that are optimized for the other aim.
    image: whether there is one to be made. own_flags: of sources that other processors run than the first.
    several: whether several processors run it. driver: source that stands in for drivers of accelerators, if any.
    """
    toolchain, board = platform.toolchain, platform.board
    flags = {"speed": toolchain.speed_flags, "size": toolchain.size_flags}
    tests = [f"{model}_selftest.c", *(f"{one}_selftest.c" for one in tested)]
    tests += [f"{one}_vectors.c" for one in tested or (model,)]
    starts = ["board/processors.c"] if several else []
    values = {
        "model": model,
        "platform": platform.name,
        "sources": sorted(sources),
        "prefix": toolchain.prefix,
        "language_flags": LANGUAGE_FLAGS,
        "warning_flags": WARNING_FLAGS,
        "platform_flags": platform.flags_of(platform.processor),
        "own_flags": own_flags,
        "threads": several,
        "driver": driver,
        "optimize_flags": flags[optimize],
        "other_flags": flags["size" if optimize == "speed" else "speed"],
        "otherwise": sorted(otherwise),
        "tests": tests,
        "firmware": [*(f"board/firmware_{one}.c" for one in tested), "board/firmware.c", "board/startup.c", *starts],
        "board": board is not None,
        "emulator": startup_of(platform).emulator if board else "",
        "qemu": qemu_arguments(platform, shift=None if several else instruction_shift(board)) if board else [],
        "image_flags": image_flags(model, platform) if image else [],
        "link_flags": LINK_FLAGS,
    }
    return {name: render(f"{name}.j2", **values) for name in ("CMakeLists.txt", "Makefile")}
