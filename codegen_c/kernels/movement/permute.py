"""Kernel for permuted axes, or a part of them, any element type: between the model's layout and the internal one.

An image converted to channels-last is computed row by row: each row reads one row of every channel, so all of the
input. An image converted to channels-first may take its input row by row: each row becomes one row of every channel, so
the whole output is written from the first row on, and no whole image with channels last has to be stored.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, loop
from codegen_c.kernels.contract import (
    Accumulating,
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.shared.copies import loop_instructions
from codegen_c.kernels.shared.window import ROW_PARAMETERS, accumulated, slot, strided
from codegen_c.operators.kinds import Array, Permute
from tvm_ext.core.row_access import RowAccess

CHANNELS_LAST, CHANNELS_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
OVERLAP_INSTRUCTIONS = 14
"""Modelled: comparison of pointers, because vectors load before earlier results are stored, and the outer loop."""
MOVE_INSTRUCTIONS, ROW_INSTRUCTIONS = 2, 3
"""Modelled: load and store of an element, and the loop around a run along the innermost axis."""


def implement(operator: Permute, target: Target, stored: StoredRows) -> Implementation:
    ctype = C_TYPES[operator.output.dtype]
    by_rows = operator.axes == CHANNELS_LAST and operator.inputs[0].shape[0] == 1
    rows = operator.output.shape[1] if by_rows else 0
    parameters = (
        Parameter(name="input", ctype=ctype, role="input"),
        Parameter(name="output", ctype=ctype, role="output"),
        *(ROW_PARAMETERS if by_rows else ()),
    )
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=_rows(operator, stored) if by_rows else _body(operator)),
        reference=lambda inputs: [reference(operator, inputs[0])],
        instructions=_instructions(operator, target),
        spatial=Spatial(output_rows=rows, inputs=(RowAccess.whole(rows),)) if by_rows else None,
        accumulating=_accumulating(operator),
        exact=True,
    )


def _accumulating(operator: Permute) -> Accumulating | None:
    """Return the conversion of a whole image to channels-first that takes rows; None for any other permutation."""
    source = operator.inputs[0].shape
    is_whole = operator.output.num_elements == operator.inputs[0].num_elements
    if operator.axes != CHANNELS_FIRST or source[0] != 1 or source[1] < 2 or not is_whole:
        return None
    return Accumulating(row_counts=(source[1],), implement=lambda _, stored: _by_input_rows(operator, stored))


def _by_input_rows(operator: Permute, stored: StoredRows) -> Implementation:
    """Return the kernel that writes each row of the input to one row of every channel."""
    ctype = C_TYPES[operator.output.dtype]
    _, rows, columns, channels = operator.inputs[0].shape
    definitions, place = strided({"c": rows * columns, "h": columns, "w": 1}, 0)
    pixel = loop("c", channels, [f"output[{place}] = *row++;"])
    image = [
        f"const {ctype} *row = &input[{slot('h', stored.input(0))} * row_elements];",
        *loop("w", columns, pixel),
    ]
    definitions.append(f"const int32_t row_elements = {columns * channels};")
    parameters = (
        Parameter(name="input", ctype=ctype, role="input"),
        Parameter(name="output", ctype=ctype, role="output"),
        *ROW_PARAMETERS,
    )
    body = "\n".join([*definitions, "for (int32_t h = row_begin; h < row_end; ++h) {", block(image), "}"])
    return Implementation(
        kernel=f"{KERNEL.name}_by_rows",
        function=CFunction(parameters=parameters, body=body),
        reference=lambda inputs: [reference(operator, inputs[0])],
        instructions=rows * columns * (loop_instructions(channels, MOVE_INSTRUCTIONS) + ROW_INSTRUCTIONS),
        spatial=accumulated(rows),
        exact=True,
    )


def _instructions(operator: Permute, target: Target) -> int:
    """Return the modelled instructions of runs along the innermost axis with an extent; vectors where strides allow."""
    extents = zip(operator.output.shape, strides_of(operator), strict=True)
    extent, stride = next(((e, s) for e, s in reversed(list(extents)) if e > 1), (1, 1))
    runs = operator.output.num_elements // extent
    a_vector, lanes = target.instruction_set.strided_loads.get(stride), 16 // np.dtype(operator.output.dtype).itemsize
    if a_vector is None or extent <= lanes:
        return runs * (loop_instructions(extent, MOVE_INSTRUCTIONS) + ROW_INSTRUCTIONS)
    vectors = (extent - 1) // lanes  # the last lanes would load beyond the end of the input
    return runs * (vectors * a_vector + (extent - vectors * lanes) * MOVE_INSTRUCTIONS + OVERLAP_INSTRUCTIONS)


def reference(operator: Permute, array: Array) -> Array:
    """The operator in numpy, bit for bit."""
    first = operator.first or (0,) * array.ndim
    taken = tuple(slice(begin, begin + extent) for begin, extent in zip(first, operator.output.shape, strict=True))
    return np.ascontiguousarray(array.transpose(operator.axes)[taken])


def strides_of(operator: Permute) -> list[int]:
    """Return the strides of the output's axes in the input, in elements."""
    source = operator.inputs[0].shape
    return [int(np.prod(source[axis + 1 :], dtype=np.int64)) for axis in operator.axes]


def origin_of(operator: Permute) -> int:
    """Return the input element that becomes the output's first element."""
    return sum(first * stride for first, stride in zip(operator.first, strides_of(operator), strict=False))


def _body(operator: Permute) -> str:
    """Return one loop for each output axis with an extent; the output is written in order."""
    extents = zip(operator.output.shape, strides_of(operator), strict=True)
    loops = [(f"i{out}", extent, stride) for out, (extent, stride) in enumerate(extents) if extent > 1]
    definitions, index = strided({name: stride for name, _, stride in loops}, origin_of(operator))
    lines = [f"*output++ = input[{index}];"]
    for name, extent, _ in reversed(loops):
        lines = loop(name, extent, lines)
    return "\n".join([*definitions, *lines])


def _rows(operator: Permute, stored: StoredRows) -> str:
    """Return the code of an image's rows, pixel by pixel; the channels of a pixel come from as many planes."""
    _, _, columns, channels = operator.output.shape
    _, row, _, plane = strides_of(operator)
    definitions, place = strided({"c": plane, "h": row, "w": 1}, origin_of(operator))
    pixel = loop("c", channels, [f"*row++ = input[{place}];"])
    ctype = C_TYPES[operator.output.dtype]
    image = [
        f"{ctype} *row = &output[{slot('h', stored.output)} * row_elements];",
        *loop("w", columns, pixel),
    ]
    definitions.append(f"const int32_t row_elements = {columns * channels};")
    return "\n".join([*definitions, "for (int32_t h = row_begin; h < row_end; ++h) {", block(image), "}"])


KERNEL = Kernel(name="permute", title="Permutation of axes of any element type", operator=Permute, implement=implement)
