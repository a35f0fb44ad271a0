"""JoinSpectra: a product with windowed cosines and sines takes the sums of its results' squares along."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx import helper
from tvm import relax

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import bindings
from relay_passes.layout.join_spectra import JoinSpectra
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.fold_constants import FoldConstants
from tests.support.onnx_models import model_of, saved
from tests.support.virtual_machine import run
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("cortex_m4").processor))
NODE = helper.make_node
LENGTH, BINS = 64, 33


def network(
    *, outputs: tuple[str, ...] = ("root",), axis: int = 2, scale: float = 1.0, square: str = "Mul"
) -> onnx.ModelProto:
    """Magnitudes of the transforms of three vectors. scale: of one entry of the matrix."""
    angles = 2 * np.pi / LENGTH * (np.arange(BINS)[:, np.newaxis] * np.arange(LENGTH))
    matrix = np.stack([np.cos(angles), -np.sin(angles)], axis=1).reshape(2 * BINS, LENGTH).T.astype(np.float32)
    matrix[3, 7] *= scale
    constants = {
        "matrix": np.ascontiguousarray(matrix), "shape": np.array([3, BINS, 2], np.int64),
        "axis": np.array([axis], np.int64), "two": np.float32(2),
    }  # fmt: skip
    nodes = [
        NODE("MatMul", ["x", "matrix"], ["parts"]), NODE("Reshape", ["parts", "shape"], ["pairs"]),
        NODE("Mul", ["pairs", "pairs"], ["squares"]) if square == "Mul" else NODE("Pow", ["pairs", "two"], ["squares"]),
        NODE("ReduceSum", ["squares", "axis"], ["power"], keepdims=0), NODE("Sqrt", ["power"], ["root"]),
    ]  # fmt: skip
    used = {name: array for name, array in constants.items() if any(name in node.input for node in nodes)}
    return model_of(nodes, {"x": (3, LENGTH)}, list(outputs), used)


def formed(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    stages = [FoldConstants(), FormComposites(BACKEND)]
    return tvm.transform.Sequential(stages)(tvm_ext.load(saved(model, folder)))


def called(module: tvm.IRModule) -> list[str]:
    """Kinds of the composites that main calls, in order."""
    values = [binding.value for binding in bindings(module["main"])]
    return [str(module[v.op].attrs["Composite"]).removeprefix("tvm_ext.") for v in values if isinstance(v, relax.Call)]


@pytest.mark.parametrize("square", ["Mul", "Pow"])
def test_four_composites_become_one(square: str, tmp_path: Path) -> None:
    before = formed(network(square=square), tmp_path)
    after = JoinSpectra(BACKEND)(before)
    assert called(before) == ["matmul", "reshape", "multiply" if square == "Mul" else "power", "sum"]
    assert called(after) == ["matmul"]
    assert [binding.var.name for binding in bindings(after["main"])] == ["root"]
    x = np.random.default_rng(1).normal(size=(3, LENGTH)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-6)


@pytest.mark.parametrize(
    "model", [network(outputs=("root", "pairs")), network(outputs=("root", "parts")), network(axis=1),
              network(scale=1.1)],
    ids=["pairs are a result", "parts are a result", "sums of frequencies", "another matrix"],
)  # fmt: skip
def test_others_are_left_alone(model: onnx.ModelProto, tmp_path: Path) -> None:
    before = formed(model, tmp_path)
    assert tvm_ffi.structural_equal(JoinSpectra(BACKEND)(before), before)


def test_a_composite_of_several_results_is_left_alone(tmp_path: Path) -> None:
    """A long recurrent layer gives its outputs and its last state at once."""
    weights = {"w": np.ones((1, 3, 2), np.float32), "r": np.ones((1, 3, 3), np.float32)}
    layer = NODE("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=3)
    before = formed(model_of([layer], {"x": (40, 1, 2)}, ["y", "last"], constants=weights), tmp_path)
    assert tvm_ffi.structural_equal(JoinSpectra(BACKEND)(before), before)
