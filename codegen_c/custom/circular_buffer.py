"""CIRCULAR_BUFFER of TensorFlow Lite Micro: the last rows of its input, the oldest first, kept as a state.

int8[1, 1, W, C] -> int8[1, R, W, C], zeros at first. Option cycles_max: the network after it runs once in so many runs;
only 1 is supported. Without the option TensorFlow Lite Micro decides by the number of rows: 1 for 5, 13 and 25 rows.
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
        return f"{shapes}; both must be int8 of rank 4"
    if given.shape[0] != 1 or given.shape != (1, 1, *result.shape[2:]):
        return f"{shapes}; the input must be one row of the output"
    if (given.scale, given.zero_point) != (result.scale, result.zero_point):
        return "its input and output have different scales"
    cycles = call.options.get("cycles_max", 0)
    if not isinstance(cycles, int) or cycles > 1:
        return f"the network after it runs once in {cycles} runs; compile the two parts as separate models"
    if cycles < 1 and result.shape[1] not in _ROWS_OF_EVERY_RUN:
        return f"without option 'cycles_max', {result.shape[1]} rows do not say if the network after it runs each time"
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
