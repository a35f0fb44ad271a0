"""CIRCULAR_BUFFER of TensorFlow Lite Micro: the last rows that came in, oldest first; they are a state.

int8[1, 1, W, C] -> int8[1, R, W, C], begins as zeros. Option cycles_max: the network behind it runs every so many
times; only 1 is taken. Without it TensorFlow Lite Micro guesses by the number of rows: 1 of 5, 13 and 25.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.custom.contract import Array, CustomCall, CustomCode, CustomOperator, CustomState, CustomTensor

_ROWS_OF_EVERY_RUN = (5, 13, 25)


def _outputs(call: CustomCall) -> Sequence[CustomTensor]:
    return [CustomTensor(shape=call.outputs[0].shape, dtype="int8")]


def _refuses(call: CustomCall) -> str | None:
    (given, *others), result = call.present, call.outputs[0]
    shapes = f"its input is {given}, its output {result}"
    if others or given.dtype != "int8" or result.dtype != "int8" or len(given.shape) != 4 or len(result.shape) != 4:
        return f"{shapes}; int8 of rank 4 is needed"
    if given.shape[0] != 1 or given.shape != (1, 1, *result.shape[2:]):
        return f"{shapes}; a row of the output is needed"
    if (given.scale, given.zero_point) != (result.scale, result.zero_point):
        return "its input and output have different scales"
    cycles = call.options.get("cycles_max", 0)
    if not isinstance(cycles, int) or cycles > 1:
        return f"the network behind it runs once in {cycles} times; run the parts as models of their own"
    if cycles < 1 and result.shape[1] not in _ROWS_OF_EVERY_RUN:
        return f"neither option 'cycles_max' nor {result.shape[1]} rows say that the network behind it runs each time"
    return None


def _states(call: CustomCall) -> Sequence[CustomState]:
    _, rows, *row = call.outputs[0].shape
    return [CustomState(name="kept", initial=np.zeros((1, rows, *row), np.int8))]


def _reference(call: CustomCall, inputs: Sequence[Array | None]) -> Sequence[Array]:
    given, kept = (array for array in inputs if array is not None)
    rows = np.concatenate([kept[:, 1:], given], 1)
    return [rows, rows]


def _code(call: CustomCall) -> CustomCode:
    _, rows, *row = call.outputs[0].shape
    size = int(np.prod(row))
    body = [
        f"memcpy(output, &kept[{size}], {(rows - 1) * size}u);" if rows > 1 else "(void)kept;",
        f"memcpy(&output[{(rows - 1) * size}], input, {size}u);",
        f"memcpy(kept_next, output, {rows * size}u);",
    ]
    return CustomCode(
        inputs=("input",), outputs=("output",), body="\n".join(body), includes=("string.h",), instructions=rows * size
    )


OPERATORS = (
    CustomOperator(
        name="CIRCULAR_BUFFER", outputs=_outputs, reference=_reference, code=_code, states=_states, refuses=_refuses
    ),
)
