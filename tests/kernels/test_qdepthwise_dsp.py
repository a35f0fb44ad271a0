"""Depthwise convolutions by the DSP extension: C with its plain fallback against the portable kernel's reference."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kept, StoredRows
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.registry import select
from codegen_c.kernels.shared import common_shift
from codegen_c.kernels.shared.own_rounding import OwnRounding
from codegen_c.kernels.shared.two_roundings import ScaledSums
from codegen_c.operators.kinds import QConv2d, Quantization, TensorType, Window
from codegen_c.targets.dsp.kernels import depthwise as depthwise_dsp
from codegen_c.targets.dsp.kernels.depthwise import Plane
from tests.kernels.dsp import CORTEX_M4, SOME, for_cortex_m4, take_only_shift, taken_by
from tests.kernels.harness import run_in_place
from tests.kernels.quantized import assert_c_equals_reference, elements, seeds
from tests.kernels.test_qconv2d import convolutions


@SOME
@given(st.lists(taken_by(depthwise_dsp.QDEPTHWISE, convolutions(depthwise=True)), min_size=1, max_size=5), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(tensor, seed + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def tall(
    channels: int,
    window: Window,
    *,
    rows: int = 23,
    columns: int = 5,
    out: tuple[int, int],
    dtype: str = "int8",
    scale: float = 0.9,
) -> QConv2d:
    """More rows than a strip has."""
    random, limits = np.random.default_rng(7), np.iinfo(dtype)

    def image(height: int, width: int, scale: float) -> TensorType:
        quantization = Quantization(scale=scale, zero_point=limits.min + 123)
        return TensorType(shape=(1, height, width, channels), dtype=dtype, quantization=quantization)

    return QConv2d(
        inputs=(image(rows, columns, 0.1),), outputs=(image(*out, scale),),
        weight=random.integers(-128, 128, (channels, *window.kernel, 1)).astype(np.int8),
        weight_scale=np.linspace(0.01, 0.02, channels).astype(np.float32),
        bias=np.arange(channels, dtype=np.int32), window=window, low=int(limits.min), high=int(limits.max),
        groups=channels,
    )  # fmt: skip


SAME = Window(kernel=(3, 3), padding=(1, 1, 1, 1))
WINDOWS = [
    (SAME, (23, 5)),
    (replace(SAME, strides=(2, 2)), (12, 3)),
    (replace(SAME, strides=(2, 1), dilation=(2, 1), padding=(1, 1, 2, 1)), (11, 5)),
    (Window(kernel=(1, 2), strides=(3, 1)), (8, 4)),
    (replace(SAME, dilation=(2, 2), padding=(2, 2, 2, 2)), (23, 5)),
    (Window(kernel=(3, 3), dilation=(1, 3), padding=(1, 3, 1, 2)), (23, 4)),
    (Window(kernel=(2, 4), dilation=(1, 5), padding=(1, 7, 0, 11)), (23, 8)),
]


@pytest.mark.parametrize("channels", [4, 11])
@pytest.mark.parametrize(("window", "out"), WINDOWS)
def test_rows_that_stay_from_strip_to_strip(channels: int, window: Window, out: tuple[int, int]) -> None:
    operator = tall(channels, window, out=out)
    assert Plane.of(operator, StoredRows()).strip < out[0] or out[0] == 8
    assert depthwise_dsp.QDEPTHWISE.refuses(operator, CORTEX_M4) is None
    x = elements(operator.inputs[0], 1)
    assert_c_equals_reference([operator], [[x]], for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def test_rows_narrower_than_their_phases() -> None:
    """A phase without a column has no code, not even of one that does nothing."""
    windows = (Window(kernel=(1, 1), dilation=(1, 2)), Window(kernel=(2, 2), dilation=(1, 5)))
    operators = [tall(4, window, rows=3, columns=6, out=(2, 1)) for window in windows]
    inputs = [[elements(operator.inputs[0], 3)] for operator in operators]
    assert_c_equals_reference(operators, inputs, for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def test_phases_of_one_column_read_no_words_of_pairs() -> None:
    """The words of a second column would be unused variables, which the compiler flags of this test refuse."""
    operator = tall(4, Window(kernel=(1, 4), dilation=(1, 2)), rows=3, columns=8, out=(3, 2))
    assert_c_equals_reference([operator], [[elements(operator.inputs[0], 3)]], for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def test_a_row_that_padding_makes_longer_does_not_take_the_place_of_its_input() -> None:
    window = Window(kernel=(2, 2), dilation=(1, 2), padding=(0, 2, 1, 1))
    operator = tall(8, window, rows=1, columns=5, out=(1, 6))
    assert depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows()).in_place == ()
    assert_c_equals_reference([operator], [[elements(operator.inputs[0], 3)]], for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def in_groups(depth: int, channels: int, window: Window, out: tuple[int, int]) -> QConv2d:
    """8 input channels in groups of `depth` of them, each with as many output channels as given."""
    groups = 8 // depth
    layer = tall(groups * channels, window, out=out)
    weight = np.random.default_rng(depth).integers(-128, 128, (groups * channels, *window.kernel, depth))
    source = replace(layer.inputs[0], shape=(1, 23, 5, 8))
    return replace(layer, inputs=(source,), weight=weight.astype(np.int8), groups=groups)


def test_groups_of_few_channels() -> None:
    shapes = ((1, 3), (2, 2), (4, 1), (4, 5))
    operators = [in_groups(*shape, *window) for shape in shapes for window in (WINDOWS[0], WINDOWS[3])]
    assert all(depthwise_dsp.QCONV2D_GROUPS.refuses(operator, CORTEX_M4) is None for operator in operators)
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(operators)]
    assert_c_equals_reference(operators, inputs, for_cortex_m4(depthwise_dsp.QCONV2D_GROUPS))


def padded(taps: int, columns: int, stride: int, dtype: str) -> QConv2d:
    """As many output columns as input columns, or half of them."""
    half = taps // 2
    window = Window(kernel=(taps, taps), strides=(stride, stride), padding=(half, half, half, half))
    out = ((11 - 1) // stride + 1, (columns - 1) // stride + 1)
    return tall(5, window, rows=11, columns=columns, out=out, dtype=dtype, scale=1.8)


STRIPS = [
    *(padded(3, *rest) for rest in ((2, 1, "int8"), (5, 1, "uint8"), (6, 1, "int8"))),
    *(padded(3, *rest) for rest in ((4, 2, "int8"), (9, 2, "uint8"), (12, 2, "int8"))),
    tall(5, replace(SAME, strides=(2, 2)), columns=9, rows=13, out=(7, 5), dtype="int8", scale=1.8),
    *(
        padded(taps, *rest) for taps in (5, 7) for rest in
        ((4, 1, "int8"), (5, 1, "uint8"), (6, 1, "int8"), (7, 1, "uint8"),
         (7, 2, "int8"), (9, 2, "uint8"), (12, 2, "int8"))
    ),
    replace(padded(5, 6, 1, "int8"), window=Window(kernel=(5, 5), dilation=(2, 1), padding=(4, 2, 4, 2))),
]  # fmt: skip
"""Layers that have functions for strips: of rows in pairs, and of four columns at a time, the last of which overlap."""


def strips(shift: int, monkeypatch: pytest.MonkeyPatch) -> list[Implementation]:
    """STRIPS as they are with this shift for all channels."""
    take_only_shift(shift, monkeypatch)
    return [depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows()) for operator in STRIPS]


@pytest.mark.parametrize("shift", common_shift.SHIFTS)
def test_strips(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "".join(made.function.helpers for made in strips(shift, monkeypatch))
    for kind in ("s8", "u8"):
        assert f", {kind}, {shift})" in code
        assert re.search(rf"TVM_EXT_DSP_DEFINE_STRIP3_BY_TWOS\([^)]*, {kind}, {shift}\)", code)
        assert all(f"strip_{taps}_{stride}_{kind}_{shift}(" in code for taps in (5, 7) for stride in (1, 2))
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(STRIPS)]
    assert_c_equals_reference(list(STRIPS), inputs, for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def rounded_twice(operator: QConv2d, factors: tuple[float, float]) -> QConv2d:
    """The same with TensorFlow Lite's roundings and a ReLU. factors: of the first channel and the last one."""
    (source,), output = operator.inputs, operator.output
    assert source.quantization is not None and output.quantization is not None
    scale = np.geomspace(*factors, output.shape[3]) * output.quantization.scale / source.quantization.scale
    output = replace(output, dtype="int8", quantization=replace(output.quantization, zero_point=-128))
    return replace(
        operator, outputs=(output,), weight_scale=scale.astype(np.float32), low=-128, high=127, rounding="tflite"
    )


STRIPS_TWICE = [
    rounded_twice(operator, factors)
    for operator in (*STRIPS, tall(8, replace(SAME, strides=(2, 2)), out=(12, 3), dtype="int8", scale=1.8))
    for factors in ((0.0031, 0.0307), (2.0**-16, 2.0**-6))
    if operator.inputs[0].dtype == "int8"
]
"""Of strips and of single columns; the smallest factors get multipliers of fewer bits, or the general code."""


def test_factors_without_scaled_sums_get_roundings_of_their_own() -> None:
    """Factors far apart, of which the largest need multiples of their sums."""
    layers = [rounded_twice(operator, (2.0**-20, 0.09)) for operator in STRIPS if operator.inputs[0].dtype == "int8"]
    exact, bounds = qconv2d.requantize(layers[0]), qconv2d.bounds(layers[0])
    form = OwnRounding.of(exact, *bounds)
    assert ScaledSums.of(exact, *bounds) is None and form is not None and form.bits.max() > 0
    code = depthwise_dsp.QDEPTHWISE.implement(layers[0], CORTEX_M4, StoredRows()).function.helpers
    assert "TVM_EXT_DSP_DEFINE_STRIP3(" in code
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(layers)]
    assert_c_equals_reference(layers, inputs, for_cortex_m4(depthwise_dsp.QDEPTHWISE))


def test_strips_with_two_roundings() -> None:
    made = [depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows()) for operator in STRIPS_TWICE]
    code = "".join(one.function.helpers for one in made)
    assert ", s8, 10)" in code and "multipliers[(2 * k) + 1]" in code and "tvm_ext_dsp_saturate_s8_10(" in code
    assert all(f"strip_{taps}_{stride}_s8_10(" in code for taps in (5, 7) for stride in (1, 2))
    inputs = [[elements(operator.inputs[0], seed)] for seed, operator in enumerate(STRIPS_TWICE)]
    assert_c_equals_reference(list(STRIPS_TWICE), inputs, for_cortex_m4(depthwise_dsp.QDEPTHWISE))


@pytest.mark.parametrize("stored", [StoredRows(at_once=1), StoredRows(at_once=3), StoredRows(pitch=9)])
def test_strips_of_rows_at_once(stored: StoredRows) -> None:
    """One row has no pair; offsets are those of the pitch."""
    code = depthwise_dsp.QDEPTHWISE.implement(STRIPS[1], CORTEX_M4, stored).function.helpers
    assert ("TVM_EXT_DSP_DEFINE_STRIP3(" in code) == (stored.at_once != 1)
    assert stored.pitch is None or "9, 45, 2, 1, 1, u8" in code


@pytest.mark.parametrize(("stored", "shift", "leaves_one"), [(4, 0, False), (4, 2, False), (4, 3, True), (3, 0, True)])
def test_two_rows_that_lie_apart_in_a_ring(stored: int, shift: int, leaves_one: bool) -> None:
    """The end of the ring cuts calls of two rows, which are computed one by one there: pairs leave them."""
    operator = tall(5, SAME, rows=12, columns=6, out=(12, 6), dtype="int8", scale=1.8)
    rows = StoredRows(output=Kept(stored=stored, shift=shift), at_once=2)
    code = depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, rows).function.helpers
    assert "TVM_EXT_DSP_DEFINE_STRIP3(" in code and ("if (count > done)" in code) == leaves_one


def test_strips_begin_with_a_call_and_end_with_a_ring() -> None:
    calls = depthwise_dsp.strips_of_calls(8, StoredRows(at_once=3, output=Kept(stored=5, shift=4)), 2)
    assert [(one.begin, one.end, one.is_first) for one in calls] == [
        (0, 1, True), (1, 3, False), (3, 5, True), (5, 6, False), (6, 8, True)
    ]  # fmt: skip
    whole = depthwise_dsp.strips_of_calls(5, StoredRows(), 2)
    assert [(one.begin, one.end, one.is_first) for one in whole] == [(0, 2, True), (2, 4, False), (4, 5, False)]


def test_calls_that_expand_rows_again_are_modelled() -> None:
    """Each call expands all rows of its first strip, and a row without a second costs more than half of a pair."""
    operator = tall(5, SAME, rows=12, columns=6, out=(12, 6), dtype="int8", scale=1.8)

    def modelled(stored: StoredRows) -> int:
        return depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, stored).instructions

    assert modelled(StoredRows()) < modelled(StoredRows(at_once=4)) < modelled(StoredRows(at_once=2))
    rings = [StoredRows(at_once=4, output=Kept(stored=rows)) for rows in (8, 6, 5)]
    assert modelled(StoredRows(at_once=4)) == modelled(rings[0]) < modelled(rings[1]) < modelled(rings[2])


def test_layers_for_size_share_one_function() -> None:
    smaller = replace(CORTEX_M4, optimize="size")
    code = depthwise_dsp.QDEPTHWISE.implement(STRIPS[0], smaller, StoredRows()).function.helpers
    assert "STRIP3" not in code and "tvm_ext_dsp_saturate_s8_" in code


@pytest.mark.parametrize("padding", [(1, 1, 0, 1), (0, 1, 1, 1), (0, 1, 0, 1)])
def test_a_part_of_the_rows_may_take_the_place_of_the_input(padding: tuple[int, int, int, int]) -> None:
    """Rows at the top, at the bottom and inside of an image, as several cores share it, and their halos."""
    rows = 23 + padding[0] + padding[2] - 2
    operator = tall(8, replace(SAME, padding=padding), out=(rows, 5))
    implementation = depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows())
    assert implementation.in_place == (0,)
    x = elements(operator.inputs[0], 3)
    expected = implementation.reference([x])[0]
    found = run_in_place(implementation, [x], 0).reshape(-1)[: expected.size]
    np.testing.assert_array_equal(found, expected.reshape(-1))


def test_the_output_may_take_the_place_of_the_input() -> None:
    operator = tall(8, SAME, out=(23, 5))
    implementation = depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows())
    assert implementation.in_place == (0,)
    x = elements(operator.inputs[0], 3)
    np.testing.assert_array_equal(run_in_place(implementation, [x], 0), implementation.reference([x])[0])


def test_channels_computed_twice_must_not_be_overwritten() -> None:
    operator = tall(11, SAME, out=(23, 5))
    assert depthwise_dsp.QDEPTHWISE.implement(operator, CORTEX_M4, StoredRows()).in_place == ()


def test_it_is_chosen_on_a_cortex_m4() -> None:
    assert getattr(select(tall(8, SAME, out=(23, 5)), CORTEX_M4), "kernel", None) == "qdepthwise_dsp"
    assert getattr(select(tall(3, SAME, out=(23, 5)), CORTEX_M4), "kernel", None) == "qdepthwise_i8"
