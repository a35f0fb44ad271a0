"""A parallel program over successive inputs: its stages, and the states of each.

A stage is the list of a processor; of the caller's list, putting an input is one stage and taking outputs another. Two
stages work at once on different inputs, so a tensor that both touch lies in one place for an input of even number and
in another one for the next. What runs keep has one place, and one stage, which comes to the inputs in order. Everything
else is over when its stage is done with an input.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from codegen_c.program.parallel import NONE, Notify, ParallelProgram, RunStep, StepOrder
from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import (
    Call,
    KernelCall,
    Loop,
    RowSteps,
    Step,
    Transfer,
    Wait,
    calls,
    processor_of,
    reads,
    writes,
)
from codegen_c.program.tensors import KeptState
from tvm_ext.core.errors import PlanRejected

Copies = Mapping[str, tuple[str, ...]]


def stages_of(parallel: ParallelProgram) -> list[int]:
    """Stage of each step: its list, and the number of lists for what the caller runs when it takes outputs."""
    found = [0] * len(parallel.program.steps)
    for number, steps in enumerate(parallel.lists):
        for place, entry in enumerate(steps.entries):
            if isinstance(entry, RunStep):
                taking = number == 0 and place >= parallel.take_begins
                found[entry.index] = len(parallel.lists) if taking else number
    return found


def check_stages(parallel: ParallelProgram) -> None:
    """Raises PlanRejected where the caller signals a processor when it puts an input and again when it takes one.

    The signals of the next input would come between; so would its transfers, where both stages have some that go on.
    The same where two stages use a state: the next input would read what the one before has not left yet.
    """
    if crossing := crossing_states(parallel.program, stages_of(parallel)):
        raise PlanRejected(
            f"{parallel.program.name}: {', '.join(crossing)} would be kept by several stages of a pipeline."
        )
    staged = zip(parallel.program.steps, stages_of(parallel), strict=True)
    if len({stage for step, stage in staged if _goes_on(step)}) > 1:
        raise PlanRejected(
            f"{parallel.program.name}: transfers go on from one stage of a pipeline to another one; put all into one."
        )
    at = parallel.take_begins
    put, take = (
        {entry.target for entry in entries if isinstance(entry, Notify)}
        for entries in (parallel.lists[0].entries[:at], parallel.lists[0].entries[at:])
    )
    if put & take:
        name = parallel.lists[min(put & take)].processor
        raise PlanRejected(
            f"{parallel.program.name}: {name} needs values of {parallel.lists[0].processor} that depend on its own; "
            "such are no stages of a pipeline."
        )


def stage_order(parallel: ParallelProgram) -> StepOrder:
    """Order in which steps end over successive inputs: steps of one stage in turn, those of others at any time."""
    home = stages_of(parallel)
    last = [NONE] * (len(parallel.lists) + 1)
    done: list[tuple[int, ...]] = []
    for index, stage in enumerate(home):
        done.append(tuple(before if number == stage else NONE for number, before in enumerate(last)))
        last[stage] = index
    return StepOrder(home=tuple(home), done=tuple(done))


def shared_by_stages(parallel: ParallelProgram, held: Collection[str]) -> list[str]:
    """Whole tensors that need a place for each input in flight, but for those that the caller holds.

    Inputs are written by the caller before it puts them; outputs are read by it behind the take.
    """
    program = parallel.program
    users: dict[str, set[int]] = {name: {0} for name in program.inputs}
    for step, stage in zip(program.steps, stages_of(parallel), strict=True):
        for name in (*reads(step), *writes(step)):
            users.setdefault(_whole(program, name), set()).add(stage)
    outputs = {_whole(program, name) for name in program.outputs}
    found = [name for name in program.tensors if name in outputs or len(users.get(name, ())) > 1]
    return [name for name in found if name not in held and program.tensors[name].role != "state"]


def with_copies(program: Program, shared: Collection[str], count: int) -> tuple[Program, Copies]:
    """The program with `count` places for tensors and their parts, and the names of all of these."""
    parts = parts_of(program)
    tensors, copies = dict(program.tensors), dict[str, tuple[str, ...]]()
    for whole in shared:
        family = (program.tensors[whole], *parts.get(whole, ()))
        for tensor in family:
            copies[tensor.name] = (
                tensor.name,
                *(_free_name(f"{tensor.name}_phase{n}", tensors) for n in range(1, count)),
            )
            tensors |= {name: replace(tensor, name=name) for name in copies[tensor.name]}
        for phase in range(1, count):
            for tensor in family[1:]:
                assert tensor.part is not None, "it is a part"
                name = copies[tensor.name][phase]
                tensors[name] = replace(tensors[name], part=replace(tensor.part, tensor=copies[whole][phase]))
    return replace(program, tensors=tensors), copies


def with_phases(parallel: ParallelProgram, copies: Copies, count: int) -> ParallelProgram:
    """The pipeline of so many inputs in flight."""
    phases = tuple(
        tuple(_renamed(step, {name: names[phase] for name, names in copies.items()}) for step in parallel.program.steps)
        for phase in range(count)
    )
    return replace(parallel, phases=phases, copies=copies, turns=turned_behind(parallel.program))


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """A step over other tensors."""
    if isinstance(step, RowSteps):
        return replace(step, body=tuple(_kernel_renamed(call, names) for call in step.body))
    if isinstance(step, Loop):
        return replace(step, body=tuple(_call_renamed(call, names) for call in step.body))
    return _call_renamed(step, names)


def _call_renamed(call: Call, names: Mapping[str, str]) -> Call:
    if isinstance(call, KernelCall):
        return _kernel_renamed(call, names)
    if isinstance(call, Wait):
        renamed = [_call_renamed(transfer, names) for transfer in call.transfers]
        return replace(call, transfers=tuple(one for one in renamed if not isinstance(one, KernelCall | Wait)))
    source = call.source if call.source_is_constant else names.get(call.source, call.source)
    return replace(call, source=source, target=names.get(call.target, call.target))


def _kernel_renamed(call: KernelCall, names: Mapping[str, str]) -> KernelCall:
    return replace(
        call,
        inputs=tuple(names.get(name, name) for name in call.inputs),
        outputs=tuple(names.get(name, name) for name in call.outputs),
        fetched=tuple((constant, names.get(name, name)) for constant, name in call.fetched),
    )


def _goes_on(step: Step) -> bool:
    """True for a transfer that goes on while steps run, and for a wait for one."""
    return any(
        isinstance(call, Wait) or (isinstance(call, Transfer) and call.number is not None) for call in calls(step)
    )


def _whole(program: Program, name: str) -> str:
    part = program.tensors[name].part
    return part.tensor if part else name


def _free_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


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
