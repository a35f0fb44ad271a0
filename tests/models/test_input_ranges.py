"""Random samples that a model's operators can take: indices within axes, divisors that are not zero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm.script import ir as I
from tvm.script import relax as R

from tests.support.onnx_models import saved
from tvm_ext.frontends.load import load
from tvm_ext.verification.input_ranges import input_ranges, random_inputs

FLOAT, INT32, INT64 = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64
Spec = tuple[int, list[int]]


def model(
    operator: str, inputs: dict[str, Spec], output: Spec, opset: int = 18, **attributes: object
) -> onnx.ModelProto:
    values = [helper.make_tensor_value_info(name, *spec) for name, spec in inputs.items()]
    node = helper.make_node(operator, list(inputs), ["y"], **attributes)
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", *output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


CASES: dict[str, tuple[onnx.ModelProto, dict[str, tuple[float, float]]]] = {
    "gather": (
        model("Gather", {"x": (FLOAT, [3, 7]), "i": (INT64, [2])}, (FLOAT, [3, 2]), axis=1),
        {"i": (0, 6)},
    ),
    "gather tuples": (
        model("GatherND", {"x": (FLOAT, [5, 3, 2]), "i": (INT64, [4, 2])}, (FLOAT, [4, 2])),
        {"i": (0, 2)},
    ),
    "scatter": (
        model(
            "ScatterElements", {"x": (FLOAT, [6, 2]), "i": (INT64, [1, 2]), "u": (FLOAT, [1, 2])}, (FLOAT, [6, 2]),
        ),
        {"i": (0, 5)},
    ),
    "divisor": (model("Div", {"a": (INT32, [4]), "b": (INT32, [4])}, (INT32, [4])), {"b": (1, 9)}),
    "remainder": (model("Mod", {"a": (INT64, [4]), "b": (INT64, [4])}, (INT64, [4])), {"b": (1, 9)}),
    "axis of a vector": (model("CumSum", {"x": (FLOAT, [5]), "axis": (INT32, [])}, (FLOAT, [5])), {"axis": (0, 0)}),
    "ratio": (model("Dropout", {"x": (FLOAT, [5]), "r": (FLOAT, [])}, (FLOAT, [5])), {"r": (0, 0)}),
    "lengths": (
        model(
            "ReverseSequence", {"x": (FLOAT, [4, 3]), "n": (INT64, [3])}, (FLOAT, [4, 3]), time_axis=0, batch_axis=1,
        ),
        {"n": (1, 4)},
    ),
    "nothing": (model("Add", {"a": (FLOAT, [4]), "b": (FLOAT, [4])}, (FLOAT, [4])), {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ranges(name: str, tmp_path: Path) -> None:
    made, expected = CASES[name]
    mod = load(saved(made, tmp_path))
    found = input_ranges(mod)
    assert {key: found.get(key) for key in expected} == expected and found.keys() <= {*expected, "u"}
    specs = {p.name: (tuple(int(d) for d in p.ty.shape.values), str(p.ty.dtype)) for p in mod["main"].params}
    for seed in range(5):
        for key, array in random_inputs(specs, seed, found).items():
            assert (array.shape, str(array.dtype)) == specs[key]
            if key in expected:
                low, high = expected[key]
                assert low <= array.min() and array.max() <= high


def test_a_module_is_looked_through_too() -> None:
    """Indices that are cast first, a float that is quantized, an input that nobody reads."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            table: R.Tensor((9, 4), "float32"), i: R.Tensor((2,), "int32"), x: R.Tensor((3,), "float32"),
            unread: R.Tensor((1,), "int64"),
        ) -> R.Tuple(R.Tensor((2, 4), "float32"), R.Tensor((3,), "int8")):  # fmt: skip
            with R.dataflow():
                wide = R.astype(i, "int64")
                rows = R.take(table, wide, axis=0)
                q = R.quantize(x, R.const(0.5, "float32"), R.const(-28, "int8"), out_dtype="int8")
                R.output(rows, q)
            return (rows, q)

    assert input_ranges(Module) == {"i": (0, 8), "x": (-50.0, 77.5), "unread": (0, 0)}


def test_scalars_stay_scalars() -> None:
    found = random_inputs({"s": ((), "float32"), "n": ((), "int64")}, 0, {"n": (3, 3)})
    assert found["s"].shape == () and found["n"].shape == () and found["n"] == 3
    assert isinstance(found["s"], np.ndarray)


def test_integers_cover_their_type() -> None:
    """C that cuts integers off to [-1, 1], or to half of their type, must not pass."""
    for dtype in ("int16", "uint16", "int32", "uint32", "int64"):
        info = np.iinfo(dtype)
        array = random_inputs({"x": ((400,), dtype)}, 0)["x"]
        assert array.min() < info.min + (info.max - info.min) // 20 and array.max() > info.max - info.max // 20, dtype
    assert set(random_inputs({"x": ((40,), "bool")}, 0)["x"]) == {False, True}


def test_integers_that_arithmetic_reads_stay_small() -> None:
    """Sums and products of whole numbers overflow where these cover their type, which is no meaning of a model."""

    @I.ir_module
    class Module:
        @R.function
        def main(a: R.Tensor((4,), "int32"), b: R.Tensor((4,), "int32"), c: R.Tensor((4,), "int32")) -> R.Tuple(
            R.Tensor((4,), "int32"), R.Tensor((4,), "float32")
        ):
            with R.dataflow():
                product = R.multiply(a, b)
                real = R.astype(c, "float32")
                R.output(product, real)
            return (product, real)

    assert input_ranges(Module) == {"a": (-1000, 1000), "b": (-1000, 1000)}


def test_indices_that_are_computed_stay_0_or_1() -> None:
    """Where an index is computed from an input, other values may lie outside of its axis."""

    @I.ir_module
    class Module:
        @R.function
        def main(table: R.Tensor((9, 4), "float32"), i: R.Tensor((2,), "int64")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                next_one = R.add(i, R.const(1, "int64"))
                rows = R.take(table, next_one, axis=0)
                R.output(rows)
            return rows

    assert input_ranges(Module) == {"i": (0, 1)}
