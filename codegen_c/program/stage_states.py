"""States of a pipeline: kept in the stage that uses them, where successive inputs come in order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Step, Transfer, calls, processor_of, reads, writes
from codegen_c.program.tensors import KeptState


def touches_state(program: Program, step: Step, state: KeptState) -> bool:
    """True where a step reads or writes elements of a state."""
    names = (*reads(step), *writes(step))
    return any(name == state.tensor or _whole(program, name) == state.tensor for name in names)


def processors_touching(program: Program, names: Collection[str]) -> set[str]:
    """Processors of the kernels that read or write some tensors."""
    return {
        processor_of(step)
        for step in program.steps
        if any(isinstance(call, KernelCall) for call in calls(step)) and {*reads(step), *writes(step)} & {*names}
    }


def with_copies_of_states(program: Program, processors: Mapping[str, str]) -> dict[str, str]:
    """Processor by step, the copies that change a state among them: those run where its kernels do.

    processors: of the steps that are no copies.
    """
    found = dict(processors)
    while True:
        before = len(found)
        for state in program.states:
            users = [step for step in program.steps if touches_state(program, step, state)]
            on = {found[step.name] for step in users if step.name in found}
            if len(on) == 1:
                copies = (step for step in users if isinstance(step, Transfer) and step.name not in found)
                found |= dict.fromkeys((copy.name for copy in copies), on.pop())
        if len(found) == before:
            return found


def crossing_states(program: Program, stages: Sequence[int]) -> list[str]:
    """States that change and that several stages use, by the model's own names. stages: of the steps in order."""
    return [
        state.source
        for state in program.states
        if state.update != "none" and len({stages[index] for index in _users(program, state)}) > 1
    ]


def turned_behind(program: Program) -> dict[str, int]:
    """For each ring that turns, by the tensor that says how far, the last step that uses it."""
    found: dict[str, int] = {}
    for state in program.states:
        ring = program.tensors[state.tensor].ring
        if ring and ring.turn:
            found[ring.turn] = max(_users(program, state))
    return found


def _users(program: Program, state: KeptState) -> list[int]:
    return [index for index, step in enumerate(program.steps) if touches_state(program, step, state)]


def _whole(program: Program, name: str) -> str:
    part = program.tensors[name].part
    return part.tensor if part else name
