"""Dense layers in parts: by rows of the result, and adding up parts of the input; not a bit differs from the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kept, Kernel, StoredRows, Target
from codegen_c.kernels.dense import dense_f32, qdense
from codegen_c.kernels.shared.vector_rows import rows_of
from codegen_c.operators.kinds import Dense, QDense, Quantization, TensorType
from codegen_c.targets.dsp.kernels import dense as dense_dsp
from codegen_c.targets.helium.kernels import dense as dense_helium
from tests.kernels import float32
from tests.kernels.dsp import CORTEX_M4, SOME
from tests.kernels.harness import HOST, compile_kernels, run_accumulating, run_kernel, run_ring
from tests.kernels.helium import M55
from tests.kernels.quantized import elements, seeds
from tests.kernels.test_f32_dense import layers
from tests.kernels.test_qdense import dense_layers

Layer = Dense | QDense
SIZES = st.tuples(st.sampled_from((1, 4, 12, 30, 32, 48)), st.sampled_from((3, 8, 10, 20, 48, 64, 96)))
VECTORS = st.sampled_from(((1,), (), (1, 1)))
TOKENS = st.sampled_from(((3,), (1, 5), (2, 2)))
INTEGER_KERNELS = [
    pytest.param(qdense.QDENSE, HOST, id="portable"),
    pytest.param(dense_dsp.QDENSE, CORTEX_M4, id="dsp"),
    pytest.param(dense_helium.QDENSE, M55, id="helium"),
]


def integers(shapes: st.SearchStrategy[tuple[int, ...]]) -> st.SearchStrategy[QDense]:
    return dense_layers(shapes, SIZES, ("onnx", "tflite"))


def arrays(operator: Layer, seed: int) -> list[np.ndarray]:
    make = elements if isinstance(operator, QDense) else float32.elements
    return [make(kind, seed + i) for i, kind in enumerate(operator.inputs)]


def assert_by_rows(operator: Layer, kernel: Kernel, target: Target, seed: int) -> None:
    """Rows of the result one by one, where all are stored and in rings of two."""
    whole = kernel.implement(operator, target, StoredRows())
    rows = rows_of(operator.output.shape)
    assert (whole.in_rows is None) == (rows is None)
    if whole.in_rows is None or rows is None:
        return
    given_rows = 1 if rows.is_vector else rows.count
    kept = (Kept(stored=1), *[Kept(stored=2, shift=1)] * (len(operator.inputs) - 1))
    stored = StoredRows(inputs=kept, output=Kept(stored=2, shift=1))
    plain, ringed = whole.in_rows(StoredRows()), whole.in_rows(stored)
    entries = compile_kernels([whole, plain, ringed])
    inputs = arrays(operator, seed)
    (expected,) = run_kernel(operator, whole, inputs, entry=entries[0])
    one_by_one = [(h, h + 1) for h in range(rows.count)]
    assert_same(run_kernel(operator, plain, inputs, one_by_one, entries[1])[0], expected)
    counts = [given_rows, *[rows.count] * (len(inputs) - 1)]
    shaped = [array.reshape(1, count, 1, -1) for array, count in zip(inputs, counts, strict=True)]
    image = replace(operator, outputs=(replace(operator.output, shape=(1, rows.count, 1, rows.length)),))
    found = run_ring(image, ringed, stored, shaped, entries[2])[0]
    assert_same(found.reshape(expected.shape), expected)


def assert_adds_up(operator: Layer, kernel: Kernel, target: Target, seed: int) -> None:
    """Check every number of parts in which the input may come, one to three of them per call."""
    whole = kernel.implement(operator, target, StoredRows())
    accumulating = whole.accumulating
    if accumulating is None:
        return
    ways = [(parts, at_once) for parts in accumulating.row_counts for at_once in (1, 3)]
    made = [
        accumulating.implement(parts, StoredRows(inputs=(Kept(stored=at_once),), at_once=at_once))
        for parts, at_once in ways
    ]
    entries = compile_kernels([whole, *made])
    (x,) = arrays(operator, seed)
    (expected,) = run_kernel(operator, whole, [x], entry=entries[0])
    for (parts, at_once), found, entry in zip(ways, made, entries[1:], strict=True):
        assert found.spatial is not None and found.spatial.accumulates and found.spatial.output_rows == parts
        result, *sums = run_accumulating(operator, found, [x], parts=parts, at_once=at_once, entry=entry)
        assert_same(result, expected)
        assert_same_all(sums, found.reference([x])[1:])


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def assert_same_all(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(("kernel", "target"), INTEGER_KERNELS)
@SOME
@given(operator=integers(VECTORS | TOKENS), seed=seeds)
def test_integers_by_rows(kernel: Kernel, target: Target, operator: QDense, seed: int) -> None:
    if kernel.refuses(operator, target) is None:
        assert_by_rows(operator, kernel, target, seed)


@pytest.mark.parametrize(("kernel", "target"), INTEGER_KERNELS)
@SOME
@given(operator=integers(VECTORS), seed=seeds)
def test_integers_in_parts(kernel: Kernel, target: Target, operator: QDense, seed: int) -> None:
    if kernel.refuses(operator, target) is None:
        assert_adds_up(operator, kernel, target, seed)


@SOME
@given(layers(VECTORS | TOKENS, SIZES), seeds)
def test_floats_by_rows(operator: Dense, seed: int) -> None:
    assert_by_rows(operator, dense_f32.KERNEL, HOST, seed)


@SOME
@given(layers(VECTORS, SIZES), seeds)
def test_floats_in_parts(operator: Dense, seed: int) -> None:
    assert_adds_up(operator, dense_f32.KERNEL, HOST, seed)


@pytest.mark.parametrize(("leading", "residuals"), [((2,), 0), ((1,), 1)])
def test_several_vectors_or_inputs_do_not_come_in_parts(leading: tuple[int, ...], residuals: int) -> None:
    output = float32.floats(*leading, 8)
    operator = Dense(
        inputs=(float32.floats(*leading, 12), *[output] * residuals), outputs=(output,),
        weight=np.ones((8, 12), np.float32), bias=np.ones(8, np.float32),
    )  # fmt: skip
    assert dense_f32.KERNEL.implement(operator, HOST, StoredRows()).accumulating is None


def test_calls_of_few_rows_are_modelled_as_dearer_and_expand_less() -> None:
    operator = dsp_layer()
    implementations = [in_parts(operator, at_once) for at_once in (1, 8)]
    one, eight = implementations
    assert one.instructions > eight.instructions > 0
    assert 8 * one.scratch_bytes == eight.scratch_bytes == 8 * 2 * 4


def dsp_layer() -> QDense:
    kind = TensorType(shape=(1, 64), dtype="int8", quantization=Quantization(scale=0.5, zero_point=3))
    return QDense(
        inputs=(kind,), outputs=(replace(kind, shape=(1, 8)),), weight=np.ones((8, 64), np.int8),
        weight_scale=np.full(8, 0.01, np.float32), bias=np.zeros(8, np.int32), low=-128, high=127,
    )  # fmt: skip


def in_parts(operator: QDense, at_once: int) -> Implementation:
    accumulating = dense_dsp.QDENSE.implement(operator, CORTEX_M4, StoredRows()).accumulating
    assert accumulating is not None
    return accumulating.implement(16, StoredRows(at_once=at_once))
