"""A parallel program over successive inputs: its stages, and the states of each stage.

A stage is a per-core schedule. The caller's schedule is two stages: putting an input, and taking outputs. Two stages
work on different inputs at the same time, so a tensor that both touch has a copy for each input in flight. A state has
a single copy and belongs to one stage, which gets the inputs in order. All other tensors are dead when their stage has
finished an input.
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
    """Return the stage of each step: the index of its schedule, or the number of schedules if it runs in a take."""
    found = [0] * len(parallel.program.steps)
    for number, steps in enumerate(parallel.lists):
        for place, entry in enumerate(steps.entries):
            if isinstance(entry, RunStep):
                taking = number == 0 and place >= parallel.take_begins
                found[entry.index] = len(parallel.lists) if taking else number
    return found


def check_stages(parallel: ParallelProgram) -> None:
    """Raise PlanRejected if the stages cannot work on successive inputs.

    The caller must not signal a processor both in a put and in a take, because the signals of the next input would come
    between them. The same holds for asynchronous transfers of both stages. A state must belong to one stage, because
    otherwise the next input would read it before it is updated.
    """
    if crossing := crossing_states(parallel.program, stages_of(parallel)):
        raise PlanRejected(
            f"{parallel.program.name}: {', '.join(crossing)} would be kept by several stages of a pipeline; a state "
            "must belong to one stage."
        )
    staged = zip(parallel.program.steps, stages_of(parallel), strict=True)
    if len({stage for step, stage in staged if _goes_on(step)}) > 1:
        raise PlanRejected(
            f"{parallel.program.name}: several stages of a pipeline have asynchronous transfers; only one stage may "
            "have any."
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
            "stages of a pipeline must not depend on each other in a cycle."
        )


def stage_order(parallel: ParallelProgram) -> StepOrder:
    """Return the order in which steps end over successive inputs: in order within a stage only."""
    home = stages_of(parallel)
    last = [NONE] * (len(parallel.lists) + 1)
    done: list[tuple[int, ...]] = []
    for index, stage in enumerate(home):
        done.append(tuple(before if number == stage else NONE for number, before in enumerate(last)))
        last[stage] = index
    return StepOrder(home=tuple(home), done=tuple(done))


def shared_by_stages(parallel: ParallelProgram, held: Collection[str]) -> list[str]:
    """Return the whole tensors that need a copy for each input in flight, without tensors in the caller's memory.

    The caller writes inputs before it puts them, and reads outputs after it takes them.
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
    """Return the program with `count` copies of tensors and their parts, and the names of the copies."""
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
    """Return the pipeline with `count` inputs in flight."""
    phases = tuple(
        tuple(_renamed(step, {name: names[phase] for name, names in copies.items()}) for step in parallel.program.steps)
        for phase in range(count)
    )
    return replace(parallel, phases=phases, copies=copies, advances=advance_steps(parallel.program))


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """Return the step with other tensors."""
    if isinstance(step, RowSteps):
        assert not step.awaited, "a pipeline has no asynchronous transfers"
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
        prefetched=tuple((constant, names.get(name, name)) for constant, name in call.prefetched),
    )


def _goes_on(step: Step) -> bool:
    """Return True for an asynchronous transfer, and for a wait for one."""
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
    """Return True if a step reads or writes elements of a state."""
    names = (*reads(step), *writes(step))
    return any(name == state.tensor or _whole(program, name) == state.tensor for name in names)


def processors_touching(program: Program, names: Collection[str]) -> set[str]:
    """Return the processors of the kernels that read or write some tensors."""
    return {
        processor_of(step)
        for step in program.steps
        if any(isinstance(call, KernelCall) for call in calls(step)) and {*reads(step), *writes(step)} & {*names}
    }


def with_copies_of_states(program: Program, processors: Mapping[str, str]) -> dict[str, str]:
    """Return the processor of each step, including copies that change a state: they run where its kernels run.

    processors: processor by step, without copies.
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
    """Return the changing states that several stages use, by the model's own names. stages: stage of each step."""
    return [
        state.source
        for state in program.states
        if state.update != "none" and len({stages[index] for index in _users(program, state)}) > 1
    ]


def advance_steps(program: Program) -> dict[str, int]:
    """Return the last step that uses each ring of states, by the tensor that holds the ring's write index."""
    found: dict[str, int] = {}
    for state in program.states:
        ring = program.tensors[state.tensor].ring
        if ring and ring.write_index:
            found[ring.write_index] = max(_users(program, state))
    return found


def _users(program: Program, state: KeptState) -> list[int]:
    return [index for index, step in enumerate(program.steps) if touches_state(program, step, state)]
