"""Convolutions by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, StoredRows, Target
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared import common_shift, own_rounding
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.targets.dsp.kernels import convolution as convolution_dsp
from tests.kernels.dsp import CORTEX_M4, CORTEX_M7, SOME, for_cortex_m4, take_only_shift, taken_by
from tests.kernels.harness import HOST, PORTABLE, registered, run_in_place
from tests.kernels.on_target import for_target
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import convolutions


@SOME
@given(st.lists(taken_by(convolution_dsp.QCONV2D, convolutions()), min_size=1, max_size=5), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def image(*shape: int, dtype: str = "int8", scale: float = 0.1, zero_point: int = 3) -> TensorType:
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero_point))


def pointwise(weight: np.ndarray, *, dtype: str = "int8", scale: float = 0.013) -> QConv2d:
    """7 pixels, so that the last group of three holds one."""
    channels, depth = weight.shape
    return QConv2d(
        inputs=(image(1, 1, 7, depth, dtype=dtype),), outputs=(image(1, 1, 7, channels, scale=400.0),),
        weight=weight.reshape(channels, 1, 1, depth).astype(np.int8),
        weight_scale=np.linspace(scale, 2 * scale, channels).astype(np.float32),
        bias=np.arange(channels, dtype=np.int32) * 100, window=Window(kernel=(1, 1)), low=-128, high=127,
    )  # fmt: skip


def halfway_pointwise() -> list[QConv2d]:
    """Return layers with factors of a power of two: one sum of 16 lies halfway between two results."""
    weights = [np.random.default_rng(k).integers(-2, 3, (k, 8)) for k in (7, 16, 40)]
    return [
        replace(
            pointwise(weight),
            inputs=(image(1, 1, 7, 8, scale=0.5),), outputs=(image(1, 1, 7, len(weight), scale=0.5),),
            weight_scale=np.full(len(weight), 2.0**-4, np.float32), bias=np.arange(len(weight), dtype=np.int32),
        )
        for weight in weights
    ]  # fmt: skip


def windowed(depth: int, kernel: tuple[int, int], *, dtype: str, channels: int, columns: int) -> QConv2d:
    """Windows with padding on all sides. Rows of taps have an odd number of elements if the sizes are odd."""
    rows, (r, s) = 5, kernel
    padding = (r // 2, s // 2, r // 2, s // 2)
    weight = np.random.default_rng(depth).integers(-100, 100, (channels, *kernel, depth))
    return QConv2d(
        inputs=(image(1, rows, columns, depth, dtype=dtype),),
        outputs=(image(1, rows, columns, channels, dtype=dtype, scale=2.0),), weight=weight.astype(np.int8),
        weight_scale=np.linspace(0.01, 0.02, channels).astype(np.float32),
        bias=np.arange(channels, dtype=np.int32) * 50, window=Window(kernel=kernel, padding=padding),
        low=int(np.iinfo(dtype).min), high=int(np.iinfo(dtype).max),
    )  # fmt: skip


SINGLES_OF_ROWS = [
    windowed(depth, kernel, dtype=dtype, channels=channels, columns=columns)
    for channels, columns in ((8, 4), (6, 6), (3, 5))
    for depth, kernel, dtype in (
        (3, (3, 3), "int8"), (1, (5, 5), "uint8"), (5, (2, 3), "int8"), (7, (5, 3), "int8"), (1, (1, 3), "int8"),
        (2, (3, 3), "uint8"),
    )
]  # fmt: skip
"""If rows have an odd number of elements, the last elements of two rows share a cell in every form of product."""


def test_single_elements_of_two_rows_share_a_cell() -> None:
    units = [convolution_dsp.packed(operator)[0].units for operator in SINGLES_OF_ROWS[:6]]
    assert units == [7, 7, 8, 27, 1, 5]
    code_of = [code(operator) for operator in SINGLES_OF_ROWS]
    assert any("tvm_ext_dsp_quads_" in text for text in code_of[:6])
    assert any("tvm_ext_dsp_blocks_" in text for text in code_of[6:12])
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(SINGLES_OF_ROWS)]
    assert_c_equals_reference(SINGLES_OF_ROWS, inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def with_output(operator: QConv2d, dtype: str) -> QConv2d:
    """The same with outputs of a type, their steps so small that both ends saturate."""
    limits, shape = np.iinfo(dtype), operator.output.shape
    output = image(*shape, dtype=dtype, scale=1.5, zero_point=limits.min + 100)
    return replace(operator, outputs=(output,), low=int(limits.min), high=int(limits.max))


def code(operator: QConv2d) -> str:
    implementation = convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows())
    return implementation.function.helpers


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(
    ("weight", "joined"),
    [
        (np.full((6, 8), -127), True),
        (np.full((6, 8), 127), True),
        (np.full((6, 8), -128), False),  # -128 * 256 - 128 takes more than 16 bits
        (np.full((2, 1040), 127), False),  # 255 * 127 * 1040 takes more than 24 bits, as do 128 * 127 * 1040
        (np.array([[-128] * 8, [127] * 8]), True),  # -128 may stand in the lower byte
    ],
)
def test_channels_are_joined_only_where_that_is_exact(dtype: str, weight: np.ndarray, joined: bool) -> None:
    operator = pointwise(weight, dtype=dtype)
    assert ("tvm_ext_dsp_blocks_joined" in code(operator)) == joined
    x = elements(operator.inputs[0], 1)
    x[0, 0, 0], x[0, 0, 1] = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert_c_equals_reference([operator], [[x]], for_cortex_m4(convolution_dsp.QCONV2D))


def test_ties_go_to_the_portable_rounding() -> None:
    """Scales that are powers of two make sums of exactly half a step."""
    operator = pointwise(np.arange(-20, 20).reshape(5, 8))
    scales = np.full(5, 2.0**-3, np.float32)
    tied = replace(
        operator, inputs=(image(1, 1, 7, 8, scale=0.5),), outputs=(image(1, 1, 7, 5, scale=4.0),), weight_scale=scales
    )
    assert ".by_high_product = true" in code(operator) and ".by_high_product = false" in code(tied)
    x = elements(tied.inputs[0], 2)
    assert_c_equals_reference([tied], [[x]], for_cortex_m4(convolution_dsp.QCONV2D))


def test_pairs_of_channels_are_finished_in_registers() -> None:
    """An odd number of them and elements of a part of the type are not."""
    even, odd = pointwise(np.arange(-24, 24).reshape(6, 8)), pointwise(np.arange(-20, 20).reshape(5, 8))
    assert "tvm_ext_dsp_blocks" in code(even) and "tvm_ext_dsp_blocks" not in code(odd)
    part = replace(even, low=3)
    assert "tvm_ext_dsp_blocks" not in code(part)
    assert_c_equals_reference([part], [[elements(part.inputs[0], 4)]], for_cortex_m4(convolution_dsp.QCONV2D))


TWICE = [
    replace(
        pointwise(weight),
        rounding="tflite",
        weight_scale=(factor * 2.0 ** np.array([0, 1, 2, 0, 1, 2])).astype(np.float32),
        outputs=(image(1, 1, 7, 6, zero_point=zero_point),),
    )
    for depth in (4, 23, 64)
    for weight in (
        np.random.default_rng(depth).integers(-100, 100, (6, depth)),
        np.where(np.arange(depth) == 0, -128, np.random.default_rng(depth).integers(-100, 100, (6, depth))),
    )
    for factor, zero_point in ((0.0013, -128), (0.0007, 5), (2.0**-9, 5), (0.0011, 127))
]
"""Layers with TensorFlow Lite's roundings: weights joined and not, elements clamped by a ReLU and not, halves."""


def names_of_two_roundings(blocks: str = "blocks") -> set[str]:
    return {f"{blocks}_{joined}s8_twice{signed}(" for joined in ("", "joined_") for signed in ("", "_signed")}


def test_two_roundings_are_finished_in_registers() -> None:
    assert all(any(name in code(operator) for operator in TWICE) for name in names_of_two_roundings())
    unsigned = replace(with_output(pointwise(np.full((4, 8), 3)), "uint8"), rounding="tflite")
    assert "tvm_ext_dsp_blocks" not in code(unsigned)
    operators = [*TWICE, unsigned]
    inputs = [[elements(operator.inputs[0], 9)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def test_cores_that_start_two_instructions_have_functions_of_their_own() -> None:
    """They read two cells ahead, for which scratch has room; a build for size does without them."""
    ours = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M7, StoredRows()) for operator in TWICE]
    assert all("tvm_ext_dsp_blocks_dual_" in one.function.helpers for one in ours)
    plain = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in TWICE]
    assert all(a.scratch_bytes == b.scratch_bytes + 8 for a, b in zip(ours, plain, strict=True))
    small = convolution_dsp.QCONV2D.implement(TWICE[0], replace(CORTEX_M7, optimize="size"), StoredRows())
    assert "tvm_ext_dsp_blocks_dual_" not in small.function.helpers
    inputs = [[elements(operator.inputs[0], 9)] for operator in TWICE]
    assert_c_equals_reference(list(TWICE), inputs, for_target(convolution_dsp.QCONV2D, CORTEX_M7))


def fours(depth: int, dtype: str, result: str) -> QConv2d:
    """7 pixels of 8 channels."""
    return with_output(pointwise(np.random.default_rng(depth).integers(-100, 100, (8, depth)), dtype=dtype), result)


QUADS = [
    fours(depth, dtype, result)
    for depth, dtype, result in (
        (4, "int8", "int8"), (8, "uint8", "uint8"), (10, "int8", "uint8"), (36, "uint8", "int8"), (64, "int8", "int8"),
        (92, "uint8", "uint8"),
    )
]  # fmt: skip
"""Layers of two pixels by four channels, the last pixel alone; one unit, whole rounds of the loop and others."""
QUADS_TWICE = [
    replace(
        pointwise(np.random.default_rng(depth).integers(-100, 100, (8, depth))),
        rounding=rounding,
        weight_scale=(factor * 2.0 ** (np.arange(8) % 3)).astype(np.float32),
        outputs=(image(1, 1, 7, 8, zero_point=zero_point),),
    )
    for depth in (4, 23, 64)
    for factor, zero_point, rounding in (
        (0.0013, -128, "tflite"), (0.0007, 5, "tflite"), (2.0**-9, 5, "tflite"), (0.00131713, 5, "litert"),
    )
]  # fmt: skip
"""Layers as TensorFlow Lite Micro and LiteRT round: with a ReLU in one rounding, without one in two, halves among the
sums. No products of LiteRT's layers are near a half of an element: it rounds these up or down."""


def in_quads(operators: Sequence[QConv2d]) -> list[Implementation]:
    """These layers, each in blocks of two pixels."""
    calls = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in operators]
    assert all("tvm_ext_dsp_quads_" in call.function.helpers for call in calls)
    return calls


@pytest.mark.parametrize("shift", own_rounding.SHIFTS)
def test_two_pixels_by_four_channels(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take_only_shift(shift, monkeypatch)
    helpers = "".join(call.function.helpers for call in in_quads(QUADS))
    assert all(f"tvm_ext_dsp_quads_{kind}_{shift}(" in helpers for kind in ("s8", "u8"))
    inputs = [[elements(operator.inputs[0], 8)] for operator in QUADS]
    assert_c_equals_reference(list(QUADS), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def test_two_pixels_by_four_channels_as_tensorflow_lite_rounds() -> None:
    """Layers with a ReLU and layers of LiteRT round once; all others round twice."""
    names = [call.function.helpers for call in in_quads(QUADS_TWICE)]
    for layer, text in zip(QUADS_TWICE, names, strict=True):
        twice = layer.rounding == "tflite" and layer.output.quantization.zero_point > -128
        assert ("tvm_ext_dsp_quads_s8_twice_signed(" in text) == twice
    inputs = [[elements(operator.inputs[0], 9)] for operator in QUADS_TWICE]
    assert_c_equals_reference(list(QUADS_TWICE), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def test_blocks_of_two_pixels_are_for_speed_and_whole_fours() -> None:
    operator = QUADS[4]
    small = convolution_dsp.QCONV2D.implement(operator, replace(CORTEX_M4, optimize="size"), StoredRows())
    assert "tvm_ext_dsp_blocks_" in small.function.helpers, "a function of eight units is long"
    dual = convolution_dsp.QCONV2D.implement(operator, CORTEX_M7, StoredRows())
    assert "tvm_ext_dsp_blocks_dual_" in dual.function.helpers
    assert "tvm_ext_dsp_blocks_" in code(SINGLES[0]), "six channels"
    large = replace(operator, bias=np.full(8, (1 << 23) - 1, np.int32))
    assert "tvm_ext_dsp_quads_" not in code(large), "256 times a sum does not fit"


def test_a_bias_may_make_joined_sums_too_large() -> None:
    """Channel B's sums come 256 times: with its bias, they must be less than 2^23."""
    operator = pointwise(np.full((2, 8), 3), scale=0.5)
    assert "tvm_ext_dsp_blocks_joined" in code(operator)
    large = replace(operator, bias=np.array([0, (1 << 23) - 1], np.int32))
    assert "tvm_ext_dsp_blocks" not in code(large)
    assert_c_equals_reference([large], [[elements(large.inputs[0], 5)]], for_cortex_m4(convolution_dsp.QCONV2D))


SINGLES = [
    with_output(pointwise(np.random.default_rng(depth).integers(-100, 100, (6, depth)), dtype=dtype), result)
    for depth, dtype, result in (
        (4, "int8", "int8"), (8, "uint8", "uint8"), (10, "int8", "uint8"), (36, "uint8", "int8"), (64, "int8", "int8"),
        (92, "uint8", "uint8"),
    )
]  # fmt: skip
"""Layers of 7 pixels; an even number of units and an odd one, whole rounds of the loop and others."""


def made_of_singles(monkeypatch: pytest.MonkeyPatch) -> list[Implementation]:
    """These layers, the last pixel by itself."""
    monkeypatch.setattr(convolution_dsp, "SINGLE_LEAST_SAVED", 0)
    calls = [convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows()) for operator in SINGLES]
    assert all("tvm_ext_dsp_single_1x2" in call.function.helpers for call in calls)
    return calls


def test_a_pixel_left_over_with_two_roundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_dsp, "SINGLE_LEAST_SAVED", 0)
    joined = [operator for operator in TWICE if "blocks_joined" in code(operator)]
    assert joined and all("single_1x2_s8_twice" in code(operator) for operator in joined)
    inputs = [[elements(operator.inputs[0], 10)] for operator in joined]
    assert_c_equals_reference(list(joined), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_a_pixel_left_over_is_computed_by_itself(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take_only_shift(shift, monkeypatch)
    made_of_singles(monkeypatch)
    inputs = [[elements(operator.inputs[0], 8)] for operator in SINGLES]
    assert_c_equals_reference(list(SINGLES), inputs, for_cortex_m4(convolution_dsp.QCONV2D))


def test_a_pixel_is_left_over_where_that_saves_much() -> None:
    def has_single(operator: QConv2d, target: Target = CORTEX_M4, at_once: int | None = None) -> bool:
        made = convolution_dsp.QCONV2D.implement(operator, target, StoredRows(at_once=at_once))
        return "tvm_ext_dsp_single" in made.function.helpers

    def of_rows(rows: int, columns: int) -> QConv2d:
        sides = {"inputs": image(1, rows, columns, 64), "outputs": image(1, rows, columns, 66, scale=400.0)}
        return replace(pointwise(np.full((66, 64), 3)), **{key: (kind,) for key, kind in sides.items()})

    assert has_single(of_rows(1, 7)) and has_single(of_rows(7, 7))
    assert not has_single(pointwise(np.full((4, 8), 3))), "little is saved"
    assert not has_single(of_rows(1, 6)) and not has_single(of_rows(1, 8)), "two fill most of a group"
    assert not has_single(of_rows(7, 7), replace(CORTEX_M4, optimize="size"))
    assert has_single(of_rows(6, 8), at_once=2) and not has_single(of_rows(6, 8)), "groups end with a call"


def test_other_processors_keep_the_portable_kernel() -> None:
    operator = pointwise(np.ones((8, 8)))
    refusal = registered("qconv2d_dsp").refuses(operator, HOST)
    assert refusal is not None and refusal.reason == "the processor must have the DSP extension"
    assert getattr(select(operator, CORTEX_M4), "kernel", None) == "qconv2d_dsp"
    assert getattr(select(operator, PORTABLE), "kernel", None) in ("qconv2d_i8", "qconv2d_pairs_i8")


def test_a_pixel_may_be_written_where_it_was_read() -> None:
    operator = pointwise(np.arange(64).reshape(8, 8))
    operator = replace(operator, outputs=(image(1, 1, 7, 8, scale=40.0),))
    implementation = convolution_dsp.QCONV2D.implement(operator, CORTEX_M4, StoredRows())
    assert implementation.in_place == (0,)
    x = elements(operator.inputs[0], 3)
    np.testing.assert_array_equal(run_in_place(implementation, [x], 0), implementation.reference([x])[0])
