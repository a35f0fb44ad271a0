"""Make and CMake build a package wherever its folder is copied."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.boards.toy import write_toy
from tvm_ext.core.platform import Platform


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A place the package is copied to; its name holds what careless scripts trip over."""
    return tmp_path / "some where" / "toy copy"


def test_make_on_the_host(host: Platform, tmp_path: Path, copied: Path) -> None:
    write_toy(tmp_path / "toy", host)
    shutil.copytree(tmp_path / "toy", copied)
    _run(["make"], copied)
    assert (copied / "libtoy.a").is_file()
    assert "PASS 1 vectors" in _run(["make", "selftest"], copied)
    _run(["make", "clean"], copied)
    assert sorted(path.name for path in copied.iterdir()) == sorted(path.name for path in (tmp_path / "toy").iterdir())


def test_the_self_test_fails_on_wrong_outputs(host: Platform, tmp_path: Path) -> None:
    write_toy(tmp_path, host, body="output[i] = i == 6 ? 9.0f : 2.0f * fmaxf(input[i], -0.5f) + 1.0f;")
    done = subprocess.run(["make", "selftest"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "FAIL vector 0, output y, element 6; 1 elements differ in all" in done.stdout


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_on_the_host(host: Platform, tmp_path: Path, copied: Path) -> None:
    write_toy(tmp_path / "toy", host, io="caller")
    shutil.copytree(tmp_path / "toy", copied)
    _run(["cmake", "-S", ".", "-B", "build"], copied)
    _run(["cmake", "--build", "build"], copied)
    assert (copied / "build" / "libtoy.a").is_file()
    assert "PASS 1 vectors" in _run(["build/toy_selftest"], copied)


@pytest.mark.board
def test_make_for_a_board(board: Platform, tmp_path: Path, copied: Path) -> None:
    write_toy(tmp_path / "toy", board)
    shutil.copytree(tmp_path / "toy", copied)
    _run(["make"], copied)
    assert (copied / "libtoy.a").is_file()
    assert "PASS 1 vectors" in _run(["make", "selftest"], copied)
    said = _run(["make", "run"], copied)
    assert "\ninstructions=" in said and said.rstrip().endswith("PASS")


@pytest.mark.board
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_for_a_board(board: Platform, tmp_path: Path, copied: Path) -> None:
    write_toy(tmp_path / "toy", board)
    shutil.copytree(tmp_path / "toy", copied)
    _run(["cmake", "-S", ".", "-B", "build"], copied)
    _run(["cmake", "--build", "build"], copied)
    assert "PASS" in _run(["cmake", "--build", "build", "--target", "run"], copied)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_cmake_as_a_subdirectory_of_a_product(host: Platform, tmp_path: Path) -> None:
    write_toy(tmp_path / "toy", host)
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(product C)\nadd_subdirectory(toy)\n"
        "add_executable(product main.c)\ntarget_link_libraries(product toy)\n"
    )
    (tmp_path / "main.c").write_text('#include "toy.h"\nint main(void) { return (int)toy_run(); }\n')
    _run(["cmake", "-S", ".", "-B", "build"], tmp_path)
    _run(["cmake", "--build", "build"], tmp_path)
    _run(["build/product"], tmp_path)


def test_warnings_are_errors_here_and_not_where_the_package_goes(host: Platform, tmp_path: Path) -> None:
    write_toy(tmp_path, host, body="int unused = 0; output[i] = input[i];")
    assert "-Werror" not in (tmp_path / "CMakeLists.txt").read_text()
    quiet = {key: value for key, value in os.environ.items() if key != "CFLAGS"}
    commands = subprocess.run(["make", "-n", "-B", "all", "selftest"], cwd=tmp_path, capture_output=True, env=quiet)
    assert commands.returncode == 0 and b"toy.c" in commands.stdout and b"-Werror" not in commands.stdout
    done = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True, env=quiet)
    assert done.returncode == 0 and "-Wunused-variable" in done.stderr
    shutil.rmtree(tmp_path / "build")
    with pytest.raises(AssertionError, match="-Werror=unused-variable"):
        _run(["make"], tmp_path)
    assert subprocess.run(["make", "strict"], cwd=tmp_path, capture_output=True, env=quiet).returncode != 0
    write_toy(tmp_path, host)
    assert subprocess.run(["make", "strict"], cwd=tmp_path, capture_output=True, env=quiet).returncode == 0


def _run(command: list[str], folder: Path) -> str:
    """Output of a command that has to succeed; compilers take warnings for errors."""
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        env=os.environ | {"CFLAGS": "-Werror"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout
