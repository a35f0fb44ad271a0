"""Row access as data: what is derived from it, against the definition."""

from __future__ import annotations

import random

import pytest

from tvm_ext.core.row_access import RowAccess


def any_access(seed: int, both: int = 0) -> RowAccess:
    """Ranges in any order, some of them empty. both: rows of the input and of the output."""
    rng = random.Random(seed)
    rows = both or rng.randint(1, 9)
    begins = [rng.randint(0, rows - 1) for _ in range(both or rng.randint(1, 9))]
    ends = [rng.randint(begin, min(rows, begin + 3)) for begin in begins]
    return RowAccess(input_rows=rows, begins=tuple(begins), ends=tuple(ends))


def read_by(access: RowAccess, rows: range) -> list[int]:
    return [row for at in rows for row in range(access.begins[at], access.ends[at])]


@pytest.mark.parametrize("seed", range(50))
def test_what_is_needed(seed: int) -> None:
    access = any_access(seed)
    count = access.output_rows
    for row in range(count):
        assert access.needed_from[row] == min(read_by(access, range(row, count)), default=access.input_rows)
        assert access.needed_to[row] == max(read_by(access, range(row + 1)), default=-1) + 1
        read = read_by(access, range(row, count))
        assert access.read(row, count) == ((min(read), max(read) + 1) if read else (0, 0))
    assert len(access.needed_from) == count + 1 and access.needed_from[count] == access.input_rows


@pytest.mark.parametrize("seed", range(50))
def test_lag(seed: int) -> None:
    """The least with which no row is written over one that a later row reads; of as many rows as are read."""
    access = any_access(seed, seed % 7 + 1)
    rows = range(access.output_rows)

    def keeps(lag: int) -> bool:
        return not any(place <= row - lag for row in rows for place in read_by(access, rows[row + 1 :]))

    assert keeps(access.lag) and (access.lag == 0 or not keeps(access.lag - 1))


@pytest.mark.parametrize(
    ("access", "begins", "ends"),
    [
        (RowAccess.sliding(4, 4, taps=3, padding=1), (0, 0, 1, 2), (2, 3, 4, 4)),
        (RowAccess.sliding(5, 2, taps=2, stride=2, dilation=2), (0, 2), (3, 5)),
        (RowAccess.sliding(2, 4, taps=1, padding=1), (0, 0, 1, 0), (0, 1, 2, 0)),
        (RowAccess.same(3), (0, 1, 2), (1, 2, 3)),
        (RowAccess.whole(2), (0, 0), (1, 1)),
    ],
)
def test_forms(access: RowAccess, begins: tuple[int, ...], ends: tuple[int, ...]) -> None:
    assert (tuple(access.begins), tuple(access.ends)) == (begins, ends)
