"""CancelMoves: permutations that move elements there and back become one reshape; real ones stay."""

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
from relay_passes.layout import cancel_moves
from relay_passes.layout.cancel_moves import CancelMoves
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.orient_sequences import OrientSequences
from tests.support.onnx_models import model_of, saved
from tests.support.virtual_machine import run
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))
NODE = helper.make_node


def network(axes: list[int], *, depth: int = 5, batch: int = 1) -> onnx.ModelProto:
    """A convolution over time, a transpose, and a dense layer. Whole numbers, so that sums are exact in any order."""
    random = np.random.default_rng(0)
    constants = {
        name: random.integers(-3, 4, shape).astype(np.float32)
        for name, shape in {"kernel": (5, 2, 3), "weight": (depth, 7)}.items()
    }
    nodes = [
        NODE("Conv", ["x", "kernel"], ["a"]), NODE("Transpose", ["a"], ["b"], perm=axes),
        NODE("MatMul", ["b", "weight"], ["y"]),
    ]  # fmt: skip
    return model_of(nodes, {"x": (batch, 2, 12)}, ["y"], constants)


def laid_out(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    stages = [FoldConstants(), OrientSequences(), FormComposites(BACKEND), ConvertLayout()]
    return tvm.transform.Sequential(stages)(tvm_ext.load(saved(model, folder)))


def called(module: tvm.IRModule) -> list[str]:
    """Kinds of the composites that main calls, in order."""
    values = [binding.value for binding in bindings(module["main"])]
    return [str(module[v.op].attrs["Composite"]).removeprefix("tvm_ext.") for v in values if isinstance(v, relax.Call)]


def test_frames_are_read_where_the_convolution_stores_them(tmp_path: Path) -> None:
    before = laid_out(network([0, 2, 1]), tmp_path)
    after = CancelMoves()(before)
    ahead = ["expand_dims", "permute_dims", "nn_conv2d"]
    assert called(before) == [*ahead, "permute_dims", "squeeze", "permute_dims", "matmul"]
    assert called(after) == [*ahead, "reshape", "matmul"]
    assert [binding.var.name for binding in bindings(after["main"])][-2:] == ["b", "y"]
    x = np.random.default_rng(1).integers(-3, 4, (1, 2, 12)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_elements_that_change_their_order_still_move(tmp_path: Path) -> None:
    before = laid_out(network([1, 0, 2], depth=10, batch=2), tmp_path)
    assert tvm_ffi.structural_equal(CancelMoves()(before), before)


def test_large_tensors_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancel_moves, "MOST_ELEMENTS", 49)
    before = laid_out(network([0, 2, 1]), tmp_path)
    assert tvm_ffi.structural_equal(CancelMoves()(before), before)


def test_a_composite_of_several_results_is_left_alone(tmp_path: Path) -> None:
    """A long recurrent layer gives its outputs and its last state at once."""
    weights = {"w": np.ones((1, 3, 2), np.float32), "r": np.ones((1, 3, 3), np.float32)}
    layer = NODE("RNN", ["x", "w", "r"], ["y", "last"], hidden_size=3)
    before = laid_out(model_of([layer], {"x": (40, 1, 2)}, ["y", "last"], constants=weights), tmp_path)
    tvm.ir.assert_structural_equal(CancelMoves()(before), before)
