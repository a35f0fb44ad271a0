"""SignalFramer: cut a stream of samples into overlapping frames. Samples of a frame that is not yet full are a state.

int16[..., F * frame_step] -> int16[..., F, frame_size], and bool[]: True if all frames are full. A frame that is not
full is zero; TensorFlow Lite Micro leaves its memory unchanged. Option prefill: zeros precede the first samples.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.c_text.text import loop
from codegen_c.custom.audio.common import elements, first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    *outer, count = tensor(call, 0).shape
    size, step = _frame(call)
    return [CustomTensor(shape=(*outer, count // step, size), dtype="int16"), CustomTensor(shape=(), dtype="bool")]


def _frame(call: CustomCall) -> tuple[int, int]:
    return number(call, "frame_size"), number(call, "frame_step")


def _refuses(call: CustomCall) -> str | None:
    shape, (size, step) = tensor(call, 0).shape, _frame(call)
    if not shape or min(size, step) < 1 or shape[-1] < step or shape[-1] % step:
        return f"frames of {size} samples, one every {step}, do not fit an input of {list(shape)}"
    if call.options.get("prefill") and step > size:
        return f"option 'prefill' is not possible: its step {step} is longer than its frame {size}"
    return None


def _rows(call: CustomCall) -> int:
    shape = tensor(call, 0).shape
    return elements(tensor(call, 0)) // shape[-1]


def _states(call: CustomCall) -> Sequence[CustomState]:
    (size, step), rows = _frame(call), _rows(call)
    held = size - step if call.options.get("prefill") else 0
    return [
        CustomState(name="kept", initial=np.zeros((rows, -(-size // step) * step), np.int16)),
        CustomState(name="held", initial=np.array([held], np.int32)),
    ]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    given, kept, held = (array for array in inputs if array is not None)
    (size, step), after, count = _frame(call), kept.copy(), int(held[0])
    steps = given.reshape(len(kept), -1, step)
    frames, full = np.zeros((len(kept), steps.shape[1], size), np.int16), True
    for frame in range(steps.shape[1]):
        after[:, count : count + step] = steps[:, frame]
        count += step
        full = full and count >= size
        if count >= size:
            frames[:, frame] = after[:, :size]
            count -= step
            after[:, :count] = after[:, step : step + count].copy()
    frames = frames.reshape(*given.shape[:-1], steps.shape[1], size)
    return [frames, np.array(full), after, np.array([count], np.int32)]


def _code(call: CustomCall) -> CustomCode:
    (size, step), rows, count = _frame(call), _rows(call), tensor(call, 0).shape[-1]
    capacity, frames = -(-size // step) * step, count // step
    each = [
        "held_next[0] = held[0];",
        f"valid[0] = tvm_ext_audio_frames(&input[row * {count}], &kept_next[row * {capacity}], held_next, "
        f"&output[row * {frames * size}], {frames}, {size}, {step});",
    ]
    body = [
        f"memcpy(kept_next, kept, sizeof(*kept) * {rows * capacity}u);",
        *loop("row", rows, each),
    ]
    return CustomCode(
        inputs=("input",),
        outputs=("output", "valid"),
        body="\n".join(body),
        headers=header("tvm_ext_audio_frames.h"),
        instructions=rows * (capacity + frames * (2 * size + step)),
    )


OPERATORS = (
    CustomOperator(
        name="SignalFramer", outputs=_outputs, reference=_reference, code=_code, states=_states,
        refuses=first_of(of_types(["int16"], ["int16", "bool"]), _refuses),
    ),
)  # fmt: skip
