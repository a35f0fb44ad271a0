"""SignalDelay: delay samples by a number of samples. The samples in between are a state, zeros at first.

int16[..., N] -> int16[..., N]. Option: delay_length.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.c_text.text import loop
from codegen_c.custom.audio.common import elements, first_of, number, of_types, tensor
from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=tensor(call, 0).shape, dtype="int16")]


def _refuses(call: CustomCall) -> str | None:
    shape, length = tensor(call, 0).shape, number(call, "delay_length")
    return None if shape and length >= 1 else f"an input of {list(shape)} cannot be delayed by {length} samples"


def _states(call: CustomCall) -> Sequence[CustomState]:
    shape = (*tensor(call, 0).shape[:-1], number(call, "delay_length"))
    return [CustomState(name="kept", initial=np.zeros(shape, np.int16))]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    given, kept = (array for array in inputs if array is not None)
    both = np.concatenate([kept, given], -1)
    return [both[..., : given.shape[-1]], both[..., given.shape[-1] :]]


def _code(call: CustomCall) -> CustomCode:
    count, length = tensor(call, 0).shape[-1], number(call, "delay_length")
    old, new = min(count, length), max(0, count - length)  # output samples from earlier runs, and from this run
    row = [
        f"const int16_t *const from = &input[row * {count}];",
        f"const int16_t *const before = &kept[row * {length}];",
        f"memcpy(&output[row * {count}], before, sizeof(*kept) * {old}u);",
    ]
    if new:
        row += [f"memcpy(&output[row * {count} + {old}], from, sizeof(*kept) * {new}u);"]
    if length > count:
        row += [
            f"memcpy(&kept_next[row * {length}], &before[{count}], sizeof(*kept) * {length - count}u);",
            f"memcpy(&kept_next[row * {length} + {length - count}], from, sizeof(*kept) * {count}u);",
        ]
    else:
        row += [f"memcpy(&kept_next[row * {length}], &from[{new}], sizeof(*kept) * {length}u);"]
    body = "\n".join(loop("row", elements(tensor(call, 0)) // count, row))
    return CustomCode(
        inputs=("input",), outputs=("output",), body=body, includes=("string.h",),
        instructions=2 * elements(tensor(call, 0)),
    )  # fmt: skip


OPERATORS = (
    CustomOperator(
        name="SignalDelay", outputs=_outputs, reference=_reference, code=_code, states=_states,
        refuses=first_of(of_types(["int16"], ["int16"]), _refuses),
    ),
)  # fmt: skip
