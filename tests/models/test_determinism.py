"""The same model gives the same bytes, whatever the process, its hash seed, and the folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import files_of

BUILD = (
    "import sys, tvm_ext\n"
    "targets = tuple(target for target in sys.argv[4].split(',') if target)\n"
    "tvm_ext.build(tvm_ext.load(sys.argv[1]), sys.argv[2], sys.argv[3], tvm_ext.BuildOptions(verify=targets))\n"
)


def build(model: Path, platform: str, folder: Path, verify: str, *, hash_seed: int) -> dict[str, bytes]:
    """Every file of a package built in a process of its own."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, "-c", BUILD, str(model), platform, str(folder), verify]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return files_of(folder)


def compare(model: Path, platform: str, tmp_path: Path, verify: str) -> dict[str, bytes]:
    first = build(model, platform, tmp_path / "first", verify, hash_seed=1)
    second = build(model, platform, tmp_path / "a second" / "deeper", verify, hash_seed=2)
    assert list(sorted(first)) == sorted(second)
    assert [name for name in first if first[name] != second[name]] == []
    for name, content in first.items():
        assert str(tmp_path).encode() not in content, name
    return first


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["moves_data", "branches"])
@pytest.mark.parametrize("verify", ["", "host"], ids=["unverified", "verified"])
def test_small_models(tmp_path: Path, name: str, verify: str) -> None:
    files = compare(saved(SMALL_MODELS[name](), tmp_path, name), "host", tmp_path, verify)
    assert {"report.json", "README.md", "Makefile", f"{name}.c", f"lib{name}.a"} <= set(files)


def test_a_quantized_model(shared_models: Path, tmp_path: Path) -> None:
    """This build is not verified; the one of `test_firmware` is."""
    files = compare(shared_models / "kws_int8.onnx", "host", tmp_path, "")
    assert {"report.json", "README.md", "Makefile", "kws_int8.c", "libkws_int8.a"} <= set(files)


@pytest.mark.board
def test_firmware(tmp_path: Path) -> None:
    """The ELF file and the figures measured with it are the same, too."""
    model = saved(SMALL_MODELS["branches"](), tmp_path, "branches")
    assert "branches.elf" in compare(model, "cortex_m55", tmp_path, "host,qemu")
