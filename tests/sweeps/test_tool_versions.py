"""Figures of a full build are those of its compiler and emulator: with another one they are computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvm_ext import BuildOptions, SweepModel
from tvm_ext.core.platform import Platform
from tvm_ext.services.job import Job
from tvm_ext.sweeps.candidates import candidates_of
from tvm_ext.sweeps.tool_versions import tool_versions


def key(tier: str, digits: Path) -> str:
    models, platforms = [SweepModel(source=digits / "digits.onnx")], [Platform.load("cortex_m4")]
    (candidate,) = candidates_of(models, platforms, {"": BuildOptions()}, tier)
    assert isinstance(candidate.job, Job)
    return candidate.job.key


def tools(folder: Path, version: int) -> str:
    folder.mkdir()
    for name in ("arm-none-eabi-gcc", "qemu-system-arm"):
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


def test_what_they_say_of_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", tools(tmp_path / "tools", 7) + ":/usr/bin:/bin")
    assert tool_versions(Platform.load("cortex_m4")) == ["arm-none-eabi-gcc 7", "qemu-system-arm 7"]
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    (said,) = tool_versions(Platform.load("cortex_m4"))
    assert "arm-none-eabi-gcc is not on PATH" in said
