"""Rows in series: the order of calls, and the rows that rings keep; counted by hand, then by trying."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import RowCall, RowOperator, RowReader, RowSequence


def reader(input_rows: int, output_rows: int, kernel: int, stride: int, pad: int, producer: int | None) -> RowReader:
    access = RowAccess.sliding(input_rows, output_rows, taps=kernel, stride=stride, padding=pad)
    return RowReader(access=access, producer=producer)


def three_by_three(rows: int, producer: int | None, rows_per_call: int = 1) -> RowOperator:
    return RowOperator(num_rows=rows, readers=(reader(rows, rows, 3, 1, 1, producer),), rows_per_call=rows_per_call)


def test_two_convolutions() -> None:
    """The second waits for one row beyond its own; three rows of the first are enough."""
    sequence = RowSequence((three_by_three(4, None), three_by_three(4, 0)))
    assert [(call.operator, call.begin) for call in sequence.calls] == [
        (0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (0, 3), (1, 2), (1, 3),
    ]  # fmt: skip
    assert sequence.ring_rows() == (3, 0)


def test_several_rows_at_a_time_need_longer_rings() -> None:
    sequence = RowSequence((three_by_three(8, None, 2), three_by_three(8, 0, 2)))
    assert [(call.operator, call.begin, call.end) for call in sequence.calls][:4] == [
        (0, 0, 2), (0, 2, 4), (1, 0, 2), (0, 4, 6),
    ]  # fmt: skip
    assert sequence.ring_rows() == (5, 0)


def test_a_skip_keeps_the_rows_its_other_branch_delays() -> None:
    """x -> a -> b, y = x + b: x is kept for the two rows that b lags behind."""
    copy = RowOperator(num_rows=6, readers=(reader(6, 6, 1, 1, 0, None),))
    both = RowOperator(num_rows=6, readers=(reader(6, 6, 1, 1, 0, 0), reader(6, 6, 1, 1, 0, 2)))
    sequence = RowSequence((copy, three_by_three(6, 0), three_by_three(6, 1), both))
    assert sequence.ring_rows() == (3, 3, 1, 0)


def test_rows_that_nobody_asks_for_are_not_made() -> None:
    every_other = RowOperator(num_rows=3, readers=(reader(6, 3, 1, 2, 0, 0),))
    sequence = RowSequence((three_by_three(6, None), every_other))
    assert sequence.rows_made() == (5, 3)


@pytest.mark.parametrize("seed", range(20))
def test_rings_hold_what_is_read_and_no_more(seed: int) -> None:
    """Chains replayed with rings as long as said, and one row shorter: only the first has every row when it is read."""
    rng = random.Random(seed)
    rows, operators = rng.randint(6, 20), []
    for index in range(rng.randint(2, 5)):
        kernel, stride = rng.choice([1, 3, 5]), rng.choice([1, 1, 2])
        made = (rows + 2 * (kernel // 2) - kernel) // stride + 1
        operators.append(
            RowOperator(
                num_rows=made, readers=(reader(rows, made, kernel, stride, kernel // 2, index - 1 if index else None),),
                rows_per_call=rng.choice([1, 1, 2, 3]),
            )
        )  # fmt: skip
        rows = made
        if rows < 2:
            break
    sequence = RowSequence(tuple(operators))
    rings = sequence.ring_rows()
    assert replays(sequence, rings)
    for shorter in range(len(rings) - 1):
        if rings[shorter] > 1:
            assert not replays(sequence, (*rings[:shorter], rings[shorter] - 1, *rings[shorter + 1 :]))


def replays(sequence: RowSequence, rings: tuple[int, ...]) -> bool:
    """True where each row lies in its slot when it is read; rows are read before those of the same call are written."""
    slots: list[dict[int, int]] = [{} for _ in sequence.operators]
    for call in sequence.calls:
        operator = sequence.operators[call.operator]
        for given in operator.readers:
            if given.producer is None:
                continue
            for row in range(given.needed_from[call.begin], given.needed_to[call.end - 1]):
                if slots[given.producer].get(row % rings[given.producer]) != row:
                    return False
        if rings[call.operator]:
            slots[call.operator] |= {row % rings[call.operator]: row for row in range(call.begin, call.end)}
    return True


def random_graph(seed: int) -> RowSequence:
    """A chain with skips."""
    rng, operators = random.Random(seed), list[RowOperator]()
    for index in range(rng.randint(3, 7)):
        rows = operators[-1].num_rows if operators else rng.randint(8, 16)
        kernel, stride = rng.choice([1, 3, 5]), rng.choice([1, 1, 2]) if rows > 5 else 1
        made = (rows + 2 * (kernel // 2) - kernel) // stride + 1
        readers = [reader(rows, made, kernel, stride, kernel // 2, index - 1 if index else None)]
        alike = [place for place, other in enumerate(operators[:-1]) if other.num_rows == made]
        if alike and rng.random() < 0.6:
            readers.append(reader(made, made, 1, 1, 0, rng.choice(alike)))
        operators.append(RowOperator(num_rows=made, readers=tuple(readers), rows_per_call=rng.choice([1, 2, 4])))
    return RowSequence(tuple(operators))


@pytest.mark.parametrize("seed", range(30))
def test_the_first_of_all_that_were_asked_runs(seed: int) -> None:
    """The rule itself, told step by step."""
    operators = random_graph(seed).operators
    made, calls = [0] * len(operators), list[RowCall]()
    while made[-1] < operators[-1].num_rows:
        asked = {len(operators) - 1}
        for index in reversed(range(len(operators))):
            last = min(made[index] + operators[index].rows_per_call, operators[index].num_rows) - 1
            for given in operators[index].readers if index in asked else ():
                if given.producer is not None and made[given.producer] < given.needed_to[last]:
                    asked.add(given.producer)
        first = min(asked)
        end = min(made[first] + operators[first].rows_per_call, operators[first].num_rows)
        calls.append(RowCall(operator=first, begin=made[first], end=end))
        made[first] = end
    assert random_graph(seed).calls == tuple(calls)


@pytest.mark.parametrize("seed", range(30))
def test_a_shorter_sequence_makes_the_same_calls(seed: int) -> None:
    """Whoever makes the rows that its first operators read: its calls and rings are those of the longer one."""
    whole = random_graph(seed)
    for begin in range(1, len(whole.operators)):
        tail = tuple(
            replace(
                operator,
                readers=tuple(
                    replace(given, producer=place - begin if (place := given.producer or 0) >= begin else None)
                    for given in operator.readers
                ),
            )
            for operator in whole.operators[begin:]
        )
        kept = [c._replace(operator=c.operator - begin) for c in whole.calls if c.operator >= begin]
        assert list(RowSequence(tail).calls) == kept
        assert RowSequence(tail).ring_rows() == whole.ring_rows()[begin:]
