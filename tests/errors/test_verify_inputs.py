"""Samples that users give for verification: every mistake is told, and what fits is taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import HOST_ONLY
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, VerificationFailed
from tvm_ext.verification.verify_inputs import read_verify_inputs

SPECS = {"x": ((2, 3), "float32"), "n": ((), "int64")}
ONE = {"x": np.ones((2, 3), np.float32), "n": np.array(4)}


def test_one_sample_or_several() -> None:
    assert [sample["n"].item() for sample in read_verify_inputs(ONE, SPECS)] == [4]
    several = {"x": np.zeros((3, 2, 3), np.float32), "n": np.arange(3)}
    found = read_verify_inputs(several, SPECS)
    assert [sample["n"].item() for sample in found] == [0, 1, 2]
    assert all(sample["x"].shape == (2, 3) and sample["n"].shape == () for sample in found)


def test_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **ONE)
    assert len(read_verify_inputs(tmp_path / "in.npz", SPECS)) == 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": None}, "has no array for the input 'x'"),
        ({"z": np.zeros(1)}, "'z' is not an input; the model's inputs are x, n"),
        ({"x": np.ones((2, 3))}, "'x' is of type float64, but the model's input is of type float32"),
        (
            {"x": np.ones((3, 2), np.float32)},
            r"'x' has shape \[3, 2\], but must have shape \[2, 3\], or \[N, 2, 3\] for",
        ),
        ({"x": np.ones((5, 2, 3), np.float32)}, r"differ in their number of samples \(x: 5, n: one\)"),
        ({"x": np.ones((0, 2, 3), np.float32), "n": np.zeros(0, int)}, "contains 0 samples; give 1 to 100"),
        ({"x": np.ones((101, 2, 3), np.float32), "n": np.zeros(101, int)}, "contains 101 samples; give 1 to 100"),
    ],
)
def test_mistakes(change: dict[str, np.ndarray | None], says: str) -> None:
    arrays = {name: array for name, array in {**ONE, **change}.items() if array is not None}
    with pytest.raises(BadInput, match=says):
        read_verify_inputs(arrays, SPECS)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"no archive"])
def test_files_that_are_none(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"is not an \.npz file that can be read"):
        read_verify_inputs(path, SPECS)
    with pytest.raises(BadInput, match="is not an"):
        read_verify_inputs(tmp_path / "absent.npz", SPECS)


def test_a_build_compares_on_them(tmp_path: Path) -> None:
    """As many output elements are compared as the samples have; the command takes them too."""
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    mod = tvm_ext.load(path)
    specs = {p.name: tuple(int(d) for d in p.ty.shape.values) for p in mod["main"].params}
    arrays = {name: np.full((2, *shape), 0.5, np.float32) for name, shape in specs.items()}
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY, verify_inputs=arrays)
    sizes = sum(int(np.prod(spec.shape)) for spec in package.outputs.values())
    assert package.report["verify"]["host"]["elements"] == 2 * sizes
    np.savez(tmp_path / "wrong.npz", **{name: array.astype(np.float64) for name, array in arrays.items()})
    given = ["--verify-inputs", str(tmp_path / "wrong.npz")]
    done = CliRunner().invoke(app, ["compile", str(path), "-p", "host", "-o", str(tmp_path / "cli"), *given])
    assert done.exit_code == 1 and "the model's input is of type float32" in done.stderr


def test_samples_that_nobody_can_run_are_told(tmp_path: Path) -> None:
    """An index beyond its table: onnxruntime refuses the sample, TVM is asked, and reads what it likes."""
    mod = tvm_ext.load(saved(SMALL_MODELS["gathers"](), tmp_path))
    specs = {p.name: (tuple(int(d) for d in p.ty.shape.values), str(p.ty.dtype)) for p in mod["main"].params}
    arrays = {name: np.full(shape, 1000, dtype) for name, (shape, dtype) in specs.items()}
    try:
        package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY, verify_inputs=arrays)
    except VerificationFailed as failed:
        assert "host: outputs differ from TVM by" in str(failed)
    else:
        found = package.report["verify"]["host"]
        assert found["reference"] == "TVM" and "onnxruntime: " in found["own_reading"]
