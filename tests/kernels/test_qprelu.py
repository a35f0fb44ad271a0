"""PReLU of quantized tensors: C against the reference byte for byte, and the reference against real arithmetic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.elementwise import qprelu
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import QPrelu
from codegen_c.targets.dsp.kernels import elementwise as elementwise_dsp
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from tests.kernels.dsp import CORTEX_M4, for_cortex_m4
from tests.kernels.harness import HOST
from tests.kernels.helium import assert_same_bytes
from tests.kernels.quantized import FEW, assert_c_equals_reference, clamps, elements, limits, real, seeds, tensor_types
from tests.kernels.test_qbinary import byte_tensor

SHAPES = (
    ((1, 5, 3, 8), (8,)), ((1, 5, 3, 8), (1, 3, 8)), ((2, 3, 6), (6,)), ((1, 4, 4, 16), (1, 1, 1, 16)), ((3, 12), ()),
    ((1, 3, 2, 11), (11,)),
)  # fmt: skip


@st.composite
def prelus(draw: st.DrawFn) -> QPrelu:
    shape, of_slopes = draw(st.sampled_from(SHAPES))
    output = draw(tensor_types(shape, scale=draw(st.sampled_from((0.02, 0.1)))))
    low, high = draw(clamps(output))
    slopes = np.random.default_rng(draw(seeds)).normal(0.2, 0.4, of_slopes).astype(np.float32)
    source = draw(tensor_types(shape, scale=draw(st.sampled_from((0.03, 0.09)))))
    return QPrelu(inputs=(source,), outputs=(output,), slopes=slopes, low=low, high=high)


@FEW
@given(st.lists(prelus(), min_size=3, max_size=8), seeds)
def test_prelus(operators: list[QPrelu], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    results = assert_c_equals_reference(list(operators), inputs, qprelu.KERNEL)
    for operator, (x,), result in zip(operators, inputs, results, strict=True):
        value = real(operator.inputs[0], x)
        exact = np.where(value < 0, value * operator.slopes, value)
        assert operator.output.quantization is not None
        steps = exact / np.float32(operator.output.quantization.scale) + operator.output.quantization.zero_point
        assert np.abs(result - np.clip(steps, operator.low, operator.high)).max() < 0.54


@FEW
@given(st.lists(prelus(), min_size=3, max_size=6), seeds)
def test_vectors_give_the_same_bytes(operators: list[QPrelu], seed: int) -> None:
    assert_same_bytes(elementwise_helium.PRELU, [o for o in operators if o.slopes.size >= 4], seed)
    whole = [replace(o, low=limits(o.output)[0], high=limits(o.output)[1]) for o in operators if o.slopes.size % 4 == 0]
    inputs = [[elements(operator.inputs[0], seed)] for operator in whole]
    if whole:
        assert_c_equals_reference(list(whole), inputs, for_cortex_m4(elementwise_dsp.PRELU))


def test_kernels_are_chosen_by_slopes_and_bounds() -> None:
    tensor = byte_tensor((1, 2, 2, 8), 0.1)
    operator = QPrelu(inputs=(tensor,), outputs=(tensor,), slopes=np.full(8, 0.2, np.float32), low=-128, high=127)
    assert getattr(select(operator, CORTEX_M4), "kernel", None) == "qprelu_dsp"
    assert getattr(select(replace(operator, low=0), CORTEX_M4), "kernel", None) == "qprelu_i8"
    steep = replace(operator, slopes=np.full(8, 9.0, np.float32))
    assert not isinstance(select(steep, HOST), Implementation)
