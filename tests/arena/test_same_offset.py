"""Buffers at the same offset as one buffer: what it uses, which pairs are joined, and offsets of the whole problem."""

from __future__ import annotations

import random

from codegen_c.arena.problem import Buffer, Choice, Gap, clearances
from codegen_c.arena.same_offset import one_buffer, with_same_offsets
from codegen_c.arena.solve import optimise

FIRST, SECOND = Buffer(begin=0, end=3, size=64), Buffer(begin=2, end=5, size=64)


def test_the_buffer_of_two_has_the_bytes_of_both() -> None:
    assert one_buffer([FIRST]) == FIRST
    assert one_buffer([FIRST, SECOND]) == Buffer(begin=0, end=5, size=64)
    small = Buffer(begin=2, end=5, size=16, alignment=16)
    assert one_buffer([FIRST, small]) == Buffer(
        begin=0, end=5, size=64, alignment=16, gaps=(Gap(begin=3, end=5, low=0, high=16),)
    )


def test_gaps_of_one_are_used_by_the_other() -> None:
    part = Buffer(begin=0, end=4, size=64, gaps=(Gap(begin=1, end=2), Gap(begin=2, end=4, low=32, high=64)))
    gaps = (Gap(begin=1, end=2), Gap(begin=3, end=4, low=32, high=64))
    assert one_buffer([part, Buffer(begin=2, end=3, size=40)]) == Buffer(begin=0, end=4, size=64, gaps=gaps)


def test_pairs_that_bring_others_to_one_offset_are_left() -> None:
    """0 dies where 1 begins, and 1 where 2 begins: all three may be one. 3 lives with all, and 4 is fixed."""
    third, beside = Buffer(begin=4, end=7, size=64), Buffer(begin=0, end=6, size=32)
    fixed = Buffer(begin=6, end=8, size=64, offset=0)
    buffers = [FIRST, SECOND, third, beside, fixed]
    assert with_same_offsets(buffers, [], {(1, 0), (2, 1)}).members == [(0, 1, 2), (3,), (4,)]
    assert with_same_offsets(buffers, [], {(1, 0), (2, 3)}).members == [(0, 1), (2, 3), (4,)]
    assert with_same_offsets(buffers, [], {(1, 0), (1, 3)}).members == [(0, 1), (2,), (3,), (4,)], "0 and 3 meet"
    assert with_same_offsets(buffers, [], {(2, 4)}).members == [(0,), (1,), (2,), (3,), (4,)]


def test_a_distance_holds_where_only_its_pair_meets() -> None:
    """2 begins where 1 ends, so that it may overlap the buffer of both; 3 dies with 0, which it must not overlap."""
    third, dying = Buffer(begin=4, end=7, size=64), Buffer(begin=1, end=3, size=64)
    choices: list[Choice] = [({(1, 3): 16, (2, 1): 8, (1, 0): 0}, {(0, 1): 32})]
    made = with_same_offsets([FIRST, SECOND, third, dying], choices, {(1, 0)})
    assert made.members == [(0, 1), (2,), (3,)] and made.choices == [({(1, 0): 8}, {})]
    assert made.offsets([32, 0, 96]) == [32, 32, 0, 96]


def test_offsets_of_random_problems_hold_for_the_buffers_themselves() -> None:
    rng, joined = random.Random(0), 0
    for _ in range(60):
        buffers = [
            Buffer(begin=(begin := rng.randrange(12)), end=begin + rng.randint(1, 5), size=16 * rng.randint(1, 9))
            for _ in range(14)
        ]
        touching = {
            (b, a) for a, one in enumerate(buffers) for b, other in enumerate(buffers) if other.begin == one.end - 1 > 0
        }
        pairs = set(rng.sample(sorted(touching), min(4, len(touching))))
        choices: list[Choice] = [({pair: 16 * rng.randrange(3)},) for pair in rng.sample(sorted(touching), 2)]
        made = with_same_offsets(buffers, choices, pairs)
        offsets = made.offsets(optimise(made.buffers, made.choices).offsets)
        together = {(a, b) for inside in made.members for a in inside for b in inside}
        closer = {pair: least for (alternative,) in choices for pair, least in alternative.items()}
        for a, beside in enumerate(clearances(buffers)):
            for b, above in beside.items():
                if (a, b) in together:
                    joined += 1
                    assert offsets[a] == offsets[b] and {(a, b), (b, a)} & pairs
                elif offsets[a] <= offsets[b]:
                    below = closer.get((b, a))
                    is_below = below is not None and offsets[b] + below <= offsets[a]
                    assert offsets[b] - offsets[a] >= closer.get((a, b), above) or is_below
    assert joined > 100
