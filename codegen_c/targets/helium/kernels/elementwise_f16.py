"""A chain of element-wise operators of float16 in one pass with Helium, four elements at a time.

Inputs as elementwise_f32 takes them. Elements are widened, computed in float32, rounded where the chain says and at its
end. Each is read before it is written, so the output may take the place of any input of its own shape.
"""

from __future__ import annotations

from collections.abc import Callable

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.elementwise.elementwise_f32 import broadcasts_simply, reads_inputs_only, reference
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import Lanes
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, row_elements, slot
from codegen_c.operators.kinds import HalfElementwise
from codegen_c.operators.scalar import Operand
from codegen_c.targets.helium.kernels.half_floats import LANES, SINGLE, rounded

Read = Callable[[Lanes, Operand], str]


def implement(operator: HalfElementwise, target: Target, stored: StoredRows) -> Implementation:
    finish, output = Finish(program=operator.finish), operator.output
    rowwise = len(output.shape) == 4 and output.shape[0] == 1 and all(t.shape == output.shape for t in operator.inputs)
    widths = (SINGLE, LANES) if finish.fits(LANES) else (SINGLE,)
    body = _rows(operator, stored, finish) if rowwise else _flat(operator, stored, finish)
    count = widths[-1].count
    vector = 4 + 2 * len(operator.inputs) + operator.finish.num_instructions
    made = Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                *(Parameter(name=f"input{i}", ctype=LANES.element, role="input") for i in range(len(operator.inputs))),
                Parameter(name="output", ctype=LANES.element, role="output"),
                *finish.constant_parameters(),
                *(ROW_PARAMETERS if rowwise else ()),
            ),
            body=body,
            helpers=finish.helper(*widths),
            includes=LANES.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=output.num_elements * vector // count + 20,
        spatial=row_by_row(output.shape[1], len(operator.inputs)) if rowwise else None,
        in_place=tuple(i for i, t in enumerate(operator.inputs) if t.shape == output.shape),
        pitched=True,
    )
    return rounded(made)


def _run(finish: Finish, length: int, place: str, read: Read) -> list[str]:
    """`length` elements from `place` of the output on: vectors, then one by one."""

    def each(lanes: Lanes) -> str:
        return lanes.write("output", f"{place} + k", finish.call("", lambda o: read(lanes, o), lanes))

    whole = length // LANES.count * LANES.count if finish.fits(LANES) else 0
    lines: list[str] = []
    for begin, end, lanes in ((0, whole, LANES), (whole, length, SINGLE)):
        if begin < end:
            head = f"for (int32_t k = {begin}; k < {end}; k += {lanes.count}) {{"
            lines += [head, block(each(lanes)), "}"]
    return lines


def _rows(operator: HalfElementwise, stored: StoredRows, finish: Finish) -> str:
    """Images of one batch, row by row: a row is one run where nothing is told by channels."""
    _, _, columns, channels = operator.output.shape
    pitch, length = stored.pitch or channels, columns * channels
    names = [f"const int32_t row = {slot('h', stored.output)} * {row_elements(stored, operator.output)};"]
    names += [f"const int32_t row{i} = {slot('h', stored.input(i))} * {length};" for i in range(len(operator.inputs))]
    if pitch == channels and not finish.constants():
        lines = _run(finish, length, "row", lambda lanes, o: lanes.read(f"input{o.index}", f"row{o.index} + k"))
    else:

        def read(lanes: Lanes, o: Operand) -> str:
            if o.kind == "channel":
                return lanes.load(f"channel{o.index}", "k")
            return lanes.read(f"input{o.index}", f"row{o.index} + w * {channels} + k")

        pixel = _run(finish, channels, f"row + w * {pitch}", read)
        lines = [f"for (int32_t w = 0; w < {columns}; ++w) {{", block(pixel), "}"]
    return "\n".join(["for (int32_t h = row_begin; h < row_end; ++h) {", block([*names, *lines]), "}"])


def _flat(operator: HalfElementwise, stored: StoredRows, finish: Finish) -> str:
    """Tensors of any shape, a run of the last axis at a time."""
    output = operator.output
    last = output.shape[-1] if output.shape else 1
    pixel = f"i / {last} * {stored.pitch}" if stored.pitch else "i"

    def read(lanes: Lanes, o: Operand) -> str:
        if o.kind == "channel":
            return lanes.load(f"channel{o.index}", "k")
        source = operator.inputs[o.index]
        if source.shape == output.shape:
            return lanes.read(f"input{o.index}", "i + k")
        if source.num_elements > 1:
            return lanes.read(f"input{o.index}", "k")
        one = SINGLE.read(f"input{o.index}", "0")
        return one if lanes.count == 1 else f"{lanes.ctype}_splat({one})"

    lines = _run(finish, last, pixel, read)
    return "\n".join([f"for (int32_t i = 0; i < {output.num_elements}; i += {last}) {{", block(lines), "}"])


KERNEL = Kernel(
    name="elementwise_f16",
    operator=HalfElementwise,
    implement=implement,
    constraints=(reads_inputs_only, broadcasts_simply),
)
