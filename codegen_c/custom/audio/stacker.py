"""SignalStacker: concatenate the last input vectors, once in several runs. The stack is a state.

int16[num_channels] -> int16[num_channels * (left + 1 + right)], and bool[]: True if the stack is full. A stack that is
not full is zero; TensorFlow Lite Micro leaves its memory unchanged. Options: num_channels, stacker_left_context,
stacker_right_context, stacker_step. The first vector is preceded by `left` copies of itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.audio.common import first_of, header, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor


def _contexts(call: CustomCall) -> tuple[int, int, int]:
    left, right, step = (number(call, f"stacker_{name}") for name in ("left_context", "right_context", "step"))
    return left, right, step


def _size(call: CustomCall) -> int:
    left, right, _ = _contexts(call)
    return number(call, "num_channels") * (left + right + 1)


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=(_size(call),), dtype="int16"), CustomTensor(shape=(), dtype="bool")]


def _refuses(call: CustomCall) -> str | None:
    shape, channels, (left, right, step) = tensor(call, 0).shape, number(call, "num_channels"), _contexts(call)
    if shape != (channels,) or not channels:
        return f"its input has shape {list(shape)}; it must be {[channels]}"
    if min(left, right) < 0 or not 1 <= step <= left + right + 1:
        return f"option 'stacker_step' is {step}; a stack has {left} + 1 + {right} vectors"
    return None


def _states(call: CustomCall) -> Sequence[CustomState]:
    return [
        CustomState(name="kept", initial=np.zeros(_size(call), np.int16)),
        CustomState(name="held", initial=np.zeros(1, np.int32)),
        CustomState(name="begun", initial=np.zeros(1, np.bool_)),
    ]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    given, kept, held, begun = (array for array in inputs if array is not None)
    left, _, step = _contexts(call)
    times = 1 if begun[0] else left + 1
    stack, size = np.concatenate([kept[: held[0]], *[given] * times]), kept.size
    full, output = len(stack) >= size, np.zeros(size, np.int16)
    if full:
        output, stack = stack[:size], stack[step * given.size :]
    after = kept.copy()
    after[: len(stack)] = stack
    return [output, np.array(full), after, np.array([len(stack)], np.int32), np.ones(1, np.bool_)]


def _code(call: CustomCall) -> CustomCode:
    channels, size, (left, _, step) = number(call, "num_channels"), _size(call), _contexts(call)
    body = [
        f"memcpy(kept_next, kept, sizeof(*kept) * {size}u);",
        "held_next[0] = held[0];",
        "begun_next[0] = begun[0];",
        f"valid[0] = tvm_ext_audio_stack(input, kept_next, held_next, begun_next, output, {channels}, {left}, {size}, "
        f"{channels * step});",
    ]
    return CustomCode(
        inputs=("input",),
        outputs=("output", "valid"),
        body="\n".join(body),
        headers=header("tvm_ext_audio_frames.h"),
        instructions=3 * size,
    )


OPERATORS = (
    CustomOperator(
        name="SignalStacker", outputs=_outputs, reference=_reference, code=_code, states=_states,
        refuses=first_of(of_types(["int16"], ["int16", "bool"]), _refuses),
    ),
)  # fmt: skip
