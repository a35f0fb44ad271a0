"""Quantized layers whose results are real numbers: in integer kernels, as onnxruntime has them, on all targets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.models.onnx_models import saved
from tests.support.packages import assert_close
from tvm_ext import BuildOptions, Package
from tvm_ext.execution.host_model import HostModel

NODE = helper.make_node
PLATFORMS = ("host", "cortex_m4", "cortex_m55")


def network() -> onnx.ModelProto:
    """A convolution with relu whose result stays float, one with a sum behind it, a depthwise and a dense layer."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    constants = {"s": np.float32(0.02), "z": np.int8(-5), "zw": np.int8(0), "zc": np.zeros(8, np.int8)}

    def quantized(value: str) -> str:
        nodes.append(NODE("QuantizeLinear", [value, "s", "z"], [f"{value}_q"]))
        nodes.append(NODE("DequantizeLinear", [f"{value}_q", "s", "z"], [f"{value}_d"]))
        return f"{value}_d"

    def weights(name: str, *shape: int, scale: float = 0.003, by_channel: bool = True) -> str:
        constants[name] = random.integers(-127, 128, shape).astype(np.int8)
        scales = random.uniform(0.2, 1.0, shape[0]) * scale if by_channel else np.array(scale)
        constants[f"{name}_s"] = scales.astype(np.float32)
        zero = "zc" if by_channel else "zw"
        axis = {"axis": 0} if by_channel else {}
        nodes.append(NODE("DequantizeLinear", [name, f"{name}_s", zero], [f"{name}_d"], **axis))
        return f"{name}_d"

    x = quantized("x")
    constants["b"] = random.standard_normal(8).astype(np.float32)
    nodes.append(NODE("Conv", [x, weights("w1", 8, 3, 3, 3), "b"], ["c1"], pads=[1, 1, 1, 1]))
    nodes.append(NODE("Relu", ["c1"], ["features"]))
    y = quantized("features")
    nodes.append(NODE("Conv", [y, weights("w2", 8, 8, 1, 1)], ["c2"]))
    nodes.append(NODE("Add", ["c2", y], ["sum"]))
    y = quantized("sum")
    nodes.append(NODE("Conv", [y, weights("w3", 8, 1, 3, 3)], ["deep"], group=8, strides=[2, 2]))
    y = quantized("deep")
    nodes.append(NODE("Flatten", [y], ["flat"]))
    constants |= {"b4": random.integers(-20000, 20000, 10).astype(np.int32), "b4_s": np.float32(6e-5)}
    nodes.append(NODE("DequantizeLinear", ["b4", "b4_s"], ["b4_d"]))
    nodes.append(NODE("Gemm", ["flat", weights("w4", 72, 10, by_channel=False), "b4_d"], ["logits"]))
    results = {"features": (1, 8, 8, 8), "deep": (1, 8, 3, 3), "logits": (1, 10)}
    graph = helper.make_graph(
        nodes, "real_results", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 8, 8))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in results.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Package]:
    """The network for each platform; each package verifies itself on the host."""
    folder = tmp_path_factory.mktemp("real_results")
    path = saved(network(), folder)
    return {
        name: tvm_ext.build(tvm_ext.load(path), name, folder / name, BuildOptions(verify=("host",)))
        for name in PLATFORMS
    }


def outputs_of(package: Package, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    with HostModel(package.folder, package.interface) as model:
        return model.run(inputs)


def test_all_products_are_integers(built: dict[str, Package]) -> None:
    for package in built.values():
        kernels = [step["kernel"] for step in package.report["steps"] if step.get("macs")]
        assert len(kernels) == 4 and all(name.startswith("q") and name.endswith("_real") for name in kernels)


def test_onnxruntime_and_all_targets_give_the_same(built: dict[str, Package], tmp_path: Path) -> None:
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # as the file says
    session = onnxruntime.InferenceSession(str(saved(network(), tmp_path)), options)
    names = [value.name for value in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, inputs), strict=True))
    first, *others = (outputs_of(package, inputs) for package in built.values())
    assert_close(first, wanted)
    for found in others:
        for name, values in found.items():
            np.testing.assert_array_equal(values, first[name], err_msg=name)
