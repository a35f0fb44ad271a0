"""Sections of a platform's memories: a board's only, variables out of the image, constants read-only."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import HOST_TOOLCHAIN, Toolchain
from tvm_ext.core.toolchain import compile_objects

ARM_GCC = ["arm-none-eabi-gcc", "-mcpu=cortex-m55", "-mthumb", "-mfloat-abi=hard"]
CODE = (".text", ".ARM.exidx")
ARM_CLANG = ["clang", "--target=arm-none-eabi", "-mcpu=cortex-m55", "-mthumb", "-ffreestanding"]


def with_sections(**sections: str) -> Platform:
    """The platform always_on with other sections of its memories; tensors are planned in its fast memory."""
    shipped = Platform.load("always_on")
    memories = tuple(replace(m, section=sections.get(m.name, m.section)) for m in shipped.memories)
    return replace(shipped, memories=memories, activations="dtcm", weights="flash")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    path = saved(SMALL_MODELS["image_in_and_out"](), tmp_path_factory.mktemp("model"))
    return compile_module(tvm_ext.load(path), with_sections(), BuildOptions(memories="default"))


def written(plain: Compiled, platform: Platform, folder: Path) -> tuple[Path, Path]:
    """Sources of the arenas and of the weights, for the platform."""
    model = plain.interface.model
    for name, text in replace(plain, platform=platform).sources().items():
        (folder / name).write_text(text)
    return folder / f"{model}_memory.c", folder / f"{model}_weights.c"


def sections_of(unit: Path) -> dict[str, tuple[str, str]]:
    """Name -> (type, flags) of an object's sections that hold anything."""
    listed = subprocess.run(["readelf", "-SW", str(unit)], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\s*\[ *\d+\] (\S+)\s+(\w+)\s+\w+ \w+ (\w+) \w+\s+([A-Z]*)\s+\d", listed, re.MULTILINE)
    return {name: (kind, flags) for name, kind, size, flags in rows if int(size, 16)}


@pytest.mark.board
@pytest.mark.parametrize("compiler", [ARM_GCC, ARM_CLANG], ids=["gcc", "clang"])
@pytest.mark.parametrize(("ram", "rom"), [(".dtcm", ".qspi"), (".bss.dtcm", ".rodata.qspi"), (".noinit", ".ext.flash")])
def test_flags_of_objects(plain: Compiled, tmp_path: Path, compiler: list[str], ram: str, rom: str) -> None:
    if not shutil.which(compiler[0]):
        pytest.skip(f"{compiler[0]} is not installed")
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wundef", "-Werror", "-O2", "-fdata-sections"]
    (tmp_path / "math.h").write_text("/* clang comes without a C library */\n")
    found = {}
    for source in written(plain, with_sections(dtcm=ram, flash=rom), tmp_path):
        unit = source.with_suffix(".o")
        subprocess.run([*compiler, *strict, "-I.", "-c", source.name, "-o", unit.name], cwd=tmp_path, check=True)
        found |= {name: kind for name, kind in sections_of(unit).items() if "A" in kind[1] and name not in CODE}
    assert found == {ram: ("NOBITS", "WA"), rom: ("PROGBITS", "A")}, "all of it, and nothing else"


@pytest.mark.board
def test_arenas_are_no_code(tmp_path: Path) -> None:
    """Bytes of a package and its firmware are the same under a name that compilers know and under a vendor's."""
    mod = tvm_ext.load(saved(SMALL_MODELS["image_in_and_out"](), tmp_path))
    reports = []
    for index, sections in enumerate(({}, {"dtcm": ".dtcm", "flash": ".qspi"})):
        package = tvm_ext.build(mod, with_sections(**sections), tmp_path / str(index), BuildOptions(memories="default"))
        assert package.report["verify"]["qemu"]["passed"]
        memory = sections_of(package.folder / package.report["artifacts"]["elf"])
        assert memory[".memory_dtcm"] == ("NOBITS", "WA") and memory[".memory_flash"] == ("PROGBITS", "A")
        reports.append(package.report)
    assert reports[0]["arena_bytes"] > 1000
    assert reports[0]["code_bytes"] == reports[1]["code_bytes"]


@pytest.mark.parametrize("section", [".init", ".text", ".init_array", ".dtcm"])
def test_a_host_build_has_no_sections(plain: Compiled, tmp_path: Path, section: str) -> None:
    """Weights that are machine code would be run in `.init` when a library is loaded; past the check of platforms."""
    found = []
    for sections in ({}, {"dtcm": section, "flash": section}):
        sources = written(plain, with_sections(**sections), tmp_path)
        objects = compile_objects(
            sources, tmp_path / "objects", HOST_TOOLCHAIN, flags=["-fPIC"], include_dirs=[tmp_path]
        )
        found.append([{n: k for n, k in sections_of(unit).items() if "A" in k[1]} for unit in objects])
    assert found[0] == found[1]


def test_firmware_may_choose_another_section(plain: Compiled, tmp_path: Path) -> None:
    source, _ = written(plain, with_sections(dtcm=".dtcm"), tmp_path)
    macro = f'-D{plain.interface.model.upper()}_SECTION_DTCM=__attribute__((section(".mine")))'
    (unit,) = compile_objects([source], tmp_path / "objects", Toolchain(), flags=[macro], include_dirs=[tmp_path])
    assert ".mine" in sections_of(unit)
