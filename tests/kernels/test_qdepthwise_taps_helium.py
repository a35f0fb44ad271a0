"""Helium depthwise convolutions with taps in lanes, on the host: the portable kernels' bytes, whatever the shape."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import StoredRows
from codegen_c.operators.kinds import QConv2d, Window
from codegen_c.targets.helium.kernels import depthwise_taps as depthwise_taps_helium
from tests.kernels.helium import M55, assert_same_bytes, implementation, takes
from tests.kernels.helium_samples import SAMPLES, conv, tensor
from tests.kernels.quantized import FEW, seeds
from tests.kernels.test_qdepthwise_helium import depthwise


@settings(FEW, max_examples=3)
@given(st.lists(depthwise().filter(takes(depthwise_taps_helium.KERNEL)), min_size=1, max_size=4), seeds)
def test_depthwise(operators: list[QConv2d], seed: int) -> None:
    assert_same_bytes(depthwise_taps_helium.KERNEL, operators, seed)


@pytest.mark.parametrize(
    ("shape", "window", "reason"),
    [
        ((1, 9, 5, 16), Window(kernel=(3, 3), padding=(1, 1, 1, 1)), "six columns"),
        ((1, 12, 9, 16), Window(kernel=(9, 1)), "at most 8 rows"),
        ((1, 9, 64, 16), Window(kernel=(3, 3), strides=(1, 9)), "508 bytes"),
        ((1, 9, 8, 1), Window(kernel=(3, 3), padding=(1, 1, 1, 1)), "16 elements"),
    ],
)
def test_refuses(shape: tuple[int, int, int, int], window: Window, reason: str) -> None:
    _, height, width, channels = shape
    size = (
        (height + window.padding[0] + window.padding[2] - window.kernel[0]) // window.strides[0] + 1,
        (width + window.padding[1] + window.padding[3] - window.kernel[1]) // window.strides[1] + 1,
    )
    operator = conv(tensor(*shape), tensor(1, *size, channels, scale=0.2), window, groups=channels)
    refusal = depthwise_taps_helium.KERNEL.refuses(operator, M55)
    assert refusal is not None and reason in refusal.reason


@pytest.mark.parametrize(("stored", "rows"), [(StoredRows(), 2), (StoredRows(at_once=1), 1)])
def test_one_row_of_a_call_is_not_computed_twice(stored: StoredRows, rows: int) -> None:
    operator = SAMPLES["taps"][1]
    assert isinstance(operator, QConv2d)
    made = implementation(depthwise_taps_helium.KERNEL, operator, stored)
    assert made.spatial is not None and made.spatial.rows_still_read == rows - 1
