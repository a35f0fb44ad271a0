"""Schedules: the same calls in the same order, in loops where they repeat."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.arena.test_row_sequence import random_graph, three_by_three
from tvm_ext.core.row_sequence import RowCall, RowLoop, RowSequence, Schedule, in_turn, merged, with_loops


def calls(word: str) -> list[RowCall]:
    """`aab` -> row 0 of operator 0, row 1, row 0 of operator 1."""
    return [
        RowCall(operator=ord(letter) - ord("a"), begin=word[:at].count(letter), end=word[:at].count(letter) + 1)
        for at, letter in enumerate(word)
    ]


def spelled(schedule: Schedule) -> str:
    return "".join(
        f"({spelled(entry.body)}){entry.count}" if isinstance(entry, RowLoop) else "abcdefgh"[entry.operator]
        for entry in schedule
    )


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("abc", "abc"),
        ("abab", "abab"),  # a loop of two turns is no shorter
        ("ababab", "(ab)3"),
        ("aab" + "abc" * 9 + "bc", "aa(bca)9bbc"),
        ("aab" + ("abcd" * 2 + "efgh") * 5 + "h", "aab((abcd)2efgh)5h"),
    ],
)
def test_loops(word: str, expected: str) -> None:
    schedule = with_loops(calls(word))
    assert in_turn(schedule) == calls(word)
    assert lines(schedule) <= lines_of(expected), spelled(schedule)


def lines(schedule: Schedule) -> int:
    return sum(2 + lines(entry.body) if isinstance(entry, RowLoop) else 1 for entry in schedule)


def lines_of(spelled_out: str) -> int:
    return sum(letter.isalpha() for letter in spelled_out) + 2 * spelled_out.count("(")


def test_a_long_chain_takes_few_lines() -> None:
    """Twelve convolutions of 100 rows are 1,200 calls."""
    chain = RowSequence(tuple(three_by_three(100, index - 1 if index else None) for index in range(12)))
    assert len(chain.calls) == 1200 and lines(with_loops(chain.calls)) < 200


@pytest.mark.parametrize("seed", range(40))
def test_the_same_calls_in_the_same_order(seed: int) -> None:
    given = random_graph(seed).calls
    assert in_turn(with_loops(given)) == list(given)


@pytest.mark.parametrize("seed", range(40))
def test_any_calls(seed: int) -> None:
    """A random word with a part that repeats itself."""
    rng = random.Random(seed)
    word = "".join(rng.choice("abc") * rng.randint(1, 3) for _ in range(12))
    word = word[: rng.randint(1, 20)] + word[3:9] * rng.randint(1, 6) + word
    assert in_turn(with_loops(calls(word))) == calls(word)
    assert lines(with_loops(calls(word))) <= len(word)


def test_neighbouring_calls_become_one() -> None:
    def ends(found: Sequence[RowCall]) -> list[tuple[int, int, int]]:
        return [(call.operator, call.begin, call.end) for call in found]

    assert ends(merged(calls("aababb"), {0})) == [(0, 0, 2), (1, 0, 1), (0, 2, 3), (1, 1, 2), (1, 2, 3)]
    assert ends(merged(calls("aababb"), {0, 1})) == [(0, 0, 2), (1, 0, 1), (0, 2, 3), (1, 1, 3)]
