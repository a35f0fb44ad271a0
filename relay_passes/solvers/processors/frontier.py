"""Partial assignments, extended task by task: of two with the same future, the one that is nowhere better is dropped.

A label is a partial assignment. Its future is known from its key; its costs say how soon, or how cheaply, the future
may go on. Labels with a bound no better than an answer that is there are dropped, and beyond a width those with the
largest bounds: the least bound among the latter is one that no assignment goes below. In networks few values are alive
at a time, so few labels differ in their keys, and the search often ends with a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Inner = TypeVar("Inner")


@dataclass(slots=True, eq=False)
class Label(Generic[Inner]):
    """A task and its form, appended to an earlier label.

    inner: the state of what is appended so far. promise: about what it ends with; of equal bounds, less goes first.
    """

    key: Hashable
    costs: tuple[int, ...]
    bound: int
    inner: Inner
    promise: int = 0
    task: int = -1
    form: int = -1
    before: Label[Inner] | None = field(default=None, repr=False)

    def choices(self) -> tuple[tuple[int, int], ...]:
        """Tasks in the order in which they were appended, with their forms."""
        found: list[tuple[int, int]] = []
        label = self
        while label.before is not None:
            found.append((label.task, label.form))
            label = label.before
        return tuple(reversed(found))


@dataclass(frozen=True, kw_only=True)
class Swept(Generic[Inner]):
    """The best complete label better than what was there, if any; a bound; how many labels were made."""

    best: Label[Inner] | None
    bound: int
    labels: int


def sweep(
    start: Label[Inner],
    extend: Callable[[Label[Inner], int], tuple[Iterable[Label[Inner]], bool]],
    count: int,
    most: int,
    width: int,
) -> Swept[Inner]:
    """Appends `count` tasks to labels with a bound below `most`, keeping no more than `width` of each number of tasks.

    extend: labels one task on, of that many tasks at most, and whether that is all of them.
    """
    kept, dropped, made = [start], most, 0
    for _ in range(count):
        groups: dict[Hashable, list[Label[Inner]]] = {}
        for label in kept:
            extended, is_all = extend(label, width)
            if not is_all:
                dropped = min(dropped, label.bound)
            for new in extended:
                made += 1
                if new.bound < most:
                    _insert(groups.setdefault(new.key, []), new)
        labels = [label for group in groups.values() for label in group]
        labels.sort(key=lambda label: (label.bound, label.promise, sum(label.costs)))
        kept = labels[:width]
        if len(labels) > width:
            dropped = min(dropped, labels[width].bound)
    best = kept[0] if kept else None
    return Swept(best=best, bound=min(dropped, best.bound if best else most), labels=made)


def _insert(group: list[Label[Inner]], new: Label[Inner]) -> None:
    """Adds a label unless another of its key is nowhere worse; removes those that are nowhere better."""
    costs = new.costs
    for label in group:
        if all(map(int.__le__, label.costs, costs)):
            return
    group[:] = [label for label in group if not all(map(int.__le__, costs, label.costs))]
    group.append(new)
