"""SignalPCAN: automatic gain control of channels by their noise, then compression.

uint32[C], noise uint32[C], table int16[125] -> uint32[C]. The table contains the gains of noises 0, 1 and 2, then a
parabola for each number of bits. Gains and results have 6 fractional bits. Option: snr_shift.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import elements, first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

TABLE_LENGTH = 125
"""Number of table entries that a 32-bit noise may read."""


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="uint32")]


def _refuses(call: CustomCall) -> str | None:
    shapes = [tensor(call, place).shape for place in range(3)]
    if any(len(shape) != 1 for shape in shapes) or shapes[0] != shapes[1]:
        return f"its inputs have shapes {', '.join(str(list(shape)) for shape in shapes)}; they must be vectors"
    if shapes[2][0] < TABLE_LENGTH:
        return f"its table of gains has {shapes[2][0]} entries; it needs {TABLE_LENGTH}"
    shift = number(call, "snr_shift")
    return None if 0 <= shift < 64 else f"option 'snr_shift' is {shift}; allowed is 0 to 63"


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    energy, noise, table = (array for array in inputs if array is not None)
    gains = [_gain(x, table.tolist()) & 0xFFFFFFFF for x in noise.tolist()]
    found = list[int]()
    for x, gain in zip(energy.tolist(), gains, strict=True):
        ratio = ((x * gain) & 0xFFFFFFFFFFFFFFFF) >> number(call, "snr_shift") & 0xFFFFFFFF
        found.append((ratio * ratio) >> 20 if ratio < 2 << 12 else (ratio >> 6) - 64)
    return [np.array(found, np.uint32)]


def _gain(x: int, table: list[int]) -> int:
    """Return the gain of a noise: from the table up to 2, else from the parabola for its number of bits."""
    if x <= 2:
        return table[x]
    bits = x.bit_length()
    start, slope, bend = table[4 * bits - 6 : 4 * bits - 3]
    fraction = (x << (11 - bits) if bits < 11 else x >> (bits - 11)) & 0x3FF
    steps = (((bend * fraction) >> 5) + slope * 32) * fraction
    return int(np.array(((steps + (1 << 14)) >> 15) + start).astype(np.int16))


def _code(call: CustomCall) -> CustomCode:
    channels = elements(tensor(call, 0))
    return CustomCode(
        inputs=("input", "noise", "table"),
        outputs=("output",),
        body=f"tvm_ext_audio_pcan(input, noise, table, output, {channels}, {number(call, 'snr_shift')});",
        headers={**header("tvm_ext_audio_filter_bank.h"), **header("tvm_ext_audio_bits.h")},
        instructions=channels * 70,
    )


OPERATORS = (
    CustomOperator(
        name="SignalPCAN", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["uint32", "uint32", "int16"], ["uint32"]), _refuses),
    ),
)  # fmt: skip
