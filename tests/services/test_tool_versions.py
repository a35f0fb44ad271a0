"""Figures of a full build are those of its compiler and emulator: with another one they are computed again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tvm_ext import BuildOptions, SweepModel
from tvm_ext.core.platform import Platform
from tvm_ext.execution.tool_versions import tool_versions
from tvm_ext.services.job import Job
from tvm_ext.sweeps.candidates import candidates_of


def key(tier: str, digits: Path) -> str:
    models, platforms = [SweepModel(source=digits / "digits.onnx")], [Platform.load("cortex_m4")]
    (candidate,) = candidates_of(models, platforms, {"": BuildOptions()}, tier)
    assert isinstance(candidate.job, Job)
    return candidate.job.key


def tools(folder: Path, version: int) -> str:
    folder.mkdir()
    for name in ("arm-none-eabi-gcc", "arm-none-eabi-ld", "qemu-system-arm", "gcc"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} {version}\necho more\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_another_compiler_names_another_result(digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, list[str]] = {"full": [], "estimate": []}
    for folder, version in (("a", 1), ("b", 1), ("c", 2)):
        monkeypatch.setenv("PATH", tools(tmp_path / folder, version) + ":/usr/bin:/bin")
        for tier, found in keys.items():
            found.append(key(tier, digits))
    assert keys["full"][0] == keys["full"][1] != keys["full"][2]
    assert len({*keys["estimate"]}) == 1


@pytest.mark.parametrize("name", ["arm-none-eabi-gcc", "arm-none-eabi-ld", "qemu-system-arm", "gcc"])
def test_each_of_them_counts(digits: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    for folder in ("a", "b"):
        path = tools(tmp_path / folder, 1)
        monkeypatch.setenv("PATH", path + ":/usr/bin:/bin")
        if keys:
            (Path(path) / name).write_text("#!/bin/sh\necho another one\n")
        keys.append(key("full", digits))
    assert keys[0] != keys[1]


def test_what_they_say_of_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform.load("cortex_m4")
    monkeypatch.setenv("PATH", tools(tmp_path / "tools", 7) + ":/usr/bin:/bin")
    said = ["arm-none-eabi-gcc 7", "arm-none-eabi-ld 7", "qemu-system-arm 7", "gcc 7"]
    assert tool_versions(platform) == said
    assert tool_versions(platform, host=False, emulator=False) == said[:2]
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    found = tool_versions(platform)
    assert len(found) == 5 and "arm-none-eabi-gcc is not on PATH" in found[0] and "gcc is not on PATH" in found[3]


def test_another_c_library_names_another_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "libm.a"
    folder = Path(tools(tmp_path / "tools", 7))
    (folder / "arm-none-eabi-gcc").write_text(f'#!/bin/sh\ncase "$*" in *=libm.a) echo {library};; *) echo 7;; esac\n')
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    found: list[list[str]] = []
    for content in (b"one", b"other"):
        library.write_bytes(content)
        os.utime(library, (len(content), len(content)))
        found.append(tool_versions(Platform.load("cortex_m4")))
    assert found[0][:-1] == found[1][:-1] and found[0][-1].startswith("libm.a ") and found[0][-1] != found[1][-1]


def test_the_linker_of_clang_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(tools(tmp_path / "tools", 7))
    (folder / "clang").write_text("#!/bin/sh\necho clang 7\n")
    (folder / "clang").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    platform = Platform.load("cortex_m4")
    toolchain = replace(
        platform.toolchain, compiler="clang", flags=("--target=arm-none-eabi", *platform.toolchain.flags)
    )
    assert tool_versions(replace(platform, toolchain=toolchain))[:2] == ["clang 7", "arm-none-eabi-gcc 7"]
