"""SignalOverlapAdd: add up overlapping frames. Samples to which later frames are added are a state.

T[..., F, N] -> T[..., F * frame_step]. T is int16, which saturates, or float32. Option: frame_step, at most N.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.c_text.text import loop
from codegen_c.custom.audio.common import elements, header, number, tensor
from codegen_c.custom.audio.fft_tables import SUFFIXES, retyped
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor

_HEADER = "tvm_ext_audio_overlap_s16.h"


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    *outer, frames, _ = tensor(call, 0).shape
    shape = (*outer, frames * number(call, "frame_step"))
    return [CustomTensor(shape=shape, dtype=tensor(call, 0).dtype)]


def _refuses(call: CustomCall) -> str | None:
    given, step = tensor(call, 0), number(call, "frame_step")
    if given.dtype not in ("int16", "float32") or len(given.shape) < 2 or len(call.inputs) != 1:
        return f"its input is {given}; it must be frames of int16 or float32"
    return None if 1 <= step <= given.shape[-1] else f"option 'frame_step' is {step}; frames have {given.shape[-1]}"


def _rows(call: CustomCall) -> int:
    given = tensor(call, 0)
    return elements(given) // (given.shape[-1] * given.shape[-2])


def _states(call: CustomCall) -> Sequence[CustomState]:
    given = tensor(call, 0)
    return [CustomState(name="kept", initial=np.zeros((_rows(call), given.shape[-1]), given.dtype))]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    given, kept = (array for array in inputs if array is not None)
    step, after = number(call, "frame_step"), kept.copy()
    frames = given.reshape(len(kept), *given.shape[-2:])
    output = np.zeros((len(kept), frames.shape[1], step), given.dtype)
    for frame in range(frames.shape[1]):
        if given.dtype == np.int16:
            sums = np.clip(after.astype(np.int32) + frames[:, frame], -32768, 32767).astype(np.int16)
        else:
            sums = after + frames[:, frame]
        output[:, frame] = sums[:, :step]
        after = np.concatenate([sums[:, step:], np.zeros((len(kept), step), given.dtype)], 1)
    return [output.reshape(*given.shape[:-2], -1), after]


def _code(call: CustomCall) -> CustomCode:
    given, step, rows = tensor(call, 0), number(call, "frame_step"), _rows(call)
    frames, size = given.shape[-2:]
    each = [
        f"tvm_ext_audio_overlap_{SUFFIXES[given.dtype]}(&input[row * {frames * size}], &kept_next[row * {size}], "
        f"&output[row * {frames * step}], {frames}, {size}, {step});",
    ]
    body = [
        f"memcpy(kept_next, kept, sizeof(*kept) * {rows * size}u);",
        *loop("row", rows, each),
    ]
    text = retyped(header(_HEADER)[_HEADER], given.dtype)
    return CustomCode(
        inputs=("input",),
        outputs=("output",),
        body="\n".join(body),
        headers={retyped(_HEADER, given.dtype): text, **header("tvm_ext_audio_samples.h")},
        instructions=rows * frames * size * 10,
    )


OPERATORS = (
    CustomOperator(
        name="SignalOverlapAdd", outputs=_outputs, reference=_reference, code=_code, states=_states, refuses=_refuses
    ),
)
