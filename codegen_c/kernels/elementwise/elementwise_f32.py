"""Kernel for a chain of element-wise operators in float32, in one pass.

Every input has the output's shape, one element, or the length of the last axis. Each element is read before it is
written, so the output may take the memory of any input of its own shape.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import block, loop
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.copies import loop_instructions
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, row_elements, slot
from codegen_c.operators.kinds import Elementwise
from codegen_c.operators.scalar import Operand

RUN_INSTRUCTIONS = 5
"""Modelled instructions around a run of elements: pointers and the loop."""


def reads_inputs_only(operator: Elementwise, target: Target) -> bool:
    """the program must not read an accumulated element"""
    return not operator.finish.reads_element


def broadcasts_simply(operator: Elementwise, target: Target) -> bool:
    """each input must have the output's shape, one element, or the length of the last axis"""
    last = operator.output.shape[-1] if operator.output.shape else 1
    for source in operator.inputs:
        along_last = source.num_elements == last and (not source.shape or source.shape[-1] == last)
        if source.shape != operator.output.shape and source.num_elements != 1 and not along_last:
            return False
    return True


def reference(operator: Elementwise, inputs: list[np.ndarray]) -> list[np.ndarray]:
    result = operator.finish.run(None, inputs)
    return [np.broadcast_to(result, operator.output.shape).copy()]


def implement(operator: Elementwise, target: Target, stored: StoredRows) -> Implementation:
    finish = Finish(program=operator.finish)
    output = operator.output
    rowwise = len(output.shape) == 4 and output.shape[0] == 1 and all(t.shape == output.shape for t in operator.inputs)
    parameters = (
        *(Parameter(name=f"input{i}", ctype="float", role="input") for i in range(len(operator.inputs))),
        Parameter(name="output", ctype="float", role="output"),
        *finish.constant_parameters(),
        *(ROW_PARAMETERS if rowwise else ()),
    )
    body = _rows(operator, stored, finish) if rowwise else _flat(operator, stored, finish)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(parameters=parameters, body=body, helpers=finish.helper(SCALAR)),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        instructions=_instructions(operator, rowwise=rowwise),
        spatial=row_by_row(output.shape[1], len(operator.inputs)) if rowwise else None,
        in_place=tuple(i for i, t in enumerate(operator.inputs) if t.shape == output.shape),
        pitched=True,
        row_pitched=rowwise,
    )


def _instructions(operator: Elementwise, *, rowwise: bool) -> int:
    """Return the modelled loads, stores and operations of each element, and the innermost loop if it is long."""
    shape = operator.output.shape
    run = int(np.prod(shape[2:])) if rowwise else shape[-1] if shape else 1
    runs = operator.output.num_elements // max(run, 1)
    each = 1 + len(operator.inputs) + operator.finish.num_instructions
    return runs * (loop_instructions(run, each) + RUN_INSTRUCTIONS)


def _rows(operator: Elementwise, stored: StoredRows, finish: Finish) -> str:
    _, _, columns, channels = operator.output.shape
    size, pitch = columns * channels, stored.pitch or channels
    kept = {f"row{i}": stored.input(i) for i in range(len(operator.inputs))}
    element = "i" if pitch == channels else f"i / {channels} * {pitch} + i % {channels}"

    def operand(o: Operand) -> str:
        return f"input{o.index}[row{o.index} + i]" if o.kind == "input" else f"channel{o.index}[i % {channels}]"

    lines = [
        f"const int32_t row = {slot('h', stored.output)} * {row_elements(stored, operator.output)};",
        *(f"const int32_t {name} = {slot('h', rows)} * {size};" for name, rows in kept.items()),
        *loop("i", size, [f"output[row + {element}] = {finish.call('', operand)};"]),
    ]
    return "\n".join(["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"])


def _flat(operator: Elementwise, stored: StoredRows, finish: Finish) -> str:
    output = operator.output
    last = output.shape[-1] if output.shape else 1
    pixel = f"i / {last} * {stored.pitch}" if stored.pitch else "i"

    def operand(o: Operand) -> str:
        if o.kind == "channel":
            return f"channel{o.index}[k]"
        source = operator.inputs[o.index]
        if source.shape == output.shape:
            return f"input{o.index}[i + k]"
        return f"input{o.index}[{'0' if source.num_elements == 1 else 'k'}]"

    inner = loop("k", last, [f"output[{pixel} + k] = {finish.call('', operand)};"])
    return "\n".join(loop("i", output.num_elements, inner, step=last))


KERNEL = Kernel(
    name="elementwise_f32",
    title="Chain of element-wise operators in float32, in one pass",
    operator=Elementwise,
    implement=implement,
    constraints=(reads_inputs_only, broadcasts_simply),
)
