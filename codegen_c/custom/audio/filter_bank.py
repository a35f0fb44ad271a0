"""SignalFilterBank: sum the energies of a spectrum in channels that overlap with the next channel.

uint32[B], weights int16[W], unweights int16[W], and int16[C + 1] each of: first bin, first weight, number of bins of a
channel -> uint64[C]. A bin is added to a channel with its weight, and to the next channel with its unweight. Option:
num_channels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomTensor

_TABLES = ("weights", "unweights", "frequency_starts", "weight_starts", "widths")


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=(number(call, "num_channels"),), dtype="uint64")]


def _refuses(call: CustomCall) -> str | None:
    """Return the reason why a call is not supported. Also checks that all indices are in range."""
    bins, tables = tensor(call, 0).shape, [tensor(call, place).constant for place in range(1, 6)]
    known = [table for table in tables if table is not None and table.ndim == 1]
    if len(bins) != 1 or len(known) < len(tables):
        return "its input is not a vector, or its weights and indices are not constant vectors"
    weights, unweights, *places = known
    channels = number(call, "num_channels") + 1
    if channels < 2 or any(len(place) < channels for place in places):
        return f"it has {channels - 1} channels, but indices for {min(map(len, places)) - 1}"
    begins, starts, widths = (place[:channels].astype(np.int64) for place in places)
    read = widths > 0
    lowest = min(begins[read].min(initial=0), starts[read].min(initial=0), widths.min())
    most = (begins + widths)[read].max(initial=0), (starts + widths)[read].max(initial=0)
    if lowest < 0 or most[0] > bins[0] or most[1] > min(len(weights), len(unweights)):
        return f"its channels read beyond {bins[0]} bins or {min(len(weights), len(unweights))} weights"
    return None


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    energy, *tables = (array for array in inputs if array is not None)
    weights, unweights, begins, starts, widths = (table.astype(np.int64) for table in tables)
    wide, sums, carried = energy.astype(np.uint64), list[np.uint64](), np.uint64(0)
    for begin, start, width in zip(begins, starts, widths, strict=True):
        part = wide[begin : begin + width]
        with np.errstate(over="ignore"):
            sums.append(carried + (weights[start : start + width].astype(np.uint64) * part).sum(dtype=np.uint64))
        carried = (unweights[start : start + width].astype(np.uint64) * part).sum(dtype=np.uint64)
    return [np.array(sums[1 : number(call, "num_channels") + 1], np.uint64)]


def _code(call: CustomCall) -> CustomCode:
    widths = tensor(call, 5).constant
    assert widths is not None, "refused before"
    return CustomCode(
        inputs=("input", *_TABLES),
        outputs=("output",),
        body=f"tvm_ext_audio_filter_bank(input, {', '.join(_TABLES)}, output, {number(call, 'num_channels')});",
        headers={**header("tvm_ext_audio_filter_bank.h"), **header("tvm_ext_audio_bits.h")},
        macs=2 * int(widths.sum(dtype=np.int64)),
    )


OPERATORS = (
    CustomOperator(
        name="SignalFilterBank", outputs=_outputs, reference=_reference, code=_code,
        refuses=first_of(of_types(["uint32", *["int16"] * 5], ["uint64"]), _refuses),
    ),
)  # fmt: skip
