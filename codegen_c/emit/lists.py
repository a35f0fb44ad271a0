"""Emit the run functions: per-core schedules, also of pipelines, and the checks of states.

A list is the schedule of one processor: its steps and signals in order. For one processor there is one list.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import block
from codegen_c.emit.header import serve_signature, signature, take_signature
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import Step, reads, writes
from tvm_ext.core.platform import STATE_MEMORY, Platform

Entries = tuple[Step | str, ...]
"""Steps, and signals as C statements."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenList:
    """Steps and signals of one processor in a run, or in a part of a run, as a function.

    processor: its name; empty if it is the only one. signature: head of the function, without the semicolon. phases:
    entries of each phase of a pipeline, else of every run; phase: C expression of the current phase. before, behind:
    statements around the entries. begins: True if a run begins here. ends: True if the function returns success at its
    end. over: True if a run ends here, whose outputs may not be valid yet. all_steps: steps of all schedules.
    """

    processor: str
    signature: str
    phases: tuple[Entries, ...]
    phase: str = ""
    before: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    begins: bool = False
    ends: bool = False
    over: bool = False
    all_steps: tuple[Step, ...] = ()

    @property
    def steps(self) -> list[Step]:
        """The steps of the schedule, in one phase."""
        return [entry for entry in self.phases[0] if not isinstance(entry, str)]


def whole_list(program: Program, interface: Interface) -> WrittenList:
    """Return the schedule of the only processor."""
    return WrittenList(
        processor="", signature=signature(interface), phases=(program.steps,), begins=True, ends=True,
        over=True, all_steps=program.steps,
    )  # fmt: skip


def written_lists(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, platform: Platform
) -> list[list[WrittenList]]:
    """Return the functions of each per-core schedule, the caller's first."""
    written = written_entries(parallel, interface, platform)
    handed = [held_names(parallel.program, plan, steps.entries) for steps in parallel.lists]
    others = dict.fromkeys(name for names in handed[1:] for name in names)
    found: list[list[WrittenList]] = []
    for number, steps in enumerate(parallel.lists):
        entries = flat(written[number])
        if number:  # after the signal that the run has begun
            entries[1:1] = [taken(interface, name) for name in handed[number]]
        else:
            entries[:0] = [f"{interface.model}_handed.{name} = {name};" for name in others]
        head = serve_signature(interface, steps.processor) if number else signature(interface)
        found.append(
            [
                WrittenList(
                    processor=steps.processor, signature=head, phases=(tuple(entries),), begins=not number,
                    ends=not number, over=not number, all_steps=parallel.program.steps,
                )
            ]
        )  # fmt: skip
    return found


def written_entries(parallel: ParallelProgram, interface: Interface, platform: Platform) -> list[list[Entries]]:
    """Return the steps and signals of each schedule; each step is followed by the lines that advance write indices."""
    reasons, lines = dict(_reasons(parallel)), turn_lines(parallel.program)
    behind: dict[int, list[str]] = {}
    for name, step in parallel.advances.items():
        behind.setdefault(step, []).append(lines[name])
    return [
        [
            (
                _written(parallel, platform, interface.model, number, entry, reasons),
                *(behind.get(entry.index, ()) if isinstance(entry, RunStep) else ()),
            )
            for entry in steps.entries
        ]
        for number, steps in enumerate(parallel.lists)
    ]


def flat(written: Iterable[Entries]) -> list[Step | str]:
    """Return the steps and statements of entries in one flat list."""
    return [line for entry in written for line in entry]


def held_names(program: Program, plan: MemoryPlan, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Return the inputs and outputs in the caller's memory that the steps of some entries read or write."""
    steps = [program.steps[entry.index] for entry in entries if isinstance(entry, RunStep)]
    names = [name for step in steps for name in (*reads(step), *writes(step))]
    wholes = [part.tensor if (part := program.tensors[name].part) else name for name in names]
    return tuple(dict.fromkeys(name for name in wholes if name not in plan.placements))


def handed_over(parallel: ParallelProgram, plan: MemoryPlan) -> tuple[str, ...]:
    """Return the inputs and outputs in the caller's memory that functions beside the called one read or write, too."""
    at = parallel.take_begins if parallel.phases else len(parallel.lists[0].entries)
    later = [parallel.lists[0].entries[at:], *(steps.entries for steps in parallel.lists[1:])]
    return tuple(dict.fromkeys(name for entries in later for name in held_names(parallel.program, plan, entries)))


def taken(interface: Interface, name: str, phase: str = "") -> str:
    """Return the declaration of a pointer that the caller passed to this run.

    phase: index of a pipeline's input, in brackets.
    """
    port = next(port for port in (*interface.inputs, *interface.outputs) if port.name == name)
    qualifier = "const " if port in interface.inputs else ""
    return f"{qualifier}{port.c_type} *const {name} = {interface.model}_handed{phase}.{name};"


def channel_name(model: str, source: str, target: str) -> str:
    """Return the C name of the channel from one processor to another."""
    return f"{model}_{source}_to_{target}"


def _written(
    parallel: ParallelProgram, platform: Platform, model: str, number: int, entry: Entry, reasons: dict[int, str]
) -> Step | str:
    if isinstance(entry, RunStep):
        return parallel.program.steps[entry.index]
    own = parallel.lists[number].processor
    if isinstance(entry, Notify):
        calls = sent(platform, model, own, parallel.lists[entry.target].processor)
    else:
        calls = awaited(platform, model, parallel.lists[entry.source].processor, own)
    return f"{calls} /* {reasons[entry.signal]} */"


def sent(platform: Platform, prefix: str, source: str, target: str) -> str:
    """Return the statements that send a signal. prefix: of the channel's name."""
    signal = platform.signal_between(source, target)
    rings = signal is not None and signal.set_address is not None
    ring = f" tvm_ext_ring(0x{signal.set_address:08x}u);" if signal and rings else ""
    return f"tvm_ext_notify(&{channel_name(prefix, source, target)});{ring}"


def awaited(platform: Platform, prefix: str, source: str, target: str) -> str:
    """Return the statements that wait for a signal. prefix: of the channel's name."""
    signal = platform.signal_between(source, target)
    rings = signal is not None and signal.clear_address is not None
    answer = f" tvm_ext_answer(0x{signal.clear_address:08x}u);" if signal and rings else ""
    return f"tvm_ext_await(&{channel_name(prefix, source, target)});{answer}"


def _reasons(parallel: ParallelProgram) -> Iterator[tuple[int, str]]:
    """Yield each signal, and the event that it reports."""
    for steps in parallel.lists:
        last = "the run begins"
        for entry in steps.entries:
            if isinstance(entry, RunStep):
                last = f"{parallel.program.steps[entry.index].name} is done"
            elif isinstance(entry, Notify):
                yield entry.signal, last


def flow_name(model: str) -> str:
    """Return the C name of the variables in which the caller's functions track the inputs in flight."""
    return f"{model}_flow"


def phase_name(model: str, processor: str) -> str:
    """Return the C name of the variable that holds the phase of a processor's next input."""
    return f"{model}_phase_of_{processor}"


def pipelined_lists(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, platform: Platform
) -> list[list[WrittenList]]:
    """Return the functions of each schedule of a pipeline, the caller's first."""
    written = [
        written_entries(replace(parallel, program=replace(parallel.program, steps=steps)), interface, platform)
        for steps in parallel.phases
    ]
    found = [_of_the_caller(parallel, plan, interface, [lists[0] for lists in written])]
    for number, steps in enumerate(parallel.lists[1:], start=1):
        phase = phase_name(interface.model, steps.processor)
        found.append(
            [
                WrittenList(
                    processor=steps.processor, signature=serve_signature(interface, steps.processor), phase=phase,
                    phases=_phases(parallel, plan, interface, steps.entries, [lists[number] for lists in written]),
                    behind=(_advanced(phase, interface),),
                )
            ]
        )  # fmt: skip
    return found


def _of_the_caller(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, written: Sequence[list[Entries]]
) -> list[WrittenList]:
    model, flow, at = interface.model, flow_name(interface.model), parallel.take_begins
    own = parallel.lists[0]
    ports = (*interface.inputs, *interface.outputs) if interface.io == "caller" else ()
    put = WrittenList(
        processor=own.processor, signature=signature(interface, interface.put), phase=f"{flow}.put", begins=True,
        ends=True, all_steps=parallel.program.steps, phases=tuple(tuple(flat(entries[:at])) for entries in written),
        before=(
            _unless(f"{flow}.in_flight == {interface.in_flight_name}", interface.full),
            *(f"{model}_handed[{flow}.put].{name} = {name};" for name in handed_over(parallel, plan)),
        ),
        behind=(_advanced(f"{flow}.put", interface), f"{flow}.in_flight++;"),
    )  # fmt: skip
    take = WrittenList(
        processor=own.processor, signature=take_signature(interface), phase=f"{flow}.take", ends=True, over=True,
        phases=_phases(parallel, plan, interface, own.entries[at:], [entries[at:] for entries in written]),
        before=(_unless(f"{flow}.in_flight == 0u", interface.empty),),
        behind=(
            f"{flow}.taken = {flow}.take;", _advanced(f"{flow}.take", interface), f"{flow}.in_flight--;",
        ),
    )  # fmt: skip
    arguments = ", ".join(port.name for port in ports)
    run = WrittenList(
        processor=own.processor, signature=signature(interface), phases=((),),
        before=(
            _unless(f"{flow}.in_flight != 0u", interface.full),
            f"const {interface.status_type} status = {interface.put}({arguments});",
            f"return status == {interface.ok} ? {interface.take}() : status;",
        ),
    )  # fmt: skip
    return [put, take, run]


def _phases(
    parallel: ParallelProgram,
    plan: MemoryPlan,
    interface: Interface,
    entries: Sequence[Entry],
    written: Sequence[list[Entries]],
) -> tuple[Entries, ...]:
    """Return the entries of each phase after the caller's pointers, which are valid from the first signal on."""
    names = held_names(parallel.program, plan, entries)
    return tuple(
        (*flat(own[:1]), *(taken(interface, name, f"[{phase}]") for name in names), *flat(own[1:]))
        for phase, own in enumerate(written)
    )


def _unless(condition: str, answer: str) -> str:
    return f"if ({condition}) {{\n{block(f'return {answer};')}\n}}"


def _advanced(phase: str, interface: Interface) -> str:
    """Return the statement that advances to the next phase."""
    return f"{phase} = {phase} + 1u == {interface.in_flight_name} ? 0u : {phase} + 1u;"


def state_signature(program: Program, plan: MemoryPlan) -> str:
    """Return a number as C that identifies the layout of the state; never 0, the value of memory before a reset."""
    places = [plan.placements[name] for name in program.kept]
    turned = {state.tensor: f":{state.layout}" for state in program.states if state.layout}
    text = ";".join(
        f"{place.name}:{program.tensors[place.name].dtype}:{place.offset}:{place.num_bytes}{turned.get(place.name, '')}"
        for place in places
    )
    return f"0x{zlib.crc32(text.encode()) or 1:08x}u"


def run_begins(program: Program, plan: MemoryPlan, interface: Interface) -> list[str]:
    """Return the lines with which a run rejects a state that was not reset or has another layout."""
    if not program.states:
        return []
    name = f"{STATE_MEMORY}->{program.ready}[0]"
    return [f"if ({name} != {state_signature(program, plan)}) {{", block(f"return {interface.not_reset};"), "}"]


def turn_lines(program: Program) -> dict[str, str]:
    """Return the line that advances each ring's write index by the rows that were pushed, by the index's tensor."""
    lines: dict[str, str] = {}
    for state in program.states:
        ring = program.tensors[state.tensor].ring
        if ring and ring.write_index:
            turn = f"{STATE_MEMORY}->{ring.write_index}[0]"
            lines[ring.write_index] = f"{turn} = (uint16_t)(({turn} + {state.pushed}u) % {ring.stored}u);"
    return lines


def run_ends(program: Program, interface: Interface) -> list[str]:
    """Return the lines that advance write indices and report outputs of a warm-up run.

    In a pipeline each stage advances its own write indices.
    """
    lines = [] if interface.is_pipeline else [*turn_lines(program).values()]
    if program.warmed_up:
        count = f"{STATE_MEMORY}->{program.warmed_up}[0]"
        answer = [f"{count}++;", f"return {interface.not_ready};"]
        lines += [f"if ({count} < {program.warm_up_runs}u) {{", block(answer), "}"]
    return lines
