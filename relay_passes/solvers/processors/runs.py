"""Order tasks in few runs. A run is a sequence of tasks of one processor without other tasks between."""

from __future__ import annotations

from collections.abc import Sequence


def in_runs(makers: Sequence[Sequence[int]], processors: Sequence[int]) -> tuple[int, ...]:
    """Return the tasks, each after the tasks whose values it reads, in the fewest runs found.

    makers: the tasks whose values each task reads; the tasks stand in a valid order.
    processors: of each task.
    A run takes every task that it can. The next run is that of the first remaining task, or the longest possible run.
    The given order stays where no other order has fewer runs.
    """
    given = tuple(range(len(makers)))
    orders = [given, *(_ordered(makers, processors, first, longest) for first in set(processors) for longest in (0, 1))]
    return min(orders, key=lambda order: (num_runs(order, processors), order))


def num_runs(order: Sequence[int], processors: Sequence[int]) -> int:
    """Return the number of runs of an order."""
    before = [None, *(processors[task] for task in order[:-1])]
    return sum(processors[task] != other for task, other in zip(order, before, strict=True)) if order else 0


def _ordered(
    makers: Sequence[Sequence[int]], processors: Sequence[int], first: int, longest: bool | int
) -> tuple[int, ...]:
    left, order, processor = list(range(len(makers))), list[int](), first
    while left:
        run = _run(makers, processors, left, set(order), processor)
        order += run
        left = [task for task in left if task not in run]
        if not left:
            break
        done, others = set(order), dict.fromkeys(processors[task] for task in left if processors[task] != processor)
        runs = {other: _run(makers, processors, left, done, other) for other in others}
        able = {other: taken for other, taken in runs.items() if taken}
        processor = max(able, key=lambda other: (len(able[other]), -able[other][0])) if longest else _first(able)
    return tuple(order)


def _first(able: dict[int, list[int]]) -> int:
    return min(able, key=lambda other: able[other][0])


def _run(
    makers: Sequence[Sequence[int]], processors: Sequence[int], left: Sequence[int], done: set[int], processor: int
) -> list[int]:
    """Return all remaining tasks that a processor can run by itself, in their order."""
    run, known = list[int](), set(done)
    for task in left:
        if processors[task] == processor and known.issuperset(makers[task]):
            run.append(task)
            known.add(task)
    return run
