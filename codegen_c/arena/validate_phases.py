"""Rules for the phases and the signals of a pipeline; part of the validator of successive inputs."""

from __future__ import annotations

from codegen_c.program.parallel import Notify, ParallelProgram, RunStep
from codegen_c.program.steps import calls, reads, writes
from tvm_ext.core.errors import PlanRejected


def check_phases(parallel: ParallelProgram) -> None:
    """Raises PlanRejected where a phase does not run the program's steps over its own tensors."""
    program, count = parallel.program, len(parallel.phases)
    owners: dict[str, str] = {}
    for name, copies in parallel.copies.items():
        if len(copies) != count or copies[0] != name:
            raise PlanRejected(f"{program.name}: {name} has places {', '.join(copies)} for {count} inputs in flight.")
        for copy in copies:
            if owners.setdefault(copy, name) != name or (copy != name and copy in parallel.copies):
                raise PlanRejected(f"{program.name}: {copy} is a place of {owners[copy]}, and of {name}.")
            one, other = program.tensors[copy], program.tensors[name]
            if (one.shape, one.dtype, one.memory) != (other.shape, other.dtype, other.memory):
                raise PlanRejected(f"{program.name}: {copy} is no place for {name}: it differs in bytes or memory.")
    for number, steps in enumerate(parallel.phases):
        names = {name: copies[number] for name, copies in parallel.copies.items()}
        if [step.name for step in steps] != [step.name for step in program.steps]:
            raise PlanRejected(f"{program.name}: phase {number} does not run the program's steps in their order.")
        for step, own in zip(steps, program.steps, strict=True):
            wanted = [[names.get(name, name) for name in used(own)] for used in (reads, writes)]
            if [list(reads(step)), list(writes(step))] != wanted:
                raise PlanRejected(
                    f"{program.name}: {step.name} of phase {number} touches "
                    f"{', '.join((*reads(step), *writes(step)))}; {', '.join(wanted[0] + wanted[1])} are its own."
                )


def check_transfers(parallel: ParallelProgram) -> None:
    """Raises PlanRejected where transfers that go on are of both puts and takes: they end as they start, by number."""
    at, own = parallel.take_begins, parallel.lists[0]
    found = [
        own.entries.index(entry) >= at
        for entry in own.entries
        if isinstance(entry, RunStep)
        for call in calls(parallel.program.steps[entry.index])
        if getattr(call, "number", None) is not None or hasattr(call, "transfers")
    ]
    if len(set(found)) > 1:
        raise PlanRejected(
            f"{own.processor} has transfers that go on when an input is put, and when one is taken: those of the next "
            "input may come between."
        )


def check_channels(parallel: ParallelProgram) -> None:
    """Raises PlanRejected where both putting and taking send on a channel: the next put may come before the take."""
    at, own = parallel.take_begins, parallel.lists[0]
    put = {entry.target for entry in own.entries[:at] if isinstance(entry, Notify)}
    take = {entry.target for entry in own.entries[at:] if isinstance(entry, Notify)}
    for target in sorted(put & take):
        raise PlanRejected(
            f"{own.processor} signals {parallel.lists[target].processor} when an input is put, and again when one is "
            "taken: signals of the next input may come between."
        )
