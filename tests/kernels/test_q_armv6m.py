"""Kernels of Armv6-M: C with its plain fallback against the portable kernels' references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared.vector_rows import as_dense
from codegen_c.operators.kinds import Operator, QBinary, QConv2d, QDense, Rounding
from codegen_c.targets.armv6m.kernels import depthwise as depthwise_armv6m
from codegen_c.targets.armv6m.kernels import elementwise as elementwise_armv6m
from codegen_c.targets.armv6m.kernels import products as products_armv6m
from codegen_c.targets.armv6m.kernels.products import SeparableRuns
from codegen_c.targets.registry import target_of
from tests.kernels.dsp import SOME
from tests.kernels.harness import PORTABLE, registered, run_in_place
from tests.kernels.on_target import for_target, taken_on
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qbinary import binaries, byte_tensor
from tests.kernels.test_qconv2d import convolutions
from tests.kernels.test_qconv2d_dsp import image, pointwise
from tests.kernels.test_qdense import dense_layers
from tvm_ext.core.platform import Platform

CORTEX_M0PLUS = target_of(Platform.load("cortex_m0plus").processor)
STRATEGIES = {
    products_armv6m.QCONV2D: convolutions(),
    depthwise_armv6m.KERNEL: convolutions(depthwise=True),
    products_armv6m.QDENSE: dense_layers(),
    elementwise_armv6m.KERNEL: binaries(),
}
"""Kernels, and operators that most of them take."""


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    @settings(SOME, max_examples=4)
    @given(st.lists(taken_on(CORTEX_M0PLUS, kernel, STRATEGIES[kernel]), min_size=1, max_size=5), seeds)
    def check(operators: list[Operator], seed: int) -> None:
        inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
        assert_c_equals_reference(operators, inputs, for_target(kernel, CORTEX_M0PLUS))

    check()


@given(st.integers(1, 300), st.sampled_from((1, 20, 128)), seeds)
@SOME
def test_halves_of_a_run_stay_within_16_bits(length: int, largest: int, seed: int) -> None:
    """They do with every activation; a run of one more weight would not."""
    weight = np.random.default_rng(seed).integers(-largest, largest, (3, length)).astype(np.int8)
    paired = SeparableRuns.of(weight)
    read = list(paired.stream.astype(np.int64))
    for channel, taps in enumerate(weight.astype(np.int64)):
        begin, runs = 0, 0
        while (count := -1 - read.pop(0)) > 0:
            assert read[:count] == taps[begin : begin + count].tolist()
            del read[:count]
            assert _fits(taps[begin : begin + count])
            begin, runs = begin + count, runs + 1
            assert begin == length or count == 127 or not _fits(taps[begin - count : begin + 1])
        assert (begin, runs) == (length, paired.num_runs[channel])
    assert not read


def _fits(weights: np.ndarray) -> bool:
    lowest = np.minimum(-128 * weights, 127 * weights).sum()
    highest = np.maximum(-128 * weights, 127 * weights).sum()
    return bool(lowest >= -(1 << 15) and highest < 1 << 15)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("value", [-128, 127])
def test_the_largest_sums_separate(dtype: str, value: int) -> None:
    """Weights and elements all at one end: each run reaches its bound, in either half."""
    operator = pointwise(np.full((4, 40), value), dtype=dtype)
    x = elements(operator.inputs[0], 1)
    x[0, 0, 0::2], x[0, 0, 1::2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    x[0, 0, 4:] = np.iinfo(dtype).min
    assert_c_equals_reference([operator], [[x]], for_target(products_armv6m.QCONV2D, CORTEX_M0PLUS))


@pytest.mark.parametrize("rounding", ["onnx", "tflite", "litert"])
def test_every_pair_of_elements(rounding: Rounding) -> None:
    """The factors of ResNet-8's first sum leave no spare bit in 32."""
    a, b = (x.reshape(-1).astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    operator = QBinary(
        inputs=(byte_tensor(a.shape, 0.039393551647663116, -128), byte_tensor(b.shape, 0.10419496148824692, 4)),
        outputs=(byte_tensor(a.shape, 0.050945673137903214, -128),), function="add", low=-128, high=127,
        rounding=rounding,
    )  # fmt: skip
    assert getattr(select(operator, CORTEX_M0PLUS), "kernel", None) == "qbinary_armv6m"
    assert_c_equals_reference([operator], [[a, b]], for_target(elementwise_armv6m.KERNEL, CORTEX_M0PLUS))


def test_ties_are_left_to_the_portable_kernel() -> None:
    """Halves to even: no start gives every other tie up and those between them down."""
    same = byte_tensor((1, 8), 0.5)
    operator = QBinary(inputs=(same, same), outputs=(byte_tensor((1, 8), 1.0),), function="add", low=-128, high=127)
    refusal = elementwise_armv6m.KERNEL.refuses(operator, CORTEX_M0PLUS)
    assert refusal is not None and "for every pair of elements" in refusal.reason


def words_of_four_channels(depth: int, dtype: str) -> tuple[QDense, np.ndarray]:
    """A dense layer and its input, with weights and elements at both ends."""
    weight = np.array([-128, 127, -1, 0, 127, -128, -128, 127])[:, np.newaxis] * np.ones((1, depth))
    made = pointwise(weight, dtype=dtype)
    dense = as_dense(
        replace(made, inputs=(image(1, 1, 1, depth, dtype=dtype),), outputs=(image(1, 1, 1, 8, scale=400.0),))
    )
    assert dense is not None
    x = elements(dense.inputs[0], 1)
    x[..., ::2] = np.iinfo(dtype).min
    return dense, x


@pytest.mark.parametrize("depth", [1, 3, 4, 70])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_words_of_four_channels(depth: int, dtype: str) -> None:
    """Sums that contain those ahead of them are separated modulo 2^32."""
    dense, x = words_of_four_channels(depth, dtype)
    assert_c_equals_reference([dense], [[x]], for_target(products_armv6m.QDENSE, CORTEX_M0PLUS))


def test_other_processors_keep_the_portable_kernel() -> None:
    operator = pointwise(np.ones((8, 8)))
    refusal = registered("qconv2d_armv6m").refuses(operator, PORTABLE)
    assert refusal is not None and refusal.reason == "the processor must have Armv6-M's instruction set"
    assert getattr(select(operator, CORTEX_M0PLUS), "kernel", None) == "qconv2d_armv6m"
    for smaller in ({"optimize": "size"}, {"least_flash": True}):
        chosen = select(operator, replace(CORTEX_M0PLUS, **smaller))
        assert getattr(chosen, "kernel", None) == "qconv2d_i8"


def test_calibrated_instructions_choose() -> None:
    """Models of portable kernels say less than they execute here, and must not be taken for that."""
    operator = pointwise(np.random.default_rng(1).integers(-128, 128, (8, 64)))
    own, portable = (registered(name).implement(operator, CORTEX_M0PLUS, StoredRows()) for name in
                     ("qconv2d_armv6m", "qconv2d_pairs_i8"))  # fmt: skip
    assert own.instructions > portable.instructions
    assert getattr(select(operator, CORTEX_M0PLUS), "kernel", None) == "qconv2d_armv6m"
    modelled = replace(CORTEX_M0PLUS.instruction_set, ranks_calibrated=False)
    chosen = select(operator, replace(CORTEX_M0PLUS, instruction_set=modelled))
    assert getattr(chosen, "kernel", None) == "qconv2d_pairs_i8"


def test_what_the_kernels_refuse() -> None:
    grouped = QConv2d(
        inputs=(image(1, 2, 2, 4),), outputs=(image(1, 2, 2, 4),), weight=np.ones((4, 1, 1, 2), np.int8),
        weight_scale=np.ones(4, np.float32), bias=np.zeros(4, np.int32),
        window=replace(pointwise(np.ones((1, 1))).window), low=-128, high=127, groups=2,
    )  # fmt: skip
    for kernel, reason in (
        (products_armv6m.QCONV2D, "the convolution must not have groups"),
        (depthwise_armv6m.KERNEL, "every input channel must be a group of its own with one output channel"),
    ):
        refusal = kernel.refuses(grouped, CORTEX_M0PLUS)
        assert refusal is not None and refusal.reason == reason


def test_a_pixel_may_be_written_where_it_was_read() -> None:
    operator = pointwise(np.arange(64).reshape(8, 8))
    operator = replace(operator, outputs=(image(1, 1, 7, 8, scale=40.0),))
    implementation = products_armv6m.QCONV2D.implement(operator, CORTEX_M0PLUS, StoredRows())
    assert implementation.in_place == (0,)
    x = elements(operator.inputs[0], 3)
    np.testing.assert_array_equal(run_in_place(implementation, [x], 0), implementation.reference([x])[0])
