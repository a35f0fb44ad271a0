"""Platforms whose compiler is another than GCC 12: clang, and newer GCCs, where this machine has them."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from tests.support.sweeps import some_of
from tvm_ext.core.platform import Platform, Toolchain

PREFIX = "arm-none-eabi-"
COMPILERS = some_of(["clang"], sweep=["clang-19", "gcc-13", "gcc-14", "gcc-15"])
"""Compilers of a platform of Arm's, by the names that its file gives them. Debian 12 has the first two."""


def with_compiler(toolchain: Toolchain, compiler: str) -> Toolchain:
    """A toolchain of Arm's with another compiler; skips the test where that is absent."""
    program = compiler if compiler.startswith("clang") else f"{PREFIX}{compiler}"
    if shutil.which(program) is None or shutil.which(f"{PREFIX}gcc") is None:
        pytest.skip(f"{program} is not on PATH")
    target = ("--target=arm-none-eabi",) if compiler.startswith("clang") else ()
    return replace(toolchain, compiler=compiler, flags=(*target, *toolchain.flags))


def platform_with(name: str, compiler: str) -> Platform:
    """A shipped platform of Arm's with another compiler; skips the test where that is absent."""
    platform = Platform.load(name)
    return replace(platform, toolchain=with_compiler(platform.toolchain, compiler))
