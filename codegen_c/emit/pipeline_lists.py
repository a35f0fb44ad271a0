"""Lists of a pipeline as functions: `put` and `take` of the caller, `run` for one input, and what others run.

Each function holds its steps once for each phase, so every tensor stands there by name, whichever input it is of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import block
from codegen_c.emit.header import serve_signature, signature, take_signature
from codegen_c.emit.lists import Entries, WrittenList, flat, handed_over, held_names, taken, written_entries
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import Entry, ParallelProgram
from tvm_ext.core.platform import Platform


def flow_name(model: str) -> str:
    """C name of what the caller's functions know of the inputs under way."""
    return f"{model}_flow"


def phase_name(model: str, processor: str) -> str:
    """C name of the phase of a processor's next input."""
    return f"{model}_phase_of_{processor}"


def pipelined_lists(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, platform: Platform
) -> list[list[WrittenList]]:
    """The functions of each list of a pipeline, the caller's first."""
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
    """Entries of each phase behind the pointers that the caller handed over, which its first signal brings."""
    names = held_names(parallel.program, plan, entries)
    return tuple(
        (*flat(own[:1]), *(taken(interface, name, f"[{phase}]") for name in names), *flat(own[1:]))
        for phase, own in enumerate(written)
    )


def _unless(condition: str, answer: str) -> str:
    return f"if ({condition}) {{\n{block(f'return {answer};')}\n}}"


def _advanced(phase: str, interface: Interface) -> str:
    """Statement that goes on to the next phase."""
    return f"{phase} = {phase} + 1u == {interface.in_flight_name} ? 0u : {phase} + 1u;"
