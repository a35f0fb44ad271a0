"""Rings that outputs share with their inputs: every row is there when it is read, in no more rows than apart."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import Guest, RowOperator, RowReader, RowRings, RowSequence, in_step, possible_guests


def reader(rows: int, kernel: int, producer: int | None, *, in_place: bool) -> RowReader:
    pad = kernel // 2
    access = RowAccess.sliding(rows, rows, taps=kernel, padding=pad)
    return RowReader(access=access, producer=producer, lag=access.lag if in_place else None)


def chain(rows: int, rows_per_call: int, *kernels: tuple[int, bool]) -> RowSequence:
    """(kernel size, whether it may lie in its input's ring) of each operator."""
    operators = [
        RowOperator(
            num_rows=rows, rows_per_call=rows_per_call,
            readers=(reader(rows, kernel, index - 1 if index else None, in_place=in_place),),
        )
        for index, (kernel, in_place) in enumerate(kernels)
    ]  # fmt: skip
    return RowSequence(in_step(operators))


def rings(sequence: RowSequence) -> RowRings:
    last = len(sequence.operators) - 1
    apart = [index == last for index in range(last + 1)]
    return RowRings(sequence, possible_guests(sequence, [16] * (last + 1), apart))


def test_a_depthwise_row_lies_where_the_oldest_row_of_its_input_was() -> None:
    """1x1 -> 3x3 in place -> 1x1: three rows hold the window, and the output."""
    sequence = chain(9, 1, (1, False), (3, True), (1, False))
    assert sequence.ring_rows() == (3, 1, 0)
    assert rings(sequence).shared() == {1: Guest(host=0, lag=1)}
    assert rings(sequence).rows()[0] == 3


def test_first_calls_bring_operators_in_step() -> None:
    """Two rows per call: the first call of the producer makes the odd one, so four rows are kept and not five."""
    sequence = chain(9, 2, (1, False), (3, False))
    assert [operator.first_rows for operator in sequence.operators] == [1, 0]
    assert sequence.ring_rows() == (4, 0)


def test_calls_keep_to_tiles() -> None:
    """A tile of two rows takes as long as one row: the first call computes a whole tile, and one more row is kept."""
    in_order = chain(9, 2, (1, False), (3, False))
    producer, reader = in_order.operators
    sequence = RowSequence(in_step([replace(producer, tile_rows=2, first_rows=0), reader]))
    assert [operator.first_rows for operator in sequence.operators] == [0, 0]
    assert sequence.ring_rows() == (5, 0)
    assert [call.begin for call in sequence.calls if call.operator == 0] == [0, 2, 4, 6, 8]
    split = RowSequence(in_step([replace(producer, tile_rows=4), reader]))
    assert split == RowSequence(in_step([replace(producer, tile_rows=4, first_rows=1), reader])), "calls are no tiles"


def test_rows_of_other_sizes_stay_apart() -> None:
    sequence = chain(9, 1, (1, False), (3, True), (1, False))
    assert possible_guests(sequence, [16, 32, 16], [False, False, True]) == {}
    assert possible_guests(sequence, [16, 16, 16], [True, False, True]) == {}


@pytest.mark.parametrize("seed", range(30))
def test_every_row_is_there_when_it_is_read(seed: int) -> None:
    rng = random.Random(seed)
    kernels = [(rng.choice([1, 3, 5]), rng.random() < 0.7) for _ in range(rng.randint(3, 7))]
    sequence = chain(rng.randint(9, 24), rng.choice([1, 2, 3]), *kernels)
    found = rings(sequence)
    hosts, lags = list(range(len(kernels))), [0] * len(kernels)
    for index, guest in found.shared().items():
        hosts[index], lags[index] = hosts[guest.host], lags[guest.host] + guest.lag
    rows, alone = found.rows(), sequence.ring_rows()
    assert sum(rows[i] for i, host in enumerate(hosts) if host == i) <= sum(alone)
    stores: list[dict[int, tuple[int, int]]] = [{} for _ in kernels]

    def slot(index: int, row: int) -> int:
        return (row - lags[index]) % rows[hosts[index]]

    for call in sequence.calls:
        (given,) = sequence.operators[call.operator].readers
        for row in range(call.begin, call.end):
            if given.producer is not None:
                for wanted in range(given.needed_from[row], given.needed_to[row]):
                    place = slot(given.producer, wanted)
                    assert stores[hosts[given.producer]][place] == (given.producer, wanted)
            if call.operator < len(kernels) - 1:
                stores[hosts[call.operator]][slot(call.operator, row)] = (call.operator, row)
