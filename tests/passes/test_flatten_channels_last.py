"""FlattenChannelsLast: a dense layer takes an image as it lies, its weights moved; everything else stays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvm_ext
from benchmarks.networks.quantize import quantized
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import bindings
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.layout.flatten_channels_last import FlattenChannelsLast
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.simplify.move_integers import MoveIntegers
from tests.support.onnx_models import model_of, saved
from tests.support.virtual_machine import run
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))
NODE = helper.make_node
CONV, FLATTEN, GEMM = (
    NODE("Conv", ["input", "kernel"], ["a"]),
    NODE("Flatten", ["a"], ["flat"]),
    NODE("Gemm", ["flat", "weight", "bias"], ["output"]),
)


def network(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("output",), batch: int = 1) -> onnx.ModelProto:
    """int: whole numbers, so that float sums are exact in any order."""
    random = np.random.default_rng(0)

    def whole(*shape: int) -> np.ndarray:
        return random.integers(-3, 4, shape).astype(np.float32)

    constants = {"kernel": whole(5, 2, 3, 3), "weight": whole(5 * 4 * 3, 7), "bias": whole(7), "tall": whole(3, 4)}
    used = {name for node in nodes for name in node.input}
    return model_of(
        nodes, {"input": (batch, 2, 6, 5)}, list(outputs), {n: a for n, a in constants.items() if n in used}
    )  # fmt: skip


def laid_out(model: onnx.ModelProto, folder: Path) -> tvm.IRModule:
    stages = [FoldConstants(), DuplicateDequantize(), MoveIntegers(), FormComposites(BACKEND), ConvertLayout()]
    return tvm.transform.Sequential(stages)(tvm_ext.load(saved(model, folder)))


def called(module: tvm.IRModule) -> list[str]:
    """Names of the composites that main calls, in order."""
    values = [binding.value for binding in bindings(module["main"])]
    return [str(module[v.op].attrs["Composite"]) for v in values if isinstance(v, relax.Call)]


@pytest.mark.parametrize("batch", [1, 2])
def test_the_weights_move_instead_of_the_image(batch: int, tmp_path: Path) -> None:
    before = laid_out(network([CONV, FLATTEN, GEMM], batch=batch), tmp_path)
    after = FlattenChannelsLast()(before)
    assert called(before).count("tvm_ext.permute_dims") == 2 and called(after).count("tvm_ext.permute_dims") == 1
    x = np.random.default_rng(1).integers(-3, 4, (batch, 2, 6, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(before, x))


def test_quantized_weights_move(tmp_path: Path) -> None:
    before = laid_out(quantized(network([CONV, FLATTEN, GEMM])), tmp_path)
    after = FlattenChannelsLast()(before)
    assert called(after)[-2:] == ["tvm_ext.reshape", "tvm_ext.qmatmul"]
    assert called(after).count("tvm_ext.permute_dims") == called(before).count("tvm_ext.permute_dims") - 1
    x = np.random.default_rng(1).integers(-128, 128, (1, 2, 6, 5)).astype(np.int8)
    np.testing.assert_array_equal(run(after, x), run(before, x))


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        pytest.param([CONV, FLATTEN, GEMM], ("output", "flat"), id="the flattened image is a result"),
        pytest.param(
            [CONV, FLATTEN, GEMM, NODE("Softmax", ["flat"], ["other"])],
            ("output", "other"),
            id="somebody else reads it",
        ),
        pytest.param(
            [CONV, NODE("Reshape", ["a", "shape"], ["rows"]), NODE("MatMul", ["rows", "tall"], ["output"])],
            ("output",),
            id="not flattened whole",
        ),
    ],
)
def test_left_alone(nodes: list[onnx.NodeProto], outputs: tuple[str, ...], tmp_path: Path) -> None:
    model = network(nodes, outputs)
    if any("shape" in node.input for node in nodes):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([20, 3], np.int64), "shape"))
    before = laid_out(model, tmp_path)
    tvm.ir.assert_structural_equal(FlattenChannelsLast()(before), before)


def test_one_scale_for_each_row_is_left_alone(tmp_path: Path) -> None:
    """Weights quantized along the axis that would move."""
    nodes = [
        NODE("QuantizeLinear", ["input", "s", "z"], ["q"]),
        NODE("DequantizeLinear", ["q", "s", "z"], ["i"]),
        NODE("Conv", ["i", "kernel"], ["a"]),
        FLATTEN,
        NODE("DequantizeLinear", ["bytes", "scales", "zeros"], ["weight"], axis=0),
        NODE("MatMul", ["flat", "weight"], ["output"]),
    ]
    constants = {
        "s": np.float32(0.5), "z": np.int8(0), "kernel": np.ones((5, 2, 3, 3), np.float32),
        "bytes": np.ones((60, 7), np.int8), "scales": np.linspace(1, 2, 60, dtype=np.float32),
        "zeros": np.zeros(60, np.int8),
    }  # fmt: skip
    before = laid_out(model_of(nodes, {"input": (1, 2, 6, 5)}, ["output"], constants), tmp_path)
    tvm.ir.assert_structural_equal(FlattenChannelsLast()(before), before)
