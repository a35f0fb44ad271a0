"""The command line from compile to report on the digits network, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest


def tvm_ext(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tvm_ext", *map(str, arguments)]
    wide = {**os.environ, "COLUMNS": "140"}  # pytest has tables of 80
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=wide)


@pytest.fixture(scope="module")
def compiled(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """digits for the host, verified there."""
    folder = tmp_path_factory.mktemp("packages") / "digits"
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "host", "-o", folder, "--verify", "host")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    for wanted in ("digits on host", "stem", "passed", "lower bound"):
        assert wanted in result.stdout
    return folder


def test_report_is_a_view_of_the_file(compiled: Path) -> None:
    shown, machine = tvm_ext("report", compiled), tvm_ext("report", compiled, "--json")
    assert shown.returncode == machine.returncode == 0
    report = json.loads((compiled / "report.json").read_text(encoding="utf-8"))
    assert json.loads(machine.stdout) == report
    assert f"{report['arena_bytes']:,} B" in shown.stdout
    assert all(step["name"] in shown.stdout for step in report["steps"])
    assert "not verified" not in shown.stdout.lower()


def test_run_gives_the_models_own_names(compiled: Path, digits: Path, tmp_path: Path) -> None:
    held_out = np.load(digits / "digits_test.npz")
    image = (held_out["images"][0] / 16).astype(np.float32).reshape(1, 1, 8, 8)
    np.savez(tmp_path / "in.npz", image=image)
    result = tvm_ext("run", compiled, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert result.returncode == 0, result.stderr
    outputs = np.load(tmp_path / "out.npz")
    assert outputs.files == ["probabilities"]
    assert outputs["probabilities"].shape == (1, 10) and outputs["probabilities"].argmax() == held_out["labels"][0]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"picture": np.zeros((1, 1, 8, 8), np.float32)}, "picture"),
        ({}, "image"),
        ({"image": np.zeros((1, 8, 8), np.float32)}, "float32[1, 1, 8, 8]"),
        ({"image": np.zeros((1, 1, 8, 8), np.float64)}, "float64"),
    ],
)
def test_wrong_inputs(compiled: Path, arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", allow_pickle=False, **arrays)
    result = tvm_ext("run", compiled, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert result.returncode == 1
    assert "BadInput: " in result.stderr and message in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out.npz").exists()


def test_unreadable_inputs(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(b"PK but not a zip file")
    result = tvm_ext("run", compiled, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert result.returncode == 1 and "BadInput: " in result.stderr


def test_unverified_says_so(digits: Path, tmp_path: Path) -> None:
    arguments = ("-p", "host", "-o", tmp_path / "out", "--verify", "none")
    result = tvm_ext("compile", digits / "digits.onnx", *arguments)
    assert result.returncode == 0, result.stderr
    assert "NOT VERIFIED" in result.stdout
    assert "NOT VERIFIED" in tvm_ext("report", tmp_path / "out").stdout


def test_compile_as_json(digits: Path, tmp_path: Path) -> None:
    arguments = ("-p", "host", "-o", tmp_path / "out", "--verify", "none", "--json")
    result = tvm_ext("compile", digits / "digits.onnx", *arguments)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))


def test_shape_that_contradicts_the_model(digits: Path, tmp_path: Path) -> None:
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "host", "-o", tmp_path / "o", "--shape", "image=1,3,8,8")
    assert result.returncode == 2
    assert "BadOptions: " in result.stderr and "image" in result.stderr
    assert not (tmp_path / "o").exists()


def test_streamed(compiled: Path, digits: Path, tmp_path: Path) -> None:
    """`run` is the same for who uses it; the report says how much of the image is held."""
    arguments = ("-p", "host", "-o", tmp_path / "out", "--verify", "none", "--io", "stream", "--ram", "7000")
    result = tvm_ext("compile", digits / "digits.onnx", *arguments)
    assert result.returncode == 0, result.stderr
    assert "image, streamed" in result.stdout and "of 8 rows held" in result.stdout
    np.savez(tmp_path / "in.npz", image=np.ones((1, 1, 8, 8), np.float32))
    for folder, name in ((tmp_path / "out", "streamed"), (compiled, "whole")):
        run = tvm_ext("run", folder, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / f"{name}.npz")
        assert run.returncode == 0, run.stderr
    outputs = [np.load(tmp_path / f"{name}.npz")["probabilities"] for name in ("streamed", "whole")]
    np.testing.assert_array_equal(*outputs)
