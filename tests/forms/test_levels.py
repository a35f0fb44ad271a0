"""Optimisation levels: the user's wins over the package's, unless they ask for ours."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen_c.emit.forms.arduino import forwarded
from codegen_c.emit.forms.form import NEEDED_FLAGS
from tests.support.sweeps import some_of

_NO_CMAKE = pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")


def _levels(folder: Path, *options: str) -> set[str]:
    """Optimisation levels that CMake compiles the library with, the last one of each command."""
    command = ["cmake", "-S", str(folder), "-B", str(folder / "out"), "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    commands = json.loads((folder / "out" / "compile_commands.json").read_text())
    words = [one["command"].split() for one in commands if Path(one["file"]).name == "kws.c"]
    assert words
    return {next((word for word in reversed(one) if word.startswith("-O")), "none") for one in words}


@_NO_CMAKE
@pytest.mark.parametrize(
    "case",
    some_of(
        [((), "-O3"), (("-DCMAKE_C_FLAGS=-g -O1",), "-O1")],
        sweep=[
            (("-DCMAKE_BUILD_TYPE=MinSizeRel",), "-Os"),
            (("-DCMAKE_BUILD_TYPE=MinSizeRel", "-DKWS_OPTIMIZE=ON"), "-O3"),
            (("-DKWS_OPTIMIZE=OFF",), "none"),
        ],
    ),
)
def test_cmake_alone(case: tuple[tuple[str, ...], str], kws: Path, tmp_path: Path) -> None:
    options, expected = case
    shutil.copytree(kws, tmp_path / "kws")
    assert _levels(tmp_path / "kws", *options) == {expected}


@_NO_CMAKE
def test_cmake_below_a_project_with_a_level(kws: Path, tmp_path: Path) -> None:
    shutil.copytree(kws, tmp_path / "kws")
    text = "cmake_minimum_required(VERSION 3.13)\nproject(product C)\n{}add_subdirectory(kws)\n"
    for given, expected in (("", "-O3"), ("add_compile_options(-g -O2)\n", "-O2")):
        (tmp_path / "CMakeLists.txt").write_text(text.format(given))
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        assert _levels(tmp_path) == {expected}


def test_make_takes_the_level_of_cflags(kws: Path) -> None:
    said = subprocess.run(
        ["make", "-n", "-B", "CFLAGS=-g -O1"], cwd=kws, capture_output=True, text=True, check=True, timeout=60
    )
    compiled = [line.split() for line in said.stdout.splitlines() if " -c " in line]
    assert compiled
    assert all([word for word in line if word.startswith("-O")][-1] == "-O1" for line in compiled)


def test_no_file_of_a_package_asks_for_errors(kws: Path) -> None:
    texts = [path for path in kws.rglob("*") if path.suffix in (".txt", ".json", ".properties", ".pdsc", ".yml")]
    assert len(texts) > 5 and not any("-Werror" in path.read_text() for path in texts)
    rules = ["make", "-n", "-B", "all", "selftest"]
    commands = subprocess.run(rules, cwd=kws, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "kws.c" in commands and "-Werror" not in commands


@pytest.mark.parametrize("source", ["kws.c", "kws_memory.c", "kws_weights.c"])
def test_pragmas_of_a_forwarded_source_do_as_flags_do(source: str, kws: Path, tmp_path: Path) -> None:
    """The same instructions as with the flags."""
    (tmp_path / "src").mkdir()
    shutil.copytree(kws, tmp_path, dirs_exist_ok=True)
    assert (tmp_path / "src" / source).read_text() == forwarded(source)
    flags = [*NEEDED_FLAGS]
    by_pragma = _code(tmp_path, f"src/{source}", [])
    assert by_pragma == _code(tmp_path, source, flags) and by_pragma


def test_without_pragmas_code_would_be_another(tmp_path: Path) -> None:
    """A product and a sum are two instructions with either, and one without."""
    text = "float f(float a, float b, float c) { return a * b + c; }\n"
    (tmp_path / "src").mkdir()
    (tmp_path / "sum.c").write_text(text)
    (tmp_path / "src" / "sum.c").write_text(forwarded("sum.c"))
    by_pragma = _code(tmp_path, "src/sum.c", ["-mfma"])
    with_flags = _code(tmp_path, "sum.c", ["-mfma", *NEEDED_FLAGS])
    assert by_pragma == with_flags != _code(tmp_path, "sum.c", ["-mfma"])


def _code(folder: Path, source: str, flags: list[str]) -> str:
    """Disassembly of a source at -O2."""
    objects = folder / "one.o"
    subprocess.run(["gcc", "-O2", *flags, "-c", source, "-o", str(objects)], cwd=folder, check=True, timeout=60)
    said = subprocess.run(["objdump", "-d", str(objects)], capture_output=True, text=True, check=True, timeout=60)
    return said.stdout
