"""Rounds of a bundle: lists of any placement are in order, and the check finds every signal that is missing."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from codegen_c.program.parallel import Entry, RunStep
from codegen_c.program.rounds import Round, RoundLink, passes_on, round_of
from codegen_c.program.validate_round import round_faults

CORES = ("cpu0", "cpu1", "cpu2")
Placed = dict[str, tuple[str, ...]]


def drawn(seed: int) -> tuple[Round, Placed]:
    """A round of models and links by chance, on one to three processors, some of them shared."""
    chance = random.Random(seed)
    cores = CORES[: chance.randint(1, 3)]
    models = [f"m{index}" for index in range(chance.randint(1, 6))]
    links = [
        RoundLink(name=f"link_{number}", source=chance.choice(models), target=chance.choice(models))
        for number in range(chance.randint(0, 8))
    ]
    runs_on: Placed = {
        model: cores[: chance.randint(2, len(cores))]
        if len(cores) > 1 and chance.random() < 0.25
        else (chance.choice(cores),)
        for model in models
    }
    sequence: list[str] = []
    while len(sequence) < len(models):
        left = [model for model in models if model not in sequence]
        waiting = {link.target for link in links if passes_on(link, models) and link.source in left}
        sequence.append(chance.choice([model for model in left if model not in waiting]))
    return round_of(cores, models, links, runs_on, sequence), runs_on


@pytest.mark.parametrize("begin", range(0, 600, 200))
def test_every_placement_is_in_order(begin: int) -> None:
    for seed in range(begin, begin + 200):
        one, runs_on = drawn(seed)
        assert not round_faults(one, runs_on), seed


def without(entries: tuple[Entry, ...], signal: int) -> tuple[Entry, ...]:
    return tuple(entry for entry in entries if isinstance(entry, RunStep) or entry.signal != signal)


def test_no_signal_is_superfluous() -> None:
    """Each signal between two steps is needed: without it the check finds an order that is missing."""
    count = 0
    for seed in range(300):
        one, runs_on = drawn(seed)
        others = len(one.processors) - 1
        for signal in range(others, one.num_signals - others):
            lists = tuple(without(entries, signal) for entries in one.lists)
            (fault, *_) = round_faults(replace(one, lists=lists), runs_on)
            assert "may " in fault, seed
            count += 1
    assert count > 100


LINKS = (RoundLink(name="forward", source="a", target="b"), RoundLink(name="back", source="b", target="a"))
PLACED: Placed = {"a": ("cpu0",), "b": ("cpu1",)}


def linked() -> Round:
    return round_of(CORES[:2], ["a", "b"], LINKS, PLACED, ["a", "b"])


def changed(one: Round, number: int, entries: list[Entry]) -> Round:
    return replace(one, lists=tuple(tuple(entries) if n == number else own for n, own in enumerate(one.lists)))


def test_a_value_for_the_next_round_waits_for_its_reader() -> None:
    one = linked()
    assert one.num_signals == 3  # the command, the forward link, and the answer
    assert [step.after for step in one.steps if step.name == "back"] == [(0, 2)]
    assert round_of(CORES[:1], ["a", "b"], LINKS, {"a": ("cpu0",), "b": ("cpu0",)}, ["a", "b"]).num_signals == 0


def test_faults_are_named() -> None:
    one = linked()
    own, other = list(one.lists[0]), list(one.lists[1])
    steps = [entry for entry in other if isinstance(entry, RunStep)]
    cases = [
        (changed(one, 1, [entry for entry in other if entry != steps[0]]), "the run of b is 0 times in the list"),
        (changed(one, 1, [*other[:-1], steps[0], other[-1]]), "the run of b is 2 times in the list"),
        (changed(one, 1, other[1:]), "signals from cpu0 to cpu1 are sent as"),
        (changed(one, 1, [steps[0], *(entry for entry in other if entry != steps[0])]), "does not begin with"),
        (changed(one, 1, [*(entry for entry in other if entry != steps[1]), steps[1]]), "does not end with a signal"),
        (changed(one, 0, [own[-1], *own[:-1]]), "cpu0 waits forever at entry 0"),
    ]  # fmt: skip
    for broken, said in cases:
        assert any(said in fault for fault in round_faults(broken, PLACED)), (said, round_faults(broken, PLACED))


def test_a_shared_model_whose_part_never_comes_waits_forever() -> None:
    """The part of a shared model is ahead of a step that the run of this model waits for."""
    links = (RoundLink(name="forward", source="b", target="c"),)
    placed: Placed = {"b": ("cpu1",), "c": ("cpu0", "cpu1")}
    one = round_of(CORES[:2], ["b", "c"], links, placed, ["b", "c"])
    assert not round_faults(one, placed)
    command, *rest = one.lists[1]
    part = next(entry for entry in rest if isinstance(entry, RunStep) and one.steps[entry.index].kind == "part")
    broken = changed(one, 1, [command, part, *(entry for entry in rest if entry != part)])
    assert any("waits forever" in fault for fault in round_faults(broken, placed))
