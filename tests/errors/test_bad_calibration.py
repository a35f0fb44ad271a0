"""Calibration data that cannot be used: each a BadInput that says what is wrong, and nothing is built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tvm_ext.core.errors import BadInput, BadOptions, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.calibration import read_calibration

INPUTS = {"x": ((1, 3), "float32"), "y": ((2,), "float32")}


def good(**changes: object) -> dict[str, object]:
    """Four samples of two inputs, with arrays replaced; None leaves one out."""
    arrays: dict[str, object] = {"x": np.ones((4, 1, 3), "float32"), "y": np.ones((4, 2), "float32")}
    return {name: array for name, array in (arrays | changes).items() if array is not None}


def spoiled(value: float) -> np.ndarray:
    array = np.ones((4, 2), "float32")
    array[2, 1] = value
    return array


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "no array for the input 'y'; it holds x"),
        ({"y": spoiled(np.nan)}, "'y' contains NaN or infinity, first in sample 2"),
        ({"y": spoiled(-np.inf)}, "'y' contains NaN or infinity, first in sample 2"),
        ({"y": np.ones((4, 3), "float32")}, r"'y' has shape \(4, 3\), but must have \(N, 2\) for N"),
        ({"y": np.ones(2, "float32")}, r"'y' has shape \(2,\), but must have \(N, 2\)"),
        ({"y": np.float32(1)}, r"'y' has shape \(\), but must have \(N, 2\)"),
        ({"x": np.ones((4, 3, 1), "float32")}, r"'x' has shape \(4, 3, 1\), but must have \(N, 3\)"),
        ({"y": np.ones((4, 2), "uint8")}, "'y' is of type uint8, but the model's input is of type float32"),
        ({"y": np.ones((4, 2), "float64")}, "'y' is of type float64, but the model's input is of type float32"),
        ({"x": np.ones((0, 1, 3), "float32"), "y": np.ones((0, 2), "float32")}, "'x' contains no sample"),
        ({"y": np.ones((3, 2), "float32")}, r"differ in their number of samples \(x: 4, y: 3\)"),
        ({"labels": np.zeros(3, "int64")}, "3 labels for 4 samples"),
        ({"labels": np.zeros(4, "float32")}, "one integer for each sample"),
        ({"labels": np.zeros((4, 10), "int64")}, "one integer for each sample"),
    ],
)
def test_arrays(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        read_calibration(good(**changes), INPUTS)
    np.savez(tmp_path / "c.npz", **good(**changes))
    with pytest.raises(BadInput, match=message):
        read_calibration(tmp_path / "c.npz", INPUTS)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "contains no sample"),
        ([{"x": np.ones((1, 3), "float32")}], "sample 0 has no 'y'"),
        ([{"x": np.ones((3, 3), "float32"), "y": np.ones(2, "float32")}], "'x' of sample 0 has shape"),
        ([{"x": np.ones((1, 3), "float64"), "y": np.ones(2, "float32")}], "'x' is of type float64"),
        ([np.ones(3)], "or an iterable of dicts"),
        (7, "or an iterable of dicts"),
    ],
)
def test_samples(samples: object, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        read_calibration(samples, INPUTS)


def test_some_samples_have_labels() -> None:
    sample = {"x": np.ones((1, 3), "float32"), "y": np.ones(2, "float32")}
    with pytest.raises(BadInput, match="sample 1 has no 'labels'"):
        read_calibration([{**sample, "labels": np.int64(1)}, sample], INPUTS)


def _truncated(path: Path) -> None:
    np.savez(path, **good())
    path.write_bytes(path.read_bytes()[:200])


def _damaged(path: Path) -> None:
    np.savez_compressed(path, **good(x=np.random.default_rng(0).normal(size=(400, 1, 3)).astype("float32")))
    data = bytearray(path.read_bytes())
    data[150:400] = bytes(250)
    path.write_bytes(bytes(data))


def _pickled(path: Path) -> None:
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=np.ones((1, 2), "float32"))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("x,y\n1,2\n"),
        lambda path: path.write_bytes(b"\x80\x04N."),
        lambda path: np.save(path.open("wb"), np.ones(3)),
        _truncated,
        _damaged,
        _pickled,
    ],
    ids=["missing", "folder", "empty", "text", "pickle", "npy", "truncated", "damaged", "pickled array"],
)
def test_files(write: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    write(path)
    with pytest.raises(BadInput, match=r"c\.npz: .*numpy\.savez"):
        read_calibration(path, INPUTS)


def test_what_is_accepted() -> None:
    """The axis of samples behind or in place of a first extent of 1; names of no input; int labels; one by one."""
    labels = np.array([1, 0, 2, 1], "uint8")
    stacked = read_calibration(good(labels=labels, more=np.array(["?"])), INPUTS)
    flat = read_calibration(good(x=np.ones((4, 3), "float32"), labels=labels), INPUTS)
    single = read_calibration(
        ({"x": np.ones((1, 3), "float32"), "y": np.ones(2, "float32"), "labels": label} for label in labels), INPUTS
    )
    for found in (stacked, flat, single):
        assert [sample["x"].shape for sample in found.samples] == [(1, 3)] * 4
        assert found.labels == [1, 0, 2, 1]
    assert read_calibration(good(), INPUTS).labels is None


@pytest.mark.parametrize(
    ("options", "calibration", "error"),
    [
        ({"quantize": "int8"}, None, BadOptions),
        ({}, {"image": np.ones((1, 1, 1, 8, 8), "float32")}, BadOptions),
        ({"quantize": "int8"}, {"picture": np.ones((1, 1, 1, 8, 8), "float32")}, BadInput),
    ],
)
def test_a_build_leaves_nothing(
    options: dict[str, str], calibration: object, error: type[TvmExtError], digits: Path, tmp_path: Path
) -> None:
    module = tvm_ext.load(digits / "digits.onnx")
    with pytest.raises(error):
        tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(**options), calibration=calibration)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options", [{"quantize": "int4"}, {"io_type": "float32"}, {"min_snr_db": float("nan")}, {"memories": "taught"}]
)
def test_options(options: dict[str, object]) -> None:
    with pytest.raises(BadOptions):
        BuildOptions(**options)


@pytest.mark.parametrize("quantize", ["int8", "auto"])
def test_command_line(digits: Path, tmp_path: Path, quantize: str) -> None:
    command = [sys.executable, "-m", "tvm_ext", "compile", str(digits / "digits.onnx"), "-p", "host"]
    command += ["-o", str(tmp_path / "out"), "--quantize", quantize]
    without = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert without.returncode == 2 and f"BadOptions: quantize = '{quantize}' needs calibration data" in without.stderr
    command += ["--calibration", str(tmp_path / "none.npz")]
    missing = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert missing.returncode == 1 and "BadInput: " in missing.stderr and "none.npz" in missing.stderr
    assert not any(tmp_path.iterdir())
