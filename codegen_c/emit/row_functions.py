"""Functions that compute some rows of a layer: they hand its kernel the arguments that all calls share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.emit.calls import Calls, wrapped
from codegen_c.emit.memory import arena_pointer, union_name
from codegen_c.emit.pieces import Piece
from codegen_c.emit.stream import RowBounds
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, RowSteps
from tvm_ext.core.row_schedule import Schedule
from tvm_ext.core.row_sequence import RowCall

BOUNDS = RowBounds(begin="row_begin", end="row_end", count=0)


def row_function_names(program: Program) -> dict[str, str]:
    """Names of such functions by kernel call, where a sequence calls the kernel from several places."""
    taken = {call.name for call in program.kernel_calls()}
    found: dict[str, str] = {}
    for step in program.steps:
        if not isinstance(step, RowSteps):
            continue
        places = Counter(_operators(step.schedule))
        for index, call in enumerate(step.body):
            if places[index] > 1 and not call.implementation.callback:
                name = f"rows_of_{call.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found[call.name] = name
    return found


def _operators(schedule: Schedule) -> Iterator[int]:
    """The operator of each call as it stands."""
    for entry in schedule:
        if isinstance(entry, RowCall):
            yield entry.operator
        else:
            yield from _operators(entry.body)


def row_functions(written: Calls) -> list[Piece]:
    """Definitions of the functions that `row_function_names` names."""
    return [
        Piece(
            text=_definition(written, call, step.name), kind="function",
            name=f"{written.model}_{written.row_names[call.name]}", steps=(call.name,),
        )
        for step in written.program.steps
        if isinstance(step, RowSteps)
        for call in step.body
        if call.name in written.row_names
    ]  # fmt: skip


def _definition(written: Calls, call: KernelCall, step_name: str) -> str:
    model, tensors = written.model, written.program.tensors
    given = written.arenas_handed_in(call, step_name)
    parameters = [f"union {union_name(model, memory)} *{memory}" for memory in given]
    parameters += [
        f"{'' if name in call.outputs else 'const '}{C_TYPES[tensors[name].dtype]} *{name}"
        for name in written.handed_in(call)
    ]
    head = f"TVM_EXT_STEP void {model}_{written.row_names[call.name]}("
    lines = [
        *(
            f"{arena_pointer(written.interface, memory, written.sharing.arenas)};"
            for memory in written.memories(call, step_name)
            if memory not in given
        ),
        *written.lines(call, step_name, BOUNDS),
    ]
    rows = ", ".join([*parameters, "int32_t row_begin", "int32_t row_end"])
    note = f"/* {call.name} by rows, in {step_name}. */"
    return "\n".join([note, *wrapped(f"{head}{rows})"), "{", block(lines), "}", ""])
