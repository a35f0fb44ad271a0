"""Products of a constant matrix with an activation on its right: kernels, and results beside onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.models.onnx_models import saved
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions, Package

NODE = helper.make_node
KERNEL = "matmul_"


def model(nodes: list[onnx.NodeProto], shape: list[int], output: list[int], **constants: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, output)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10)


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def quantized(columns: int, scales: int = 1) -> onnx.ModelProto:
    """QDQ form of int8[12, 19] times [19, columns]. scales: of the matrix, one for all or one for each row."""
    weights = np.random.default_rng(2).integers(-127, 128, (12, 19)).astype(np.int8)
    scale = np.full(scales, 0.01, np.float32) if scales > 1 else np.array(0.01, np.float32)
    zeros = np.zeros(scale.shape, np.int8)
    nodes = [
        NODE("QuantizeLinear", ["x", "s", "z"], ["xq"]), NODE("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        NODE("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], axis=0), NODE("MatMul", ["wd", "xd"], ["p"]),
        NODE("QuantizeLinear", ["p", "os", "z"], ["q"]), NODE("DequantizeLinear", ["q", "os", "z"], ["y"]),
    ]  # fmt: skip
    return model(
        nodes, [1, 19, columns], [1, 12, columns], wq=weights, ws=scale, wz=zeros, s=np.array(0.03, np.float32),
        z=np.array(3, np.int8), os=np.array(0.2, np.float32),
    )  # fmt: skip


FLOATS = {
    "matrix": model([NODE("MatMul", ["w", "x"], ["y"])], [17, 6], [12, 6], w=matrix(12, 17)),
    "column": model([NODE("MatMul", ["w", "x"], ["y"])], [1, 17, 1], [1, 12, 1], w=matrix(12, 17)),
    "with a bias for each row": model(
        [NODE("MatMul", ["w", "x"], ["p"]), NODE("Add", ["p", "b"], ["q"]), NODE("Relu", ["q"], ["y"])],
        [1, 17, 6], [1, 12, 6], w=matrix(12, 17), b=matrix(12, 1),
    ),
    "and a residual": model(
        [NODE("MatMul", ["w", "x"], ["p"]), NODE("Add", ["p", "x"], ["y"])], [1, 12, 6], [1, 12, 6], w=matrix(12, 12)
    ),
    "of two": model(
        [NODE("MatMul", ["w", "x"], ["p"]), NODE("MatMul", ["v", "p"], ["y"])],
        [1, 17, 6], [1, 3, 6], w=matrix(12, 17), v=matrix(3, 12),
    ),
    "batches": model([NODE("MatMul", ["w", "x"], ["y"])], [2, 17, 6], [2, 12, 6], w=matrix(12, 17)),
}  # fmt: skip


def kernels(package: Package) -> list[str]:
    return [step["kernel"] for step in package.report["steps"]]


@pytest.mark.parametrize("case", FLOATS)
def test_floats(case: str, tmp_path: Path) -> None:
    package = tvm_ext.build(saved(FLOATS[case], tmp_path), "host", tmp_path / "out", BuildOptions())
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "onnxruntime"
    has_kernel = any(name.startswith(KERNEL) for name in kernels(package))
    assert has_kernel == (case not in ("batches", "with a bias for each row"))


@pytest.mark.board
@pytest.mark.parametrize(
    ("platform", "columns"),
    some_rows([("cortex_m4", 1), ("cortex_m55", 7)], sweep=[("cortex_m4", 7), ("cortex_m55", 1)]),
)
def test_integers(platform: str, columns: int, tmp_path: Path) -> None:
    package = tvm_ext.build(saved(quantized(columns), tmp_path), platform, tmp_path / "out", BuildOptions())
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"]
    assert any(name.startswith("qmatmul") for name in kernels(package))


def test_a_scale_for_each_row_is_computed_in_plain_c(tmp_path: Path) -> None:
    package = tvm_ext.build(saved(quantized(7, scales=12), tmp_path), "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["passed"]
    assert not any(name.startswith("qmatmul") for name in kernels(package))


@pytest.mark.parametrize("ram", [None, "900"])
def test_rows_one_after_the_other_give_the_same(ram: str | None, tmp_path: Path) -> None:
    path = saved(FLOATS["of two"], tmp_path)
    package = tvm_ext.build(path, "host", tmp_path / "out", BuildOptions(ram=ram))
    assert package.report["verify"]["host"]["passed"]
