"""A proposal of a guide for a whole assignment: all choices are rated at once, then put in where there is room.

The guide rates every choice of every item by its features (`place_facts`): how likely a search takes it. Choices are
put in by that and by what they save, as far as memories have room; then what its transfers make slower is put home
again. Little is timed, which is where a search spends its time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from relay_passes.solvers.memories.menus import Menus
from relay_passes.solvers.memories.place_facts import MEAN_SAVED, Candidate, candidates, facts_of
from relay_passes.solvers.memories.state import Choice, Item, State

Rate = Callable[[np.ndarray], np.ndarray]
"""float[choices, NUM_FACTS] -> float[choices]: how likely a search takes each choice, about 0 to 1."""
LEAST_SURE = 0.01
"""Likelihood and saving that the order counts with at the least, of a choice that a guide expects nowhere."""


def propose(state: State, menus: Menus, rate: Rate) -> None:
    """Changes a state that has everything at home to what a guide proposes; no limit is exceeded by it."""
    choices = candidates(state, menus)
    if not choices:
        return
    facts = facts_of(state, choices)
    sure = np.clip(rate(facts), LEAST_SURE, 1)
    order = np.argsort(-sure * sure * np.maximum(facts[:, MEAN_SAVED], LEAST_SURE), kind="stable")
    home = dict(state.choices)
    _put_in(state, [choices[row] for row in order.tolist()])
    state.settle()
    _take_back(state, home)


def _put_in(state: State, ranked: Sequence[Candidate]) -> None:
    """Takes for each item the first of its choices that fits."""
    overflow = state.overflow()
    decided: set[Item] = set()
    for item, choice in ranked:
        if item in decided:
            continue
        before = state.choices[item]
        state.set(item, choice)
        after = state.overflow()
        if after > overflow:
            state.set(item, before)
        else:
            overflow = after
            decided.add(item)


def _take_back(state: State, home: Mapping[Item, Choice]) -> None:
    """Puts items home again whose transfers take longer than they save."""
    best = state.score()
    for item, choice in home.items():
        kept = state.choices[item]
        if kept != choice and state.share(item, kept).transfers:
            state.set(item, choice)
            overflow = state.overflow()
            if overflow <= best.overflow and (score := state.score_with(overflow)) < best:
                best = score
                state.settle()
            else:
                state.set(item, kept)
