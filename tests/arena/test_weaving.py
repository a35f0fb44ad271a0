"""Moves and fetches among the steps: where each transfer starts, and at which step it is waited for at the latest."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from codegen_c.lowering.transfers import MOST_REPEATED_BYTES, Move, Prefetch, with_transfers
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Transfer, Wait
from codegen_c.program.tensors import Constant
from tests.arena.programs import call, program
from tvm_ext.core.platform import Platform

SIZES = dict.fromkeys(("x", "a", "b", "c", "d", "y", "slow", "other"), 16)
STEPS = (
    call("s0", "x", "a"),
    call("s1", "a", "b"),
    call("s2", "b", "c"),
    call("s3", "c", "d"),
    call("s4", "d slow", "y"),
)
MADE = program(SIZES, *STEPS, memory={"slow": "flash", "other": "flash"})


def platform(*, dma: bool = True) -> Platform:
    """Any two memories have a link."""
    return cast(Platform, SimpleNamespace(link_between=lambda *_: SimpleNamespace(dma=dma)))


def woven(*moves: Move, of: Program = MADE, dma: bool = True, **prefetches: Prefetch) -> Program:
    return with_transfers(of, moves, prefetches, platform(dma=dma), set())


def order(made: Program) -> list[str]:
    return [step.name for step in made.steps]


def to_slow(index: int, within: int | None) -> Move:
    return Move(source="a", target="slow", index=index, within=within)


@pytest.mark.parametrize(
    ("within", "waits_before"), [(0, "s1"), (1, "s2"), (2, "s3"), (3, "s4"), (4, "s4"), (None, "s4")]
)
def test_a_move_is_waited_for_within_so_many_steps_or_where_it_is_read(within: int | None, waits_before: str) -> None:
    names = order(woven(to_slow(1, within)))
    assert names.index("move_slow") == 1
    assert names[names.index("wait_slow") + 1] == waits_before


def test_what_nobody_reads_is_waited_for_at_the_end() -> None:
    unread = replace(MADE, steps=(*STEPS[:4], call("s4", "d", "y")))
    assert order(woven(to_slow(1, None), of=unread))[-1] == "wait_slow"
    assert order(woven(to_slow(5, None), of=unread))[-2:] == ["move_slow", "wait_slow"]


def test_a_move_of_what_is_on_its_way_waits_for_it_first() -> None:
    """slow is read by the second move before a step reads it."""
    second = Move(source="slow", target="other", index=2, within=1)
    names = order(woven(to_slow(1, None), second))
    assert names == ["s0", "move_slow", "s1", "wait_slow", "move_other", "s2", "wait_other", "s3", "s4"]
    assert order(woven(second, to_slow(1, None))) == names
    earlier = order(woven(to_slow(1, 5), replace(second, index=3)))
    assert earlier.index("wait_slow") == earlier.index("move_other") - 1 == 4


def test_transfers_of_one_place_start_in_the_order_in_which_they_end() -> None:
    made = woven(Move(source="a", target="other", index=1, within=3), to_slow(1, 1))
    assert order(made)[1:3] == ["move_slow", "move_other"]
    assert [step.number for step in made.steps if isinstance(step, Transfer)] == [0, 1]
    waited = [transfer for step in made.steps if isinstance(step, Wait) for transfer in step.transfers]
    assert [(transfer.name, transfer.number) for transfer in waited] == [("move_slow", 0), ("move_other", 1)]


def test_transfers_that_end_at_one_place_are_one_wait() -> None:
    made = woven(Move(source="a", target="other", index=1, within=1), to_slow(1, 1))
    assert order(made) == ["s0", "move_other", "move_slow", "s1", "wait_slow", "s2", "s3", "s4"]


def test_the_processor_waits_for_nothing_that_it_copies_itself() -> None:
    made = woven(to_slow(1, 1), dma=False)
    assert order(made) == ["s0", "move_slow", "s1", "s2", "s3", "s4"]
    assert [step.number for step in made.steps if isinstance(step, Transfer)] == [None]
    no_link = cast(Platform, SimpleNamespace(link_between=lambda *_: None))
    assert order(with_transfers(MADE, [to_slow(1, 1)], {}, no_link, set())) == order(made)


def weighted() -> Program:
    constants: dict[str, Any] = {
        name: Constant(name=name, data=np.full((size, 2), size, np.int16), memory="flash", role=role)
        for name, size, role in (("w", 3, "weights"), ("v", 1, "bias"))
    }
    steps = (*STEPS[:2], replace(STEPS[2], constants=("w", "v")), *STEPS[3:])
    return replace(MADE, steps=steps, constants=constants)


@pytest.mark.parametrize(("ahead", "place"), [(0, 2), (1, 1), (2, 0), (9, 0)])
def test_constants_are_fetched_before_an_earlier_step_and_waited_for_before_theirs(ahead: int, place: int) -> None:
    made = woven(of=weighted(), s2=Prefetch(memory="fast", ahead=ahead))
    names = order(made)
    assert names[place] == "fetch_s2_constants_copy" and names[names.index("s2") - 1] == "wait_s2_constants_copy"
    assert [step.source for step in made.steps if isinstance(step, Transfer)] == ["s2_constants"]
    copied = made.tensors["s2_constants_copy"]
    assert (copied.shape, copied.dtype, copied.memory) == ((32,), "uint8", "fast")
    reading = made.steps[names.index("s2")]
    members = ("s2_constants_weights", "s2_constants_bias")
    assert isinstance(reading, KernelCall) and reading.constants == members
    assert reading.prefetched == tuple((name, "s2_constants_copy") for name in members)
    assert all(step.source_is_constant for step in made.steps if isinstance(step, Transfer))


@pytest.mark.parametrize(("other_core", "wait"), [("", 3), ("cpu1", 2)])
def test_constants_of_a_sequence_are_waited_for_by_their_step_or_before_it(other_core: str, wait: int) -> None:
    """No transfer starts between steps that run in series. Several cores wait ahead of the sequence."""
    sequences = {"s1": "sequence_0", "s2": "sequence_0", "s3": "sequence_1"}
    fetches = {"s2": Prefetch(memory="fast", ahead=2)}
    of = weighted()
    steps = tuple(replace(step, processor=other_core) if step.name == "s4" else step for step in of.kernel_calls())
    names = order(with_transfers(replace(of, steps=steps), (), fetches, platform(), set(), sequences))
    assert names.index("fetch_s2_constants_copy") == 0 and names.index("wait_s2_constants_copy") == wait
    assert [name for name in names if name in sequences] == [*sequences]


def test_constants_of_a_layer_lie_next_to_each_other_at_aligned_places() -> None:
    made = woven(of=weighted(), s2=Prefetch(memory="fast", ahead=0))
    whole = made.constants["s2_constants"]
    assert [one.member for one in whole.members] == ["weights", "bias"]
    assert whole.data[:16].view(np.int16).tolist() == [3] * 6 + [0] * 2
    assert whole.data[16:].view(np.int16).tolist() == [1] * 2 + [0] * 6
    assert made.weights_bytes == 32 and set(made.constants) == {"s2_constants", *reading_names(made)}


def reading_names(made: Program) -> tuple[str, ...]:
    return next(step.constants for step in made.kernel_calls() if step.constants)


@pytest.mark.parametrize(("size", "transfers"), [(MOST_REPEATED_BYTES, 1), (MOST_REPEATED_BYTES + 1, 2)])
def test_a_constant_of_two_layers_is_repeated_while_it_is_small(size: int, transfers: int) -> None:
    """The other layer has bias and shifts of its own, so its constants are not the same ones."""
    shared = Constant(name="w", data=np.ones(size, np.int8), memory="flash", note="weights, int8")
    others = {n: Constant(name=n, data=np.ones(4, np.int8), memory="flash", note=f"{n}, int8") for n in ("b", "c", "d")}
    steps = (
        *STEPS[:2],
        replace(STEPS[2], constants=("w", "b", "d")),
        replace(STEPS[3], constants=("w", "c")),
        STEPS[4],
    )
    twice = replace(MADE, steps=steps, constants={"w": shared, **others})
    made = woven(of=twice, s2=Prefetch(memory="fast", ahead=0))
    assert sum(isinstance(step, Transfer) for step in made.steps) == transfers
    assert "w" in made.constants, "the other layer reads it where it is"
    assert made.weights_bytes == (size + 32 + size + 4 if transfers == 1 else size + 32 + 4)


def test_layers_of_the_same_constants_have_one_object() -> None:
    steps = tuple(replace(step, constants=("w", "v")) if step.name in ("s2", "s3") else step for step in STEPS)
    same = replace(weighted(), steps=steps)
    made = woven(of=same, s2=Prefetch(memory="fast", ahead=0), s3=Prefetch(memory="fast", ahead=0))
    assert [step.source for step in made.steps if isinstance(step, Transfer)] == ["s2_constants"] * 2
    assert made.weights_bytes == 32


def test_nothing_to_move_changes_nothing() -> None:
    assert woven() is MADE


def test_names_are_those_that_are_free() -> None:
    taken = {"move_slow"}
    names = [step.name for step in with_transfers(MADE, [to_slow(1, 1)], {}, platform(), taken).steps]
    assert "move_slow" not in names and len(taken) == 3 and taken.issuperset(n for n in names if n[0] != "s")


def test_a_move_renamed_keeps_when_it_goes() -> None:
    move = to_slow(1, 2)
    assert move.renamed("a", "z") == replace(move, source="z")
    assert move.renamed("slow", "z") == replace(move, target="z") and move.renamed("q", "z") == move
