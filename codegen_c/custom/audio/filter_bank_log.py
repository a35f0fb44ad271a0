"""SignalFilterBankLog: natural logarithms of channels, from a table of 128 steps.

uint32[C] -> int16[C]. Options: output_scale, by which a logarithm is multiplied; input_correction_bits, by which a
channel is shifted left first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

import numpy as np

from codegen_c.custom.audio.common import elements, first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

_STEPS = 128
# log2(1 + x) - x in units of 2^-16.
_TABLE = np.array([round(65536 * (log2(1 + i / _STEPS) - i / _STEPS)) for i in range(_STEPS + 1)], np.uint16)
_LN_2 = 45426  # in units of 2^-16


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="int16")]


def _refuses(call: CustomCall) -> str | None:
    shape, bits = tensor(call, 0).shape, number(call, "input_correction_bits")
    if len(shape) != 1:
        return f"its input has shape {list(shape)}; it must be a vector"
    return None if 0 <= bits < 32 else f"option 'input_correction_bits' is {bits}; allowed is 0 to 31"


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    (energy,) = inputs
    assert energy is not None, "it is there"
    bits, scale = number(call, "input_correction_bits"), number(call, "output_scale")
    return [np.array([_logarithm((x << bits) & 0xFFFFFFFF, scale) for x in energy.tolist()], np.int16)]


def _logarithm(x: int, scale: int) -> int:
    """Return the scaled natural logarithm: the integer part of log2, plus the table interpolated, times ln 2."""
    if x <= 1:
        return 0
    whole = x.bit_length() - 1
    above = x - (1 << whole)
    fraction = above << (16 - whole) if whole < 16 else above >> (whole - 16)
    step = fraction >> 9
    low, high = int(_TABLE[step]), int(_TABLE[step + 1])
    bend = ((high - low) * (fraction - 512 * step)) >> 16
    natural = (_LN_2 * ((whole << 16) + fraction + low + bend) + 32768) >> 16
    return min(((scale * natural + 32768) & 0xFFFFFFFF) >> 16, 32767)


def _code(call: CustomCall) -> CustomCode:
    channels, scale = elements(tensor(call, 0)), number(call, "output_scale") & 0xFFFFFFFF
    bits = number(call, "input_correction_bits")
    return CustomCode(
        inputs=("input",),
        outputs=("output",),
        body=f"tvm_ext_audio_logarithm(input, steps, output, {channels}, {scale}u, {bits});",
        headers={**header("tvm_ext_audio_filter_bank.h"), **header("tvm_ext_audio_bits.h")},
        tables={"steps": _TABLE},
        instructions=channels * 60,
    )


OPERATORS = (
    CustomOperator(
        name="SignalFilterBankLog", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["uint32"], ["int16"]), _refuses),
    ),
)  # fmt: skip
