"""Offsets below a capacity for buffers some of which may overlap in one of several ways: which way is decided here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from codegen_c.arena.exact import place_below
from codegen_c.arena.problem import Buffer, Choice, Distances

Neighbours = Sequence[Mapping[int, int]]

MOST_SEARCHES = 64
MOST_UNDECIDED = 8
"""Ways to take the choices that a search may go through, and how many of them without an answer."""


@dataclass(frozen=True, kw_only=True)
class Feasibility:
    """The answer of a search below a capacity.

    offsets: those found, if any. exhausted: there are none at all.
    """

    offsets: list[int] | None = None
    exhausted: bool = False


def decide(
    buffers: Sequence[Buffer], near: Neighbours, choices: Sequence[Choice], capacity: int, most_nodes: int
) -> Feasibility:
    """Complete search, as far as most_nodes go for each way to take the choices.

    Whatever a choice allows is allowed at first; where the offsets then fit none of its distances, each is tried.
    """
    undecided = 0
    open_cases: list[dict[int, int]] = [{}]
    for _ in range(MOST_SEARCHES):
        if not open_cases or undecided == MOST_UNDECIDED:
            return Feasibility(exhausted=undecided == 0)
        taken = open_cases.pop()
        outcome = place_below(buffers, _allowed(near, choices, taken), capacity, most_nodes)
        if outcome.offsets is None:
            undecided += not outcome.exhausted
            continue
        broken = next((i for i in range(len(choices)) if not _fits(choices[i], near, outcome.offsets)), None)
        if broken is None:
            return Feasibility(offsets=list(outcome.offsets))
        if broken in taken:
            return Feasibility()
        open_cases += [{**taken, broken: index} for index in reversed(range(len(choices[broken])))]
    return Feasibility()


def _allowed(near: Neighbours, choices: Sequence[Choice], taken: Mapping[int, int]) -> Distances:
    """Least distances, by pair, that the choices still open allow."""
    allowed: dict[tuple[int, int], int] = {}
    for number, choice in enumerate(choices):
        ways = [choice[taken[number]]] if number in taken else choice
        for lower, upper in {pair for way in ways for pair in way}:
            if upper in near[lower]:
                allowed[lower, upper] = min(way.get((lower, upper), near[lower][upper]) for way in ways)
    return allowed


def _fits(choice: Choice, near: Neighbours, offsets: Sequence[int]) -> bool:
    """True if all pairs of a choice keep the distances of one of its ways."""
    pairs = {pair for way in choice for pair in way}
    pairs = {(a, b) for a, b in pairs if b in near[a]}
    return any(all(_apart(a, b, way, near, offsets) for a, b in pairs) for way in choice)


def _apart(a: int, b: int, way: Distances, near: Neighbours, offsets: Sequence[int]) -> bool:
    above, below = way.get((a, b), near[a][b]), way.get((b, a), near[b][a])
    return offsets[a] + above <= offsets[b] or offsets[b] + below <= offsets[a]
