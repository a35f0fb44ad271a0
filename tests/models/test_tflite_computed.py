"""TensorFlow Lite files whose axes and shapes are computed from constants, or from shapes, as Keras writes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from benchmarks.tflite_cases import movement
from benchmarks.tflite_cases.case import Case, ints
from tests.support.sweeps import some_of
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_models import Network
from tests.support.tflite_runners import litert, referenced, saved_tflite
from tvm_ext.core.errors import UnsupportedModel


class ComputingWriter(TfliteWriter):
    """Writes whole numbers as a sum that the file computes."""

    def constant(self, name: str, array: np.ndarray, *args: object) -> int:
        index = super().constant(name, array, *args)  # type: ignore[arg-type]
        if array.dtype != np.int32 or any(args):
            return index
        zero = super().constant(f"{name}/zero", np.zeros_like(array))
        return self.operator("ADD", [index, zero], self.tensor(f"{name}/sum", array.shape, "int32"), "AddOptions")


def computed_cases() -> Iterator[tuple[Case, str]]:
    """Cases with a whole number that is no weight, in a type that has arithmetic of its own for moves."""
    for case in (case for cases in movement.CASES.values() for case in cases):
        for dtype in (dtype for dtype in ("float32", "int8") if dtype in case.types):
            net = Network(int8=dtype == "int8", writer=ComputingWriter())
            case.make(net)
            if any(tensor.name.endswith("/sum") for tensor in net.writer.tensors):
                yield case, dtype


COMPUTED = {f"{case.name}-{dtype}": (case, dtype) for case, dtype in computed_cases()}
MORE_RESIZES = [name for name in COMPUTED if name.startswith("RESIZE_") and " (8, 12) {}" not in name]
"""Resizes that `make sweep` adds to one of each kind. One function reads the sizes of all of them."""


@pytest.mark.parametrize("name", some_of([name for name in COMPUTED if name not in MORE_RESIZES], sweep=MORE_RESIZES))
def test_parameters_may_be_computed(name: str, tmp_path: Path) -> None:
    """The outputs are those of the same numbers in the file."""
    case, dtype = COMPUTED[name]
    plain, arrays = case.file(dtype, seed=1)
    net = Network(int8=dtype == "int8", seed=1, writer=ComputingWriter())
    data = net.writer.finish(list(case.make(net)))
    expected, _ = referenced(saved_tflite(plain, tmp_path, "plain"), arrays)
    found, _ = referenced(saved_tflite(data, tmp_path, "computed"), arrays)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def reshaped_by_its_shape(gathered: bool) -> tuple[bytes, np.ndarray]:
    """x float32[1, 4, 6, 5] -> [1, 24, 5] by SHAPE, and PACK or REDUCE_PROD, with an open batch."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 4, 6, 5), signature=(-1, 4, 6, 5))
    shape = writer.operator("SHAPE", [x], writer.tensor("shape", (4,), "int32"), "ShapeOptions",
                            OutType=tflite.TensorType.INT32)  # fmt: skip
    if gathered:
        inner = writer.operator("GATHER", [shape, writer.constant("inner", ints(1, 2))],
                                writer.tensor("extents", (2,), "int32"), "GatherOptions")  # fmt: skip
        axis = writer.constant("axis", np.array(0, np.int32))
        rows = writer.operator("REDUCE_PROD", [inner, axis], writer.tensor("rows", (), "int32"), "ReducerOptions")
    else:
        rows = writer.constant("rows", np.array(24, np.int32))
    bounds = [writer.constant(f"bound{index}", ints(index)) for index in (0, 1)]
    batch = writer.operator("STRIDED_SLICE", [shape, *bounds, writer.constant("step", ints(1))],
                            writer.tensor("batch", (), "int32"), "StridedSliceOptions", ShrinkAxisMask=1)  # fmt: skip
    packed = writer.operator("PACK", [batch, rows, writer.constant("last", np.array(5, np.int32))],
                             writer.tensor("packed", (3,), "int32"), "PackOptions", ValuesCount=3)  # fmt: skip
    y = writer.operator("RESHAPE", [x, packed], writer.tensor("y", (1, 24, 5), signature=(-1, -1, 5)), "ReshapeOptions")
    return writer.finish([y]), np.random.default_rng(0).normal(size=(1, 4, 6, 5)).astype(np.float32)


@pytest.mark.parametrize("gathered", [False, True])
def test_shapes_of_an_open_batch(gathered: bool, tmp_path: Path) -> None:
    data, x = reshaped_by_its_shape(gathered)
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    np.testing.assert_array_equal(found[0], litert(data, [x])[0])


def test_stale_shapes_beside_an_open_batch(tmp_path: Path) -> None:
    """SPACE_TO_BATCH_ND multiplies the batch: Keras' dilated layers declare [1, 4, 4, 2], and LiteRT computes 4 images.

    TensorFlow Lite Micro believes the file, so it is no reference for it.
    """
    writer = TfliteWriter()
    x = writer.input("x", (1, 8, 8, 2), signature=(-1, 8, 8, 2))
    block = writer.constant("block", ints(2, 2))
    none = writer.constant("none", np.zeros((2, 2), np.int32))
    s = writer.tensor("s", (1, 4, 4, 2), signature=(-1, 4, 4, 2))
    writer.operator("SPACE_TO_BATCH_ND", [x, block, none], s, "SpaceToBatchNDOptions")
    weights = np.random.default_rng(0).normal(size=(2, 3, 3, 2)).astype(np.float32)
    c = writer.tensor("c", (1, 4, 4, 2), signature=(-1, 4, 4, 2))
    given = [s, writer.constant("w", weights), writer.constant("b", np.zeros(2, np.float32))]
    writer.operator("CONV_2D", given, c, "Conv2DOptions", StrideW=1, StrideH=1)
    y = writer.tensor("y", (1, 8, 8, 2), signature=(-1, 8, 8, 2))
    writer.operator("BATCH_TO_SPACE_ND", [c, block, none], y, "BatchToSpaceNDOptions")
    file = saved_tflite(writer.finish([y]), tmp_path)
    package = tvm_ext.build(tvm_ext.load(file), "host", tmp_path / "package")
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "LiteRT"
    assert "the shape of 's' in the file is not that of its inputs" in host["refused_by"][0]["reason"]


def doubled_by_its_shape() -> tuple[bytes, np.ndarray]:
    """x float32[1, 4, 6, 5], resized to twice its extents, and again. The tensors in between have no shape."""
    writer = TfliteWriter()
    current = writer.input("x", (1, 4, 6, 5))
    for number in range(2):
        four = writer.tensor(f"shape{number}", () if number else (4,), "int32")
        shape = writer.operator("SHAPE", [current], four, "ShapeOptions", OutType=tflite.TensorType.INT32)
        extents = []
        for axis in (1, 2):
            bounds = [writer.constant(f"bound{number}{axis}{index}", ints(axis + index)) for index in (0, 1)]
            step, twice = (writer.constant(f"{name}{number}{axis}", value) for name, value in
                           (("step", ints(1)), ("two", np.array(2, np.int32))))  # fmt: skip
            extent = writer.operator("STRIDED_SLICE", [shape, *bounds, step],
                                     writer.tensor(f"extent{number}{axis}", (), "int32"),
                                     "StridedSliceOptions", ShrinkAxisMask=1)  # fmt: skip
            double = writer.tensor(f"double{number}{axis}", (), "int32")
            extents.append(writer.operator("MUL", [extent, twice], double, "MulOptions"))
        size = writer.operator("PACK", extents, writer.tensor(f"size{number}", (2,), "int32"), "PackOptions",
                               ValuesCount=2)  # fmt: skip
        current = writer.operator("RESIZE_NEAREST_NEIGHBOR", [current, size], writer.tensor(f"large{number}", ()),
                                  "ResizeNearestNeighborOptions")  # fmt: skip
    axes = writer.constant("axes", ints(1, 2))
    y = writer.operator("MEAN", [current, axes], writer.tensor("y", (1, 5)), "ReducerOptions")
    return writer.finish([y]), np.random.default_rng(0).normal(size=(1, 4, 6, 5)).astype(np.float32)


def reshaped_by_its_zeros() -> tuple[bytes, np.ndarray]:
    """x float32[1, 4, 6] -> [1, 24] by its shape, in which WHERE looks for zeros, as ONNX's Reshape is converted."""
    writer = TfliteWriter()
    x = writer.input("x", (1, 4, 6), signature=(-1, 4, 6))
    shape = writer.operator("SHAPE", [x], writer.tensor("shape", (3,), "int64"), "ShapeOptions",
                            OutType=tflite.TensorType.INT64)  # fmt: skip
    wanted = writer.constant("wanted", np.array([0, -1], np.int64))
    zero, length = writer.constant("zero", np.array(0, np.int64)), writer.constant("length", np.array([2], np.int64))
    equal = writer.operator("EQUAL", [wanted, zero], writer.tensor("equal", (2,), "bool"), "EqualOptions")
    places = writer.operator("WHERE", [equal], writer.tensor("places", (1, 1), "int64", signature=(-1, 1)),
                             "WhereOptions")  # fmt: skip
    flat = writer.operator("RESHAPE", [places, writer.constant("flat", ints(-1))],
                           writer.tensor("row", (1,), "int64", signature=(-1,)), "ReshapeOptions")  # fmt: skip
    kept = writer.operator("GATHER", [shape, flat], writer.tensor("kept", (1,), "int64", signature=(-1,)),
                           "GatherOptions")  # fmt: skip
    dense = writer.operator("SPARSE_TO_DENSE", [places, length, kept, zero], writer.tensor("dense", (2,), "int64"),
                            "SparseToDenseOptions")  # fmt: skip
    total = writer.operator("ADD", [wanted, dense], writer.tensor("total", (2,), "int64"), "AddOptions")
    narrow = writer.operator("CAST", [total], writer.tensor("narrow", (2,), "int32"), "CastOptions",
                             InDataType=tflite.TensorType.INT64, OutDataType=tflite.TensorType.INT32)  # fmt: skip
    y = writer.operator("RESHAPE", [x, narrow], writer.tensor("y", (1, 1), signature=(-1, -1)), "ReshapeOptions")
    return writer.finish([y]), np.random.default_rng(0).normal(size=(1, 4, 6)).astype(np.float32)


@pytest.mark.parametrize("case", [doubled_by_its_shape, reshaped_by_its_zeros])
def test_shapes_that_only_the_graph_knows(case: Callable[[], tuple[bytes, np.ndarray]], tmp_path: Path) -> None:
    data, x = case()
    found, _ = referenced(saved_tflite(data, tmp_path), [x])
    np.testing.assert_allclose(found[0], litert(data, [x])[0], rtol=1e-6, atol=1e-6)


def test_where_on_data_is_refused(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (4,))
    zero = writer.constant("zero", np.array(0, np.float32))
    positive = writer.operator("GREATER", [x, zero], writer.tensor("positive", (4,), "bool"), "GreaterOptions")
    places = writer.tensor("places", (1, 1), "int64", signature=(-1, 1))
    file = saved_tflite(writer.finish([writer.operator("WHERE", [positive], places, "WhereOptions")]), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"WHERE.*a row for each element that is True, which depends on data"):
        tvm_ext.load(file)
