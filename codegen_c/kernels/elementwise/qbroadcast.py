"""add, subtract and multiply of two QDQ tensors one of which is repeated, as a gate is over an image; integers only.

int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], as numpy broadcasts shapes. Each element is computed as
qbinary.py does. Of one NHWC image row h of the output reads row h of each input, or its only row.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES, block, structure, times
from codegen_c.kernels.contract import (
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.elementwise.qbinary import (
    INCLUDES,
    element_instructions,
    element_members,
    reference,
    results_in_range,
)
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import QBinary, TensorType
from tvm_ext.core.row_access import RowAccess

INDICES = "nhwcijkl"


def repeats_to_output(operator: QBinary, target: Target) -> bool:
    """both inputs must be of the output's shape, or 1 where they are not, and have no more than eight axes"""
    output = operator.output.shape
    padded = [_padded(tensor, output) for tensor in operator.inputs]
    return len(output) <= len(INDICES) and all(
        len(shape) == len(output) and all(a in (1, b) for a, b in zip(shape, output, strict=True)) for shape in padded
    )


def _padded(tensor: TensorType, output: tuple[int, ...]) -> tuple[int, ...]:
    """The tensor's shape with as many axes as the output."""
    return (1,) * (len(output) - len(tensor.shape)) + tensor.shape


def implement(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    output = operator.output
    shapes = [_padded(tensor, output.shape) for tensor in operator.inputs]
    types = [C_TYPES[tensor.dtype] for tensor in (*operator.inputs, output)]
    rows = _rows(operator)
    names = ("input0", "input1", "output")
    first, *others = structure("tvm_ext_qbinary", "$_function", element_members(operator))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *(
                    Parameter(name=name, ctype=ctype, role="output" if name == "output" else "input")
                    for name, ctype in zip(names, types, strict=True)
                ),
                *(ROW_PARAMETERS if rows else ()),
            ),
            body=_body([*shapes, output.shape], types, stored, by_rows=rows is not None),
            helpers="\n".join([f"static {first}", *others, ""]),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        macs=output.num_elements if operator.function == "multiply" else 0,
        instructions=output.num_elements * element_instructions(operator),
        spatial=rows,
        in_place=tuple(index for index, shape in enumerate(shapes) if shape == output.shape),
        exact=True,
    )


def _rows(operator: QBinary) -> Spatial | None:
    output = operator.output.shape
    if len(output) != 4 or output[0] != 1 or any(len(tensor.shape) != 4 for tensor in operator.inputs):
        return None
    extents = [tensor.shape[1] for tensor in operator.inputs]
    inputs = tuple(RowAccess.same(rows) if rows == output[1] else RowAccess.whole(output[1]) for rows in extents)
    return Spatial(output_rows=output[1], inputs=inputs)


def _body(shapes: list[tuple[int, ...]], types: list[str], stored: StoredRows, *, by_rows: bool) -> str:
    """Loops over the output's axes; of images the rows come first, and what is stored of them counts."""
    output, first = shapes[-1], 2 if by_rows else 0
    kept = [stored.input(0), stored.input(1), stored.output]
    rows: list[str] = []
    operands: list[str] = []
    for name, shape, ctype, ring in zip(("input0", "input1", "output"), shapes, types, kept, strict=True):
        has_rows = by_rows and shape[1] == output[1]
        row = times(slot("h", ring), shape[2] * shape[3]) if has_rows else "0"
        qualifier = "" if name == "output" else "const "
        rows += [f"{qualifier}{ctype} *{name}_row = &{name}[{row}];"] if has_rows else []
        operands.append(f"{name}{'_row' if has_rows else ''}[{_place(shape, first)}]")
    element = f"tvm_ext_qbinary_element(&$_function, {operands[0]}, {operands[1]})"
    lines = [f"{operands[2]} = ({types[2]}){element};"]
    for axis in reversed(range(first, len(output))):
        if output[axis] > 1:
            index = INDICES[axis]
            lines = [f"for (int32_t {index} = 0; {index} < {output[axis]}; ++{index}) {{", block(lines), "}"]
    if by_rows:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block([*rows, *lines]), "}"]
    return "\n".join(lines)


def _place(shape: tuple[int, ...], first: int) -> str:
    """C expression of an element's place, counted from axis `first` on; axes of extent 1 have no share in it."""
    terms: list[str] = []
    stride = 1
    for axis in reversed(range(first, len(shape))):
        if shape[axis] > 1:
            terms.insert(0, times(INDICES[axis], stride))
        stride *= shape[axis]
    return " + ".join(terms) or "0"


KERNEL = Kernel(
    name="qbroadcast_i8",
    operator=QBinary,
    implement=implement,
    constraints=(quantized_bytes, repeats_to_output, results_in_range),
)
