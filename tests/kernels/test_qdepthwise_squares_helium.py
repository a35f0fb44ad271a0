"""Helium depthwise convolutions of squares, on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.operators.kinds import QConv2d, Window
from codegen_c.targets.helium.kernels import depthwise_squares as depthwise_squares_helium
from tests.kernels.helium import M55, assert_same_bytes, implementation, takes
from tests.kernels.helium_samples import LIMITED, SAME, SAMPLES, conv, tensor
from tests.kernels.quantized import FEW, seeds

KERNEL = depthwise_squares_helium.KERNEL
WINDOWS = (
    SAME,
    Window(kernel=(3, 1), padding=(1, 0, 1, 0)),
    Window(kernel=(2, 3), padding=(0, 2, 1, 0)),
    Window(kernel=(1, 1)),
)


@st.composite
def depthwise(draw: st.DrawFn) -> QConv2d:
    shape = (draw(st.sampled_from((1, 1, 2))), draw(st.integers(1, 27)), draw(st.integers(5, 14)))
    channels = draw(st.sampled_from((4, 8, 16, 24, 64)) | st.integers(4, 40))
    dtype, zero_point = draw(st.sampled_from((("int8", 3), ("uint8", 130))))
    source = tensor(*shape, channels, zero_point=zero_point, dtype=dtype)
    output = tensor(*shape, channels, scale=0.2, zero_point=draw(st.sampled_from((-128, 0, 5))))
    return conv(source, output, draw(st.sampled_from(WINDOWS)), groups=channels)


@settings(FEW, max_examples=2)
@given(st.lists(depthwise().filter(takes(KERNEL)), min_size=1, max_size=4), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(KERNEL, operators, seed)


@pytest.mark.parametrize("name", sorted(name for name in SAMPLES if name.startswith("squares")))
def test_samples_take_the_input_s_place(name: str) -> None:
    operator = SAMPLES[name][1]
    assert isinstance(operator, QConv2d)
    assert implementation(KERNEL, operator, StoredRows()).in_place == (0,)


def test_samples_have_every_form() -> None:
    """One shift and several; blocks along rows and down, last columns of two strips; half and whole vectors."""
    every = "".join(implementation(KERNEL, SAMPLES[n][1], StoredRows()).function.helpers for n in SAMPLES if "squ" in n)
    for member in (".narrow = 0", ".narrow = 5", ".is_narrow = true", ".is_narrow = false", ".has_down = true"):
        assert member in every
    for group in (8, 12, 16):
        assert f".group = {group}," in every


def test_scratch_beside_a_small_input_is_a_fifth_of_it() -> None:
    """A keyword network's map of 8,000 B: two tiles of rows instead of three, for 416 B of its arena."""
    made = implementation(KERNEL, SAMPLES["squares_five"][1], StoredRows())
    assert 2 * 5 * 64 + 9 * 64 < made.scratch_bytes <= 25 * 5 * 64 // 5


WIDER = Window(kernel=(5, 5), padding=(1, 2, 3, 2))
LOWER = Window(kernel=(3, 3), padding=(2, 1, 0, 1))
REFUSED = {
    "stride": (LIMITED, {"window": Window(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 1))}, "must be 1"),
    "padding": (LIMITED, {"window": LOWER}, "one row of padding"),
    "window": (LIMITED, {"window": WIDER}, "three rows"),
    "limits": (LIMITED, {"low": -100}, "all its values"),
    "columns": (conv(tensor(1, 9, 4, 16), tensor(1, 9, 4, 16), SAME, groups=16), {}, "five columns"),
    "ties": (
        conv(tensor(1, 7, 8, 16, scale=0.5), tensor(1, 7, 8, 16, scale=0.25), SAME, groups=16, has_ties=True),
        {},
        "halfway",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_refuses(name: str) -> None:
    operator, changes, reason = REFUSED[name]
    refusal = KERNEL.refuses(replace(operator, **changes), M55)
    assert refusal is not None and reason in refusal.reason
