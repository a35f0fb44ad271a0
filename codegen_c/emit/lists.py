"""Lists of steps as functions: the caller's `run`, and one that each other processor runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.header import serve_signature, signature
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import Entry, Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program, Step, reads, writes
from tvm_ext.core.platform import Platform


@dataclass(frozen=True, kw_only=True, eq=False)
class WrittenList:
    """Steps and signals of one processor in a run. entries: steps, and signals as statements in C.

    processor: its name; empty for the only one there is. all_steps: of all lists.
    """

    processor: str
    is_callers: bool
    entries: tuple[Step | str, ...]
    all_steps: tuple[Step, ...]

    @property
    def steps(self) -> list[Step]:
        return [entry for entry in self.entries if not isinstance(entry, str)]

    def signature(self, interface: Interface) -> str:
        """Head of its function, without the semicolon."""
        return signature(interface) if self.is_callers else serve_signature(interface, self.processor)


def whole_list(program: Program) -> WrittenList:
    """The list of the only processor there is."""
    return WrittenList(processor="", is_callers=True, entries=program.steps, all_steps=program.steps)


def written_lists(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, platform: Platform
) -> tuple[WrittenList, ...]:
    """All lists of a program, the caller's first."""
    reasons = dict(_reasons(parallel))
    handed = [handed_in(parallel, plan, number) for number in range(len(parallel.lists))]
    found: list[WrittenList] = []
    for number, steps in enumerate(parallel.lists):
        entries = [_written(parallel, platform, interface.model, number, e, reasons) for e in steps.entries]
        if number:  # behind the signal that the run has begun
            entries[1:1] = [_taken(interface, name) for name in handed[number]]
        else:
            others = dict.fromkeys(name for names in handed[1:] for name in names)
            entries = [*(f"{interface.model}_handed.{name} = {name};" for name in others), *entries]
        found.append(
            WrittenList(
                processor=steps.processor, is_callers=number == 0, entries=tuple(entries),
                all_steps=parallel.program.steps,
            )
        )  # fmt: skip
    return tuple(found)


def handed_in(parallel: ParallelProgram, plan: MemoryPlan, number: int) -> tuple[str, ...]:
    """Inputs and outputs in the caller's memory that steps of a list touch."""
    program = parallel.program
    steps = [program.steps[e.index] for e in parallel.lists[number].entries if isinstance(e, RunStep)]
    names = [name for step in steps for name in (*reads(step), *writes(step))]
    wholes = [part.tensor if (part := program.tensors[name].part) else name for name in names]
    return tuple(dict.fromkeys(name for name in wholes if name not in plan.placements))


def _taken(interface: Interface, name: str) -> str:
    """Declaration of a pointer that the caller handed to this run."""
    port = next(port for port in (*interface.inputs, *interface.outputs) if port.name == name)
    qualifier = "const " if port in interface.inputs else ""
    return f"{qualifier}{port.c_type} *const {name} = {interface.model}_handed.{name};"


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
