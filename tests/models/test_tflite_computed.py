"""TensorFlow Lite files whose axes and shapes are computed from constants, or from shapes, as Keras writes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from benchmarks.tflite_cases import movement
from benchmarks.tflite_cases.case import Case, ints
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_models import Network
from tests.support.tflite_runners import litert, referenced, saved_tflite


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


@pytest.mark.parametrize(
    ("case", "dtype"), [pytest.param(*one, id=f"{one[0].name}-{one[1]}") for one in computed_cases()]
)
def test_parameters_may_be_computed(case: Case, dtype: str, tmp_path: Path) -> None:
    """The outputs are those of the same numbers in the file."""
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
