"""Rounds of a bundle: each model runs once, on several processors at once where the links allow.

A round has one list for each processor, with the entries of `parallel`: runs of models, links that copy an output to an
input, and signals. The first processor starts a round and ends it: it commands every other processor by a signal, and
receives a signal when the list of that processor has ended, so no step runs outside of a round.

The rows of a model may be shared by several processors. Such a model is a run on the first of them and a part on each
other one; a part begins and ends inside the run, by the model's own signals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from codegen_c.program.parallel import Await, Clock, Entry, Notify, RunStep, ended, joined

_NOTHING = -1
"""Position of the last step of a processor that has surely ended, as long as none has."""

StepKind = Literal["run", "part", "link"]


@dataclass(frozen=True, kw_only=True)
class RoundLink:
    """A link between two models of a round. name: of its C function."""

    name: str
    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class RoundStep:
    """A step of a round.

    name: the model's name, or the link's. processor: its index. after: the steps that must end before this one begins.
    """

    kind: StepKind
    name: str
    processor: int
    after: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round of models.

    processors: names, the first processor's ahead of others. models: in the order of the bundle's `round`. steps: in an
    order that respects all lists. lists: entries of each processor's list; a `RunStep` has the index of a step.
    """

    processors: tuple[str, ...]
    models: tuple[str, ...]
    links: tuple[RoundLink, ...]
    steps: tuple[RoundStep, ...]
    lists: tuple[tuple[Entry, ...], ...]

    @property
    def num_signals(self) -> int:
        """Number of signals in a round, without the signals inside models that several processors share."""
        return sum(isinstance(entry, Notify) for entries in self.lists for entry in entries)

    def runs_on(self, model: str) -> tuple[str, ...]:
        """Return the processors that run a model, or parts of it."""
        return tuple(self.processors[s.processor] for s in self.steps if s.kind != "link" and s.name == model)


def round_of(
    processors: Sequence[str],
    models: Sequence[str],
    links: Sequence[RoundLink],
    runs_on: Mapping[str, Sequence[str]],
    sequence: Sequence[str],
) -> Round:
    """Return a round with as few signals as its order needs.

    models: in the order of the bundle's `round`. A link to a later model passes its value in the same round, all other
    links pass it to the next round. runs_on: the processors of each model. sequence: the models in the order in which
    each processor runs its own; the source of a link that passes its value in the same round is ahead of the target.
    """
    used = [name for name in processors if any(name in runs_on[model] for model in models)]
    names = tuple(dict.fromkeys([processors[0], *used]))
    steps = _steps(names, models, links, runs_on, sequence)
    return Round(
        processors=names, models=tuple(models), links=tuple(links), steps=tuple(steps),
        lists=_with_signals(steps, len(names)),
    )  # fmt: skip


def passes_on(link: RoundLink, models: Sequence[str]) -> bool:
    """Return True if a link passes its value in the same round. models: in the order of the bundle's `round`."""
    return models.index(link.source) < models.index(link.target)


def _steps(
    processors: Sequence[str],
    models: Sequence[str],
    links: Sequence[RoundLink],
    runs_on: Mapping[str, Sequence[str]],
    sequence: Sequence[str],
) -> list[RoundStep]:
    steps: list[RoundStep] = []
    run_of: dict[str, int] = {}
    link_of: dict[str, int] = {}
    for model in sequence:
        caller, *others = (processors.index(name) for name in runs_on[model])
        arrived = tuple(link_of[link.name] for link in links if link.target == model and link.name in link_of)
        run_of[model] = len(steps)
        steps.append(RoundStep(kind="run", name=model, processor=caller, after=arrived))
        steps += [RoundStep(kind="part", name=model, processor=other) for other in others]
        for link in links:
            # A value for the next round overwrites an input that its target may still have to read in this round.
            needed = [link.source] if passes_on(link, models) else [link.source, link.target]
            if link.name in link_of or not all(name in run_of for name in needed):
                continue
            link_of[link.name] = len(steps)
            home = processors.index(runs_on[link.source][0])
            after = tuple(sorted({run_of[name] for name in needed}))
            steps.append(RoundStep(kind="link", name=link.name, processor=home, after=after))
    return steps


def _with_signals(steps: Sequence[RoundStep], num_lists: int) -> tuple[tuple[Entry, ...], ...]:
    """Return the lists. A signal is left out if others imply it, so each channel's signals are awaited in order."""
    edges = _edges(steps, num_lists)
    begin, end = range(num_lists - 1), range(num_lists - 1 + len(edges), 2 * (num_lists - 1) + len(edges))
    lists: list[list[Entry]] = [[] for _ in range(num_lists)]
    for signal, other in zip(begin, range(1, num_lists), strict=True):
        lists[0].append(Notify(signal=signal, target=other))
        lists[other].append(Await(signal=signal, source=0))
    numbered = [(num_lists - 1 + number, *edge) for number, edge in enumerate(edges)]
    for index, step in enumerate(steps):
        own = lists[step.processor]
        own += [Await(signal=signal, source=steps[first].processor) for signal, first, second in numbered
                if second == index]  # fmt: skip
        own.append(RunStep(index=index))
        own += [Notify(signal=signal, target=steps[second].processor) for signal, first, second in numbered
                if first == index]  # fmt: skip
    for signal, other in zip(end, range(1, num_lists), strict=True):
        lists[other].append(Notify(signal=signal, target=0))
        lists[0].append(Await(signal=signal, source=other))
    return tuple(map(tuple, lists))


def _edges(steps: Sequence[RoundStep], num_lists: int) -> list[tuple[int, int]]:
    """Return the pairs of steps (first, second) between which a signal is needed, in the order of the first."""
    clocks: list[Clock] = [(_NOTHING,) * num_lists for _ in range(num_lists)]
    behind: list[Clock] = []
    found: list[tuple[int, int]] = []
    for index, step in enumerate(steps):
        clock = clocks[step.processor]
        # The latest steps first, because what their processors know may imply the earlier signals.
        for first in sorted(step.after, reverse=True):
            if clock[steps[first].processor] < first:
                found.append((first, index))
                clock = joined(clock, behind[first])
        clocks[step.processor] = ended(clock, step.processor, index)
        behind.append(clocks[step.processor])
    return sorted(found)
