"""float16 and bfloat16: kept in 16 bits, computed in float32, rounded behind each operator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from relay_passes.dataflow import bindings
from tests.support.narrow_models import narrowed
from tests.support.onnx_models import saved, typed_model
from tests.support.packages import HOST_ONLY
from tests.support.sweeps import some_of

NODE = helper.make_node
NUMPY = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
DIGITS = Path(__file__).parents[2] / "tutorials" / "digits" / "digits.onnx"
ALONE = tvm_ext.BuildOptions(verify=())
EDGES = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, -65520, 1e38, 3.4e38, 6e-8, 2.9e-8, 2.98e-8, 6.1e-5,
     6.0976e-5, 2049, 2051, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1e-45, 9.1e-41],
    "float32",
)  # fmt: skip


def network(kind: int) -> onnx.ModelProto:
    """Convolution, ReLU, pooling and a dense layer, all of 16 bits; softmax in float32."""
    random = np.random.default_rng(2)
    weights = {
        "w": random.normal(0, 0.3, (4, 2, 3, 3)), "b": random.normal(0, 0.3, 4), "v": random.normal(0, 0.3, (64, 5)),
    }  # fmt: skip
    nodes = [
        NODE("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        NODE("Relu", ["c"], ["r"]),
        NODE("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Flatten", ["p"], ["f"]),
        NODE("MatMul", ["f", "v"], ["m"]),
        NODE("Cast", ["m"], ["wide"], to=TensorProto.FLOAT),
        NODE("Softmax", ["wide"], ["y"]),
    ]
    constants = {name: array.astype(NUMPY[kind]) for name, array in weights.items()}
    return typed_model(nodes, {"x": (kind, [1, 2, 8, 8])}, {"y": TensorProto.FLOAT, "m": kind}, **constants)


@pytest.mark.parametrize("kind", some_of([TensorProto.FLOAT16], sweep=[TensorProto.BFLOAT16]))
def test_every_number_comes_through_and_all_others_round(tmp_path: Path, kind: int) -> None:
    """All 65,536 bit patterns as float, and floats at every edge of rounding, as numpy has them."""
    nodes = [NODE("Cast", ["x"], ["wide"], to=TensorProto.FLOAT), NODE("Cast", ["f"], ["narrow"], to=kind)]
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(NUMPY[kind])
    with np.errstate(all="ignore"):
        halves = every.astype("float32")
        middle = ((halves.astype("float64") + np.roll(halves, 1)) / 2).astype("float32")
        f = np.concatenate([EDGES, np.nextafter(halves, np.float32(np.inf)), middle])
        rounded = f.astype(NUMPY[kind]).astype("float32")
    model = typed_model(
        nodes, {"x": (kind, [1 << 16]), "f": (TensorProto.FLOAT, [f.size])}, {"wide": TensorProto.FLOAT, "narrow": kind}
    )
    found = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", ALONE).run(
        {"x": every, "f": f}
    )
    np.testing.assert_array_equal(found["wide"], halves)
    np.testing.assert_array_equal(found["narrow"].astype("float32"), rounded)


def test_doubles_round_once(tmp_path: Path) -> None:
    """A double beside the middle of two numbers: float32 would take it to the middle, and that to the wrong one."""
    middles = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 2.0**-24 * 1.5, 2048 + 1, -(1 + 2.0**-11), 65519.999])
    d = np.concatenate([middles, middles * (1 + 2.0**-40), middles * (1 - 2.0**-40)])
    nodes = [NODE("Cast", ["d"], ["y"], to=TensorProto.FLOAT16)]
    model = typed_model(nodes, {"d": (TensorProto.DOUBLE, [d.size])}, {"y": TensorProto.FLOAT16})
    found = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", ALONE).run({"d": d})
    np.testing.assert_array_equal(found["y"], d.astype("float16"))


@pytest.mark.parametrize("kind", some_of([TensorProto.FLOAT16], sweep=[TensorProto.BFLOAT16]))
def test_a_network_of_16_bits(tmp_path: Path, kind: int) -> None:
    mod = tvm_ext.load(saved(network(kind), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY)
    verified = package.report["verify"]["host"]
    assert verified["passed"]
    assert verified["reference"] == ("onnxruntime" if kind == TensorProto.FLOAT16 else "TVM")
    assert package.inputs["x"].dtype == package.outputs["m"].dtype == NUMPY[kind](0).dtype.name
    assert "uint16_t out_m[" in (tmp_path / "out" / "small_vectors.h").read_text(encoding="utf-8")
    kept = [binding.var for binding in bindings(mod["main"]) if binding.var.name in ("c", "r", "p", "f", "m")]
    assert {str(var.ty.dtype) for var in kept} == {package.inputs["x"].dtype} and len(kept) == 5


def test_what_is_not_computed_keeps_its_16_bits(tmp_path: Path) -> None:
    """Moves of elements need no float32, and no cast stands before them."""
    nodes = [NODE("Transpose", ["x"], ["t"], perm=[1, 0]), NODE("Concat", ["t", "t"], ["y"], axis=0)]
    mod = tvm_ext.load(
        saved(typed_model(nodes, {"x": (TensorProto.FLOAT16, [3, 4])}, {"y": TensorProto.FLOAT16}), tmp_path)
    )
    assert {str(binding.var.ty.dtype) for binding in bindings(mod["main"])} == {"float16"}
    x = np.arange(12, dtype="float16").reshape(3, 4)
    package = tvm_ext.build(mod, "host", tmp_path / "out", HOST_ONLY)
    np.testing.assert_array_equal(package.run({"x": x})["y"], np.concatenate([x.T, x.T]))


def test_weights_keep_their_16_bits(tmp_path: Path) -> None:
    """Two bytes a weight in flash, four a bias, of a network that a converter brought to float16.

    For speed alone, channels that fill no vector have weights beside them that are zero.
    """
    model = narrowed(onnx.load(DIGITS), TensorProto.FLOAT16)
    options = replace(HOST_ONLY, least_flash=True)
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "out", options)
    arrays = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    weights = [array for array in arrays if array.dtype == np.float16]
    assert package.report["weights_bytes"] == sum(2 * w.size if w.ndim > 1 else 4 * w.size for w in weights)
