"""Lists of steps as functions: the caller's `run`, and one that each other processor runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.header import serve_signature, signature
from codegen_c.emit.run_states import turn_lines
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import Step, reads, writes
from tvm_ext.core.platform import Platform

Entries = tuple[Step | str, ...]
"""Steps, and signals as statements in C."""


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenList:
    """Steps and signals of one processor in a run, or in a part of it, as a function.

    processor: its name; empty for the only one there is. signature: head of the function, without the semicolon.
    phases: entries of each phase of a pipeline, else of every run; phase: C expression of the phase that is due.
    before, behind: statements around them. begins: a run begins here; ends: it answers 0; over: a run ends here, whose
    outputs may be no answer. all_steps: of all lists.
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
        """Its steps, in one phase."""
        return [entry for entry in self.phases[0] if not isinstance(entry, str)]


def whole_list(program: Program, interface: Interface) -> WrittenList:
    """The list of the only processor there is."""
    return WrittenList(
        processor="", signature=signature(interface), phases=(program.steps,), begins=True, ends=True,
        over=True, all_steps=program.steps,
    )  # fmt: skip


def written_lists(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, platform: Platform
) -> list[list[WrittenList]]:
    """The function of each list of a program, the caller's first."""
    written = written_entries(parallel, interface, platform)
    handed = [held_names(parallel.program, plan, steps.entries) for steps in parallel.lists]
    others = dict.fromkeys(name for names in handed[1:] for name in names)
    found: list[list[WrittenList]] = []
    for number, steps in enumerate(parallel.lists):
        entries = flat(written[number])
        if number:  # behind the signal that the run has begun
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
    """Steps and signals of each list: for each of its entries that, and lines behind a step that turn rings."""
    reasons, lines = dict(_reasons(parallel)), turn_lines(parallel.program)
    behind: dict[int, list[str]] = {}
    for name, step in parallel.turns.items():
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
    """Steps and statements of entries, one behind the other."""
    return [line for entry in written for line in entry]


def held_names(program: Program, plan: MemoryPlan, entries: Sequence[Entry]) -> tuple[str, ...]:
    """Inputs and outputs in the caller's memory that steps touch."""
    steps = [program.steps[entry.index] for entry in entries if isinstance(entry, RunStep)]
    names = [name for step in steps for name in (*reads(step), *writes(step))]
    wholes = [part.tensor if (part := program.tensors[name].part) else name for name in names]
    return tuple(dict.fromkeys(name for name in wholes if name not in plan.placements))


def handed_over(parallel: ParallelProgram, plan: MemoryPlan) -> tuple[str, ...]:
    """Inputs and outputs in the caller's memory that are touched by more than the function that is given them."""
    at = parallel.take_begins if parallel.phases else len(parallel.lists[0].entries)
    later = [parallel.lists[0].entries[at:], *(steps.entries for steps in parallel.lists[1:])]
    return tuple(dict.fromkeys(name for entries in later for name in held_names(parallel.program, plan, entries)))


def taken(interface: Interface, name: str, phase: str = "") -> str:
    """Declaration of a pointer that the caller handed to this run. phase: index of a pipeline's input, in brackets."""
    port = next(port for port in (*interface.inputs, *interface.outputs) if port.name == name)
    qualifier = "const " if port in interface.inputs else ""
    return f"{qualifier}{port.c_type} *const {name} = {interface.model}_handed{phase}.{name};"


def channel_name(model: str, source: str, target: str) -> str:
    """C name of the channel from one processor to another."""
    return f"{model}_{source}_to_{target}"


def _written(
    parallel: ParallelProgram, platform: Platform, model: str, number: int, entry: Entry, reasons: dict[int, str]
) -> Step | str:
    if isinstance(entry, RunStep):
        return parallel.program.steps[entry.index]
    own, sends = parallel.lists[number].processor, isinstance(entry, Notify)
    other = parallel.lists[entry.target if isinstance(entry, Notify) else entry.source].processor
    source, target = (own, other) if sends else (other, own)
    function = "tvm_ext_notify" if sends else "tvm_ext_await"
    calls = [f"{function}(&{channel_name(model, source, target)});"]
    signal = platform.signal_between(source, target)
    if signal and sends and signal.set_address is not None:
        calls.append(f"tvm_ext_ring(0x{signal.set_address:08x}u);")
    if signal and not sends and signal.clear_address is not None:
        calls.append(f"tvm_ext_answer(0x{signal.clear_address:08x}u);")
    return f"{' '.join(calls)} /* {reasons[entry.signal]} */"


def _reasons(parallel: ParallelProgram) -> Iterator[tuple[int, str]]:
    """For each signal, what has been done when it is sent."""
    for steps in parallel.lists:
        last = "the run begins"
        for entry in steps.entries:
            if isinstance(entry, RunStep):
                last = f"{parallel.program.steps[entry.index].name} is done"
            elif isinstance(entry, Notify):
                yield entry.signal, last
