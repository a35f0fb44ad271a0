"""Compilers that are missing or complain, objects that do not depend on where they were made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tvm_ext.core.errors import BuildFailed, MissingTool
from tvm_ext.core.platform import Platform, Toolchain
from tvm_ext.core.toolchain import (
    SectionSizes,
    compile_objects,
    find_compiler,
    find_program,
    section_sizes,
    shared_library,
    static_library,
)

HOST = Toolchain()
SOURCE = (
    "#include <stdint.h>\nconst char *where(void);\nint32_t twice(int32_t x);\nextern int32_t counts[100];\n"
    "extern const int32_t table[25];\nextern int32_t start[3];\n"
    "int32_t counts[100];\nconst int32_t table[25] = {1};\nint32_t start[3] = {1, 2, 3};\n"
    "const char *where(void) { return __FILE__; }\nint32_t twice(int32_t x) { return 2 * x; }\n"
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "twice.c"
    path.write_text(SOURCE)
    return path


def test_a_missing_cross_compiler_names_its_package(source: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(source.parent))
    toolchain = Platform.load("cortex_m4").toolchain
    with pytest.raises(MissingTool, match=r"arm-none-eabi-gcc is not on PATH; .*apt install gcc-arm-none-eabi"):
        compile_objects([source], source.parent / "out", toolchain)
    with pytest.raises(MissingTool, match=r"arm-none-eabi-objdump is not on PATH; .*apt install gcc-arm-none-eabi"):
        section_sizes([source], toolchain)
    with pytest.raises(MissingTool, match=r"^gcc is not on PATH; .*apt install gcc"):
        find_compiler(HOST)
    with pytest.raises(MissingTool, match=r"qemu-system-arm is not on PATH; .*apt install qemu-system-arm"):
        find_program("qemu-system-arm")
    with pytest.raises(MissingTool, match="riscv-none-elf-gcc is not on PATH"):
        find_compiler(Toolchain(prefix="riscv-none-elf-"))


def test_cc_counts_for_the_host_only(monkeypatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -pipe")
    with pytest.raises(MissingTool, match="no-such-compiler"):
        find_compiler(HOST)
    with pytest.raises(MissingTool, match="other-gcc"):
        find_compiler(Toolchain(prefix="other-"))
    monkeypatch.setenv("CC", "gcc -pipe")
    assert find_compiler(HOST) == [shutil.which("gcc"), "-pipe"]


def test_warnings_end_no_build_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where $CC asks for errors; here, in tests, they do."""
    path = tmp_path / "warned.c"
    path.write_text("short narrow(int x) { int unused; return x; }\n")
    monkeypatch.setenv("CC", "gcc -Wall -Wconversion -Werror")
    with pytest.raises(BuildFailed, match="Werror=unused-variable"):
        compile_objects([path], tmp_path / "out", HOST)
    monkeypatch.delenv("TVM_EXT_STRICT_WARNINGS")
    assert compile_objects([path], tmp_path / "out", HOST)[0].is_file()


def test_warnings_are_errors_and_the_first_lines_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "bad.c"
    path.write_text("".join(f"short narrow_{i}(int x) {{ return x; }}\n" for i in range(50)))
    with pytest.raises(BuildFailed, match=r"bad\.c:1:\d+: error: conversion") as error:
        compile_objects([path], tmp_path / "out", HOST, flags=["-Wno-missing-prototypes"])
    assert "more lines" in str(error.value)
    assert len(str(error.value).splitlines()) <= 14


def test_sources_that_would_share_an_object(tmp_path: Path) -> None:
    with pytest.raises(BuildFailed, match="share an object file"):
        compile_objects([tmp_path / "a" / "x.c", tmp_path / "b" / "x.c"], tmp_path, HOST)


def test_a_linker_error_is_a_failed_build(source: Path) -> None:
    objects = compile_objects([source], source.parent / "out", HOST, flags=["-fPIC"])
    with pytest.raises(BuildFailed, match="nowhere"):
        shared_library(objects, source.parent / "x.so", HOST, flags=["-Wl,-T,nowhere.ld"])


def test_objects_and_libraries_do_not_depend_on_the_folder(tmp_path: Path) -> None:
    made = []
    for name in ("one", "two/deeper"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "own.h").write_text("static inline const char *header(void) { return __FILE__; }\n")
        (folder / "twice.c").write_text(
            SOURCE + '#include "own.h"\nconst char *h(void);\nconst char *h(void) { return header(); }\n'
        )
        objects = compile_objects([folder / "twice.c"], folder / "out", HOST, flags=["-g"], include_dirs=[folder])
        library = static_library(objects, folder / "libtwice.a", HOST)
        made.append((objects[0].read_bytes(), library.read_bytes()))
        assert str(tmp_path).encode() not in made[-1][0]
    assert made[0] == made[1]


def test_a_static_library_is_replaced_not_extended(source: Path) -> None:
    other = source.with_name("other.c")
    other.write_text("int other(void);\nint other(void) { return 1; }\n")
    library = source.parent / "lib.a"
    objects = compile_objects([source, other], source.parent / "out", HOST)
    static_library(objects, library, HOST)
    full = library.stat().st_size
    static_library(objects[:1], library, HOST)
    assert library.stat().st_size < full


def test_section_sizes_sort_by_what_a_section_is(source: Path) -> None:
    placed = source.with_name("placed.c")
    placed.write_text('extern const int far[5];\n__attribute__((section(".qspi"))) const int far[5] = {1};\n')
    objects = compile_objects([source, placed], source.parent / "out", HOST)
    sizes = section_sizes(objects, HOST)
    assert list(sizes) == ["twice.o", "placed.o"]
    assert sizes["twice.o"].bss == 400
    assert sizes["twice.o"].data == 12
    assert 100 <= sizes["twice.o"].rodata < 300
    assert 0 < sizes["twice.o"].text < 100
    assert sizes["placed.o"].rodata >= 20
    assert section_sizes([], HOST) == {}
    assert SectionSizes() == SectionSizes(text=0, rodata=0, data=0, bss=0)
