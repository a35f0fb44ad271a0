"""Distribute a program over several processors, with a signal wherever the order of two steps matters.

If two steps touch the same byte and one of them writes it, the first step must end before the other begins: either a
value crosses processors, or bytes are reused that another processor still reads. Signals that follow from others and
from the schedules are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from codegen_c.program.accesses import Access, Places, accesses
from codegen_c.program.parallel import (
    BEGIN,
    Await,
    Clock,
    Entry,
    Notify,
    ParallelProgram,
    RunStep,
    StepList,
    ended,
    first_clock,
    joined,
)
from codegen_c.program.program import Program
from codegen_c.program.steps import calls, transfers_of
from tvm_ext.core.errors import PlanRejected


@dataclass(frozen=True, kw_only=True)
class _Edge:
    """A signal from after step `source` of one schedule to before step `target` of another.

    BEGIN is the begin of the run and the number of steps is its end; both are in the caller's schedule.
    """

    source: int
    target: int
    source_list: int
    target_list: int


def lists_of(program: Program, processors: Sequence[str], assignment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the names of each processor's steps in the program's order.

    assignment: processor by step; by default the first processor.
    """
    return {
        processor: [step.name for step in program.steps if assignment.get(step.name, processors[0]) == processor]
        for processor in processors
    }


def share_steps(
    program: Program,
    lists: Mapping[str, Sequence[str]],
    places: Places | None = None,
    ahead: Iterable[tuple[str, str]] = (),
) -> ParallelProgram:
    """Return the program as per-core schedules. lists: names of each processor's steps in order, the caller's first.

    places: offsets of all tensors in the plan for one processor; signals then also order steps that share bytes.
    Without offsets, signals only order values, and memory must be planned for them. ahead: more pairs of steps, the
    second of which waits for the first, which is earlier in the program. Raises PlanRejected if the schedules are not
    possible.
    """
    _check_names(program, lists)
    program = _in_one_order(program, list(lists.values()))
    home_of = {name: number for number, names in enumerate(lists.values()) for name in names}
    home = [home_of[step.name] for step in program.steps]
    _check_transfers(program, home)
    needed = _needed(program, home, places)
    index = {step.name: number for number, step in enumerate(program.steps)}
    for first, second in ahead:
        before = needed[index[second]]
        before[home_of[first]] = max(before.get(home_of[first], BEGIN), index[first])
    edges = _reduced(needed, home, len(lists))
    return ParallelProgram(program=program, lists=_with_signals(list(lists), home, edges))


def _check_names(program: Program, lists: Mapping[str, Sequence[str]]) -> None:
    wanted, given = sorted(step.name for step in program.steps), sorted(n for names in lists.values() for n in names)
    if not lists or wanted != given:
        off = sorted({name for name in {*wanted, *given} if wanted.count(name) != 1 or given.count(name) != 1})
        raise PlanRejected(
            f"{program.name}: steps that are not in exactly one per-core schedule: {', '.join(off) or 'all'}."
        )


def _check_transfers(program: Program, home: Sequence[int]) -> None:
    """Raise PlanRejected if several processors have asynchronous transfers, which end in the order they start."""
    owners = {
        home[index]: step.name
        for index, step in enumerate(program.steps)
        for call in calls(step)
        if any(transfer.number is not None for transfer in transfers_of(call))
    }
    if len(owners) > 1:
        raise PlanRejected(
            f"{program.name}: {' and '.join(sorted(owners.values()))} start or wait for transfers on different "
            "processors; assign all of them to one."
        )


def _in_one_order(program: Program, lists: Sequence[Sequence[str]]) -> Program:
    """Return the program with its steps in an order that respects all schedules, as close to its own as possible."""
    index = {step.name: number for number, step in enumerate(program.steps)}
    after: list[set[int]] = [set() for _ in program.steps]
    for names in lists:
        for first, second in pairwise(names):
            after[index[first]].add(index[second])
    touched: dict[tuple[str, str], list[tuple[int, Access]]] = {}
    for number, step in enumerate(program.steps):
        for access in accesses(program, step):
            earlier = touched.setdefault(access.space, [])
            for other, before in earlier:
                if other != number and access.conflicts(before):
                    after[other].add(number)
            earlier.append((number, access))
    waiting = [0] * len(after)
    for followers in after:
        for number in followers:
            waiting[number] += 1
    ready = [number for number, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        # The lowest index first, to stay close to the program's own order.
        number = heapq.heappop(ready)
        order.append(number)
        for follower in sorted(after[number]):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                heapq.heappush(ready, follower)
    if len(order) < len(after):
        stuck = ", ".join(program.steps[number].name for number, count in enumerate(waiting) if count)
        raise PlanRejected(f"{program.name}: in these schedules {stuck} wait for each other. Keep the program's order.")
    return replace(program, steps=tuple(program.steps[number] for number in order))


def _needed(program: Program, home: Sequence[int], places: Places | None) -> list[dict[int, int]]:
    """Return for each step, and the end of the run, the last step of each other schedule that must end first."""
    table = [(index, a) for index, step in enumerate(program.steps) for a in accesses(program, step, places)]
    spaces = {space: number for number, space in enumerate(dict.fromkeys(access.space for _, access in table))}
    rows = np.array(
        [(index, home[index], spaces[a.space], a.low, a.high, a.writes) for index, a in table], np.int64
    ).reshape(-1, 6)
    found: list[dict[int, int]] = [{0: BEGIN} if number else {} for number in home]
    for index, access in table:
        earlier = rows[: np.searchsorted(rows[:, 0], index)]
        # A fast test of ranges in numpy; `Access.meets` then also compares pitches.
        meets = (earlier[:, 1] != home[index]) & (earlier[:, 2] == spaces[access.space])
        meets &= (earlier[:, 3] < access.high) & (access.low < earlier[:, 4])
        meets &= (earlier[:, 5] == 1) | access.writes
        for number in reversed(np.flatnonzero(meets).tolist()):
            other, before = table[number]
            if found[index].get(home[other], BEGIN) < other and access.meets(before):
                found[index][home[other]] = other
    found.append({number: index for index, number in enumerate(home) if number})
    return found


def _reduced(needed: Sequence[Mapping[int, int]], home: Sequence[int], num_lists: int) -> list[_Edge]:
    """Return the signals that others and the schedules do not imply. This set is unique for a partial order."""
    edges: list[_Edge] = []
    clocks = [first_clock(num_lists, number) for number in range(num_lists)]
    behind: dict[int, Clock] = {BEGIN: clocks[0]}
    for target, number in enumerate([*home, 0]):
        clock = clocks[number]
        # The latest steps first: their clocks may already imply the earlier signals.
        for source_list, source in sorted(needed[target].items(), key=lambda item: -item[1]):
            if clock[source_list] < source:
                edges.append(_Edge(source=source, target=target, source_list=source_list, target_list=number))
                clock = joined(clock, behind[source])
        behind[target] = clocks[number] = ended(clock, number, target)
    return edges


def _with_signals(processors: Sequence[str], home: Sequence[int], edges: Sequence[_Edge]) -> tuple[StepList, ...]:
    """Return the schedules with their signals, which are numbered in the order in which they are sent."""
    entries: list[list[Entry]] = [[] for _ in processors]
    awaited: dict[int, list[Entry]] = {}
    sent: dict[int, list[Entry]] = {}
    for signal, edge in enumerate(sorted(edges, key=lambda edge: (edge.source, edge.target))):
        awaited.setdefault(edge.target, []).append(Await(signal=signal, source=edge.source_list))
        sent.setdefault(edge.source, []).append(Notify(signal=signal, target=edge.target_list))
    for index, number in enumerate([0, *home, 0], start=BEGIN):
        runs = [RunStep(index=index)] if 0 <= index < len(home) else []
        entries[number] += [*awaited.get(index, ()), *runs, *sent.get(index, ())]
    return tuple(
        StepList(processor=processor, entries=tuple(listed))
        for processor, listed in zip(processors, entries, strict=True)
    )
