"""SignalFilterBankSpectralSubtraction: subtract the noise from channels. The estimate of the noise is a state.

uint32[C] -> uint32[C], and the estimate uint32[C]. Options: num_channels; smoothing and one_minus_smoothing for even
channels, alternate_smoothing and alternate_one_minus_smoothing for odd channels; smoothing_bits,
spectral_subtraction_bits, min_signal_remaining, clamping.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor

_BITS = ("smoothing_bits", "spectral_subtraction_bits")
_FACTORS = (
    "smoothing", "alternate_smoothing", "one_minus_smoothing", "alternate_one_minus_smoothing", "min_signal_remaining",
)  # fmt: skip


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="uint32")] * 2


def _refuses(call: CustomCall) -> str | None:
    shape, channels = tensor(call, 0).shape, number(call, "num_channels")
    if shape != (channels,):
        return f"its input has shape {list(shape)}; it must be {[channels]}"
    for name in _BITS:
        if not 0 <= number(call, name) < 32:
            return f"option {name!r} is {number(call, name)}; allowed is 0 to 31"
    negative = [name for name in _FACTORS if number(call, name) < 0]
    return f"option {negative[0]!r} is negative" if negative else None


def _states(call: CustomCall) -> Sequence[CustomState]:
    return [CustomState(name="noise", initial=np.zeros(tensor(call, 0).shape, np.uint32))]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    energy, before = (array.astype(np.uint64) for array in inputs if array is not None)
    even, odd, even_rest, odd_rest, remaining = (np.uint64(number(call, name)) for name in _FACTORS)
    smoothing, fraction = (np.uint64(number(call, name)) for name in _BITS)
    is_odd = np.arange(energy.size) % 2 == 1
    raised = (energy << smoothing).astype(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        sums = raised * np.where(is_odd, odd, even) + before * np.where(is_odd, odd_rest, even_rest)
    mean = (sums >> fraction).astype(np.uint32).astype(np.uint64)
    taken = np.minimum(mean, raised)
    estimate = (taken if call.options.get("clamping") else mean).astype(np.uint32)
    least = ((energy * remaining) >> fraction).astype(np.uint32)
    return [np.maximum(((raised - taken) >> smoothing).astype(np.uint32), least), estimate, estimate]


def _code(call: CustomCall) -> CustomCode:
    even, odd, even_rest, odd_rest, remaining = (f"{number(call, name)}u" for name in _FACTORS)
    smoothing, fraction = (number(call, name) for name in _BITS)
    clamps = int(bool(call.options.get("clamping")))
    body = [
        "static const tvm_ext_audio_noise settings = {",
        f"    {{{even}, {odd}}}, {{{even_rest}, {odd_rest}}}, {remaining}, {smoothing}, {fraction}, {clamps}",
        "};",
        f"tvm_ext_audio_subtract(input, noise, output, estimate, noise_next, {number(call, 'num_channels')}, "
        "&settings);",
    ]
    return CustomCode(
        inputs=("input",),
        outputs=("output", "estimate"),
        body="\n".join(body),
        headers={**header("tvm_ext_audio_filter_bank.h"), **header("tvm_ext_audio_bits.h")},
        macs=3 * number(call, "num_channels"),
    )


OPERATORS = (
    CustomOperator(
        name="SignalFilterBankSpectralSubtraction", outputs=_outputs, reference=_reference, code=_code, states=_states,
        refuses=first_of(of_types(["uint32"], ["uint32", "uint32"]), _refuses),
    ),
)  # fmt: skip
