"""The networks of the zoo: what they are said to be, and small ones of them compiled and verified on the host."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest

from benchmarks import zoo
from benchmarks.networks.mobile import make_divisible
from tests.support.packages import Packages
from tests.support.sweeps import some_of
from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

MACS = {
    "ds_cnn_fp32": 2_656_768,
    "mobilenet_v1_025_96_fp32": 7_489_664,
    "resnet8_fp32": 12_501_632,
    "autoencoder_fp32": 264_192,
    "mobilenet_v2_035_224_fp32": 59_000_000,
    "mobilenet_v2_100_224_fp32": 300_774_272,
}


def outputs(model: onnx.ModelProto, seed: int) -> np.ndarray:
    port = model.graph.input[0].type.tensor_type
    shape = tuple(dim.dim_value for dim in port.shape.dim)
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(port.elem_type))
    return onnx_outputs(model, [random_inputs({"input": (shape, dtype)}, seed)])[0]["output"]


@pytest.mark.parametrize("name", MACS)
def test_networks_are_as_large_as_published(name: str) -> None:
    assert multiply_adds(zoo.build(name)) == pytest.approx(MACS[name], rel=0.01 if "035" in name else 0)


@pytest.mark.parametrize("name", [name for name in zoo.names() if "100_224" not in name])
def test_activations_stay_finite_and_depend_on_the_input(name: str) -> None:
    model = zoo.build(name)
    first, second = outputs(model, 0), outputs(model, 1)
    assert np.isfinite(first).all() and np.abs(first.astype(float)).max() < 1000
    assert not np.array_equal(first, second)
    assert len(np.unique(first)) > 1, "every class is given the same score"


def test_int8_networks_hold_int8_with_a_scale_per_channel() -> None:
    model = zoo.build("resnet8_int8")
    types = {port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output)}
    assert types == {onnx.TensorProto.INT8}
    weights = [tensor for tensor in model.graph.initializer if len(tensor.dims) == 4]
    assert weights and all(tensor.data_type == onnx.TensorProto.INT8 for tensor in weights)
    scales = {t.name: t for t in model.graph.initializer if t.name.startswith("weight") and t.name.endswith("_scale")}
    assert all(scale.dims[0] > 1 for scale in scales.values()), "one scale a channel"


def test_the_same_name_gives_the_same_network() -> None:
    assert zoo.build("ds_cnn_fp32") == zoo.build("ds_cnn_fp32")
    sizes = zoo.build("mobilenet_v2_050_064_fp32").graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in sizes] == [1, 3, 64, 64]


@pytest.mark.parametrize("name", ["resnet8", "no_such_net_fp32"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(KeyError, match="there are amoebanet_a_cifar_6_36"):
        zoo.build(name)


def test_channels_are_rounded_as_published() -> None:
    assert [make_divisible(channels * 0.35) for channels in (16, 24, 32, 64, 96, 160, 320)] == [
        8,
        8,
        16,
        24,
        32,
        56,
        112,
    ]


@pytest.mark.parametrize("name", some_of(["ds_cnn_int8"], sweep=["autoencoder_int8", "ds_cnn_fp32", "resnet8_fp32"]))
def test_small_networks_are_verified(packages: Packages, name: str) -> None:
    package = packages.small(name, partial(zoo.build, name))
    assert package.report["verify"]["host"]["passed"]
    assert package.report["macs"] == MACS[name.replace("int8", "fp32")]


def multiply_adds(model: onnx.ModelProto) -> int:
    """Multiply-adds of convolutions and dense layers, from the shapes onnx infers."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.value_info, *graph.output)
    }
    weights = {tensor.name: tensor.dims for tensor in graph.initializer}
    total = 0
    for node in graph.node:
        if node.op_type in ("Conv", "Gemm"):
            total += int(np.prod(shapes[node.output[0]]) * np.prod(weights[node.input[1]][1:]))
    return total
