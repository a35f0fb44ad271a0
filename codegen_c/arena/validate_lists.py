"""Rules for the lists of a parallel program, and the order that they guarantee; part of the validator of that order.

Lists are played once. A list waits only for signals, each of which is sent at one place: however fast processors are,
they come as far, so a play that ends proves that every run does.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from codegen_c.program.parallel import Await, Notify, ParallelProgram, RunStep
from codegen_c.program.steps import KernelCall, Transfer, calls
from tvm_ext.core.errors import PlanRejected


@dataclass(frozen=True, kw_only=True)
class Moment:
    """An entry of a list as it was played. seen: per list, how many of its entries are surely done when it ends."""

    number: int
    position: int
    seen: tuple[int, ...]


def play(parallel: ParallelProgram) -> list[tuple[int, Moment]]:
    """Steps and their moments, in an order in which they may run.

    Raises PlanRejected for what is missing, there twice or never reached, and for steps outside of the run.
    """
    check_entries(parallel)
    moments, last = _played(parallel)
    _check_inside(parallel, moments, last)
    return [
        (entry.index, moment)
        for moment in moments
        if isinstance(entry := parallel.lists[moment.number].entries[moment.position], RunStep)
    ]


def check_entries(parallel: ParallelProgram) -> None:
    """Raises PlanRejected where a step or signal is not used once, or not as the other end has it."""
    if not parallel.lists:
        raise PlanRejected(f"{parallel.program.name}: no processor runs it.")
    names = [steps.processor for steps in parallel.lists]
    if len(set(names)) < len(names):
        raise PlanRejected(f"{parallel.program.name}: two lists are of one processor; its lists are {names}.")
    ran: dict[int, str] = {}
    sent: dict[int, tuple[int, int, str]] = {}
    awaited: dict[int, tuple[int, int, str]] = {}
    for number, steps in enumerate(parallel.lists):
        for position, entry in enumerate(steps.entries):
            where = f"{steps.processor}, entry {position}"
            if isinstance(entry, RunStep):
                if not 0 <= entry.index < len(parallel.program.steps):
                    raise PlanRejected(f"{where}: there is no step {entry.index}.")
                if entry.index in ran:
                    raise PlanRejected(f"{where}: runs {_step(parallel, entry.index)}, as {ran[entry.index]} does.")
                ran[entry.index] = where
                _check_processor(parallel, entry.index, number, where)
                continue
            other = entry.target if isinstance(entry, Notify) else entry.source
            if not 0 <= other < len(names) or other == number:
                raise PlanRejected(f"{where}: signal {entry.signal} needs another list, and names list {other}.")
            used, ends = (sent, (number, other)) if isinstance(entry, Notify) else (awaited, (other, number))
            if entry.signal in used:
                done = "sends" if isinstance(entry, Notify) else "awaits"
                raise PlanRejected(f"{where}: {done} signal {entry.signal}, as {used[entry.signal][2]} does.")
            used[entry.signal] = (*ends, where)
    for index in range(len(parallel.program.steps)):
        if index not in ran:
            raise PlanRejected(f"{_step(parallel, index)} is in no list.")
    _check_signals(sent, awaited, names)


def _check_processor(parallel: ParallelProgram, index: int, number: int, where: str) -> None:
    for call in calls(parallel.program.steps[index]):
        if isinstance(call, KernelCall | Transfer) and call.processor not in ("", parallel.lists[number].processor):
            kind = "kernel" if isinstance(call, KernelCall) else "copy"
            raise PlanRejected(f"{where}: runs {_step(parallel, index)}, a {kind} for {call.processor}.")
        if number and isinstance(call, KernelCall) and call.implementation.callback:
            raise PlanRejected(
                f"{where}: runs {_step(parallel, index)}, a function of the application, which "
                f"{parallel.lists[0].processor} alone may call."
            )


def _check_signals(
    sent: dict[int, tuple[int, int, str]], awaited: dict[int, tuple[int, int, str]], names: list[str]
) -> None:
    for signal, (source, target, where) in sent.items():
        if signal not in awaited:
            raise PlanRejected(f"{where}: nothing awaits signal {signal}; the next run would find it.")
        if awaited[signal][:2] != (source, target):
            raise PlanRejected(
                f"{where}: signal {signal} goes to {names[target]}, and {awaited[signal][2]} awaits it from "
                f"{names[awaited[signal][0]]}."
            )
    for signal, (_, _, where) in awaited.items():
        if signal not in sent:
            raise PlanRejected(f"{where}: nothing sends signal {signal}.")
    for ends in sorted({pair[:2] for pair in sent.values()}):
        order = [signal for signal, pair in sent.items() if pair[:2] == ends]
        for found, wanted in zip([s for s, pair in awaited.items() if pair[:2] == ends], order, strict=True):
            if found != wanted:
                raise PlanRejected(
                    f"{awaited[found][2]}: awaits signal {found} of {names[ends[0]]}, which sends {wanted} before it; "
                    "a channel counts signals, and takes the one for the other."
                )


def _played(parallel: ParallelProgram) -> tuple[list[Moment], list[tuple[int, ...]]]:
    """All entries in an order in which they may run, and what each list has seen at its end."""
    count = len(parallel.lists)
    position = [0] * count
    seen = [tuple(0 for _ in range(count)) for _ in range(count)]
    known: dict[int, tuple[int, ...]] = {}
    moments: list[Moment] = []
    while (number := _next(parallel, position, known)) is not None:
        entry = parallel.lists[number].entries[position[number]]
        others = known[entry.signal] if isinstance(entry, Await) else seen[number]
        own = tuple(position[number] + 1 if index == number else 0 for index in range(count))
        seen[number] = tuple(max(counts) for counts in zip(seen[number], others, own, strict=True))
        if isinstance(entry, Notify):
            known[entry.signal] = seen[number]
        moments.append(Moment(number=number, position=position[number], seen=seen[number]))
        position[number] += 1
    waits = [_waits(parallel, number, at) for number, at in enumerate(position)]
    stuck = [text for text in waits if text]
    if stuck:
        raise PlanRejected(f"{parallel.program.name}: waits for ever: {'; '.join(stuck)}.")
    return moments, seen


def _next(parallel: ParallelProgram, position: list[int], sent: Container[int]) -> int | None:
    """List whose turn it is: one with a signal to send or to take, else that of the first step; None if all wait."""
    found: dict[int, int] = {}
    for number, steps in enumerate(parallel.lists):
        if position[number] == len(steps.entries):
            continue
        entry = steps.entries[position[number]]
        if isinstance(entry, RunStep):
            found[entry.index] = number
        elif isinstance(entry, Notify) or entry.signal in sent:
            return number
    return found[min(found)] if found else None


def _waits(parallel: ParallelProgram, number: int, position: int) -> str:
    """Reason for which a list does not go on; empty at its end."""
    steps = parallel.lists[number]
    if position == len(steps.entries):
        return ""
    entry = steps.entries[position]
    assert isinstance(entry, Await), "nothing else blocks"
    return f"{steps.processor}, entry {position}, for signal {entry.signal} of {parallel.lists[entry.source].processor}"


def _check_inside(parallel: ParallelProgram, moments: list[Moment], last: list[tuple[int, ...]]) -> None:
    """Raises PlanRejected for entries that may come before the begin of the run, or after its end."""
    caller = parallel.lists[0].processor
    for moment in moments:
        steps = parallel.lists[moment.number]
        entry = steps.entries[moment.position]
        if moment.number and not moment.seen[0]:
            done = _step(parallel, entry.index) if isinstance(entry, RunStep) else f"signal {entry.signal}"
            raise PlanRejected(
                f"{steps.processor}, entry {moment.position}: {done} does not wait for the begin of the run, which "
                f"{caller} has to signal."
            )
    for number, steps in enumerate(parallel.lists):
        if last[0][number] < len(steps.entries):
            entry = steps.entries[last[0][number]]
            done = _step(parallel, entry.index) if isinstance(entry, RunStep) else f"signal {entry.signal}"
            raise PlanRejected(
                f"{steps.processor}, entry {last[0][number]}: {done} may come after the end of the run; {caller} does "
                "not wait for it."
            )


def _step(parallel: ParallelProgram, index: int) -> str:
    return f"step {index} ({parallel.program.steps[index].name})"
