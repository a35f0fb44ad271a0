"""A Sequence as C: one loop, in which the operators that are asked for rows run, each as late as it can."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from codegen_c.c_text.text import block
from codegen_c.kernels.contract import RowAccess
from codegen_c.program.program import KernelCall
from codegen_c.program.program import Sequence as RowSteps
from codegen_c.program.sequences import reach, spatial_of

CallLines = Callable[[KernelCall, tuple[str, str]], Sequence[str]]
"""Lines that call a kernel for rows [begin, end), given as C expressions."""


def sequence_lines(step: RowSteps, call_lines: CallLines) -> list[str]:
    """A block that computes all rows of the last kernel of a sequence, and of the others what that takes.

    `<step>` counts the rows made so far, `<step>_want` says up to which row the next ones need it.
    """
    counters = [call.name for call in step.body]
    last = len(step.body) - 1
    wants = [line for index in reversed(range(last)) for line in _want(step, index)]
    runs: list[str] = []
    for index, call in enumerate(step.body):
        condition = f"if ({call.name} < {call.name}_want) {{" if index < last else "{"
        end = _end(step, index)
        body = [*call_lines(call, (call.name, end)), f"{call.name} = {end};"]
        runs += [f"{'} else ' if index else ''}{condition}", block(body)]
    return [
        f"{{ /* {step.name}: {_unit(step)} in series; what lies between two layers is a ring of the last few. */",
        block(
            [
                *(f"int32_t {name} = 0;" for name in counters),
                f"while ({counters[-1]} < {spatial_of(step.body[-1]).output_rows}) {{",
                block([*wants, *runs, "}"]),
                "}",
            ]
        ),
        "}",
    ]


def _unit(step: RowSteps) -> str:
    """What the rows of a sequence are: of vectors alone, runs of their channels."""
    are_vectors = all(len(call.input_shapes[0]) != 4 and prod(call.input_shapes[0][:-1]) == 1 for call in step.body)
    return "runs of channels" if are_vectors else "rows"


def _want(step: RowSteps, index: int) -> list[str]:
    """Declaration of how many rows of one kernel the others wait for."""
    name = step.body[index].outputs[0]
    asked: list[str] = []
    for later in range(index + 1, len(step.body)):
        call = step.body[later]
        for position, read in enumerate(call.inputs):
            if read != name:
                continue
            rows = _asked(step, later, spatial_of(call).inputs[position])
            always = later == len(step.body) - 1
            asked.append(rows if always else f"{call.name} < {call.name}_want ? {rows} : 0")
    text, *others = dict.fromkeys(asked)
    for other in others:
        text = f"TVM_EXT_MAX({text}, {other})"
    return [f"const int32_t {step.body[index].name}_want = {text};"]


def _asked(step: RowSteps, later: int, access: RowAccess) -> str:
    """Rows of an input that a kernel's next call reads up to."""
    window, name = access.window, step.body[later].name
    stride, first = window.strides[0], reach(access)
    if stride == 0:
        return str(min(max(first, 0), access.input_rows))
    row = name if _one_by_one(step, later) else f"({_end(step, later)} - 1)"
    scaled = row if stride == 1 else f"{row} * {stride}"
    total = f"{scaled} + {first}" if first > 0 else f"{scaled} - {-first}" if first < 0 else scaled
    if first < 0:
        total = f"TVM_EXT_MAX({total}, 0)"
    return f"TVM_EXT_MIN({total}, {access.input_rows})"


def _end(step: RowSteps, index: int) -> str:
    """End of the rows that a kernel's next call computes."""
    name, rows, first = step.body[index].name, step.rows_per_call[index], step.first_of(index)
    if _one_by_one(step, index):
        return f"{name} + 1"
    total = spatial_of(step.body[index]).output_rows
    end = f"{name} + {rows}" if first == rows else f"({name} > 0 ? {name} + {rows} : {first})"
    return end if (total - first) % rows == 0 else f"TVM_EXT_MIN({end}, {total})"


def _one_by_one(step: RowSteps, index: int) -> bool:
    return step.rows_per_call[index] == step.first_of(index) == 1
