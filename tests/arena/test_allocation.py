"""benchmarks/allocation.py from file to file: published problems, a validator of its own, a peer, bad input."""

from __future__ import annotations

import csv
import random
import runpy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from codegen_c.arena.solve import Buffer, optimise

Row = dict[str, str]
Main = Callable[[list[str]], int]

TOY = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n"
WINDOWS = "id,lower,upper,size,gaps\na,0,10,4,3-6@0:2\nb,3,6,2,\n"


@pytest.fixture(scope="module")
def main(repository: Path) -> Main:
    return runpy.run_path(str(repository / "benchmarks" / "allocation.py"))["main"]


def solved(main: Main, problem: Path, capacity: int, folder: Path) -> list[Row]:
    output = folder / "out.csv"
    assert main([str(problem), "--capacity", str(capacity), "--output", str(output)]) == 0
    with output.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    with problem.open(newline="") as lines:
        given = list(csv.DictReader(lines))
    assert [{**row, "offset": ""} for row in rows] == [{**row, "offset": ""} for row in given]
    return rows


def assert_valid(rows: list[Row], capacity: int) -> None:
    """No two rectangles of time and address meet, by a sweep over time with the addresses of each moment sorted."""
    boxes = [(int(r["lower"]), int(r["upper"]), int(r["offset"]), int(r["offset"]) + int(r["size"])) for r in rows]
    assert all(low >= 0 and high <= capacity for _, _, low, high in boxes)
    for time in sorted({begin for begin, *_ in boxes}):
        alive = sorted((low, high) for begin, end, low, high in boxes if begin <= time < end)
        assert all(high <= low for (_, high), (low, _) in pairwise(alive)), time


@pytest.mark.parametrize("name", "ABCD")
def test_published_problems_are_solved(shared: Path, main: Main, tmp_path: Path, name: str) -> None:
    path = shared / "allocation" / f"{name}.1048576.csv"
    if not path.is_file():
        pytest.skip(f"no allocation/{path.name} in {shared.name}")
    assert_valid(solved(main, path, 1048576, tmp_path), 1048576)


@pytest.mark.slow
def test_beam_searches_fill_a_published_problem_up_to_its_bound(shared: Path, main: Main, tmp_path: Path) -> None:
    """Four sections of D are full then; it is the least there is, and the complete search alone does not find it."""
    path, bound = shared / "allocation" / "D.1048576.csv", 986_112
    if not path.is_file():
        pytest.skip(f"no allocation/{path.name} in {shared.name}")
    output = tmp_path / "out.csv"
    alone = ["--nodes", "1000", "--beams", "0"]
    assert main([str(path), "--capacity", str(bound), "--output", str(output), *alone]) == 1
    assert main([str(path), "--capacity", str(bound), "--output", str(output), "--nodes", "1000"]) == 0
    with output.open(newline="") as lines:
        assert_valid(list(csv.DictReader(lines)), bound)


def test_the_validator_rejects_a_solution_that_is_moved(main: Main, tmp_path: Path) -> None:
    (tmp_path / "toy.csv").write_text(TOY)
    rows = solved(main, tmp_path / "toy.csv", 12, tmp_path)
    assert_valid(rows, 12)
    with pytest.raises(AssertionError):
        assert_valid([{**row, "offset": "4"} for row in rows], 12)
    with pytest.raises(AssertionError):
        assert_valid(rows, 11)


def test_toy_does_not_fit_into_less(main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.csv").write_text(TOY)
    assert main([str(tmp_path / "toy.csv"), "--capacity", "11", "--output", str(tmp_path / "out.csv")]) == 1
    assert "toy.csv: there is no solution in 11 B; 12 B are in use at one time" in capsys.readouterr().err
    assert not (tmp_path / "out.csv").exists()


def test_giving_up_is_not_a_proof(main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.csv").write_text(TOY)
    arguments = ["--capacity", "12", "--output", str(tmp_path / "out.csv"), "--nodes", "2", "--beams", "0"]
    assert main([str(tmp_path / "toy.csv"), *arguments]) == 1
    assert "none found in 2 partial solutions and 0 beam searches in 12 B" in capsys.readouterr().err


def test_a_window_is_used(main: Main, tmp_path: Path) -> None:
    (tmp_path / "windows.csv").write_text(WINDOWS)
    rows = solved(main, tmp_path / "windows.csv", 4, tmp_path)
    assert [row["offset"] for row in rows] == ["0", "2"]


def test_fixed_offsets_stay_and_ends_may_be_included(main: Main, tmp_path: Path) -> None:
    text = "buffer,start,end,size,alignment,offset\na,0,3,4,1,2\nb,3,5,3,4,-1\nc,4,5,2,1,\n"
    (tmp_path / "fixed.csv").write_text(text)
    rows = solved(main, tmp_path / "fixed.csv", 11, tmp_path)
    assert [(row["buffer"], row["offset"]) for row in rows] == [("a", "2"), ("b", "8"), ("c", "0")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; its first line has to name the columns"),
        ("id,lower,upper\n", "has no column size"),
        ("id,lower,begin,upper,size\n", "names a column twice"),
        ("id,lower,upper,size\na,0,1\n", "line 2: 3 fields; the header has 4"),
        ("id,lower,upper,size\na,0,1,4\nb,0,x,4\n", "line 3: upper is 'x'; it has to be a whole number"),
        ("id,lower,upper,size\na,0,1,99999999999999999999\n", "size is '99999999999999999999'"),
        ("id,lower,upper,size\na,2,1,4\n", "have to be in order of time"),
        ("id,lower,upper,size\na,1,1,4\n", "lower and upper are both 1"),
        ("id,lower,upper,size\na,0,1,-4\n", "size -4, alignment 1 or a gap's bytes are out of range"),
        ("id,lower,upper,size,alignment\na,0,1,4,0\n", "alignment 0"),
        ("id,lower,upper,size,gaps\na,0,9,4,3..4\n", "gap '3..4'; write it as 20-30"),
        ("id,lower,upper,size,gaps\na,0,9,4,3-4@2:5\n", "a gap's bytes are out of range"),
        ("id,lower,upper,size,alignment,offset\na,0,9,4,4,2\n", "offset 2 is no multiple of the alignment 4"),
    ],
)
def test_bad_input(main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    assert main([str(tmp_path / "bad.csv"), "--capacity", "12", "--output", str(tmp_path / "out.csv")]) == 2
    assert message in capsys.readouterr().err


def test_files_that_are_not_there(main: Main, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "toy.csv").write_text(TOY)
    assert main([str(tmp_path / "no.csv"), "--capacity", "12", "--output", str(tmp_path / "out.csv")]) == 2
    assert "no.csv cannot be read as CSV" in capsys.readouterr().err
    assert main([str(tmp_path / "toy.csv"), "--capacity", "12", "--output", str(tmp_path / "no" / "out.csv")]) == 2
    assert "out.csv cannot be written" in capsys.readouterr().err
    assert main([str(tmp_path / "toy.csv"), "--capacity", "-1", "--output", str(tmp_path / "out.csv")]) == 2
    assert "--capacity -1: give a number of bytes" in capsys.readouterr().err


def test_no_higher_than_a_peer() -> None:
    """omnimalloc's allocators on problems of 40 buffers: none is below ours, nor below what we prove."""
    peer = pytest.importorskip("omnimalloc")
    for seed in range(3):
        problem = wired(40, 5.0, alignment=1, seed=seed)
        ours = optimise(problem)
        pool = peer.Pool(
            id="pool", allocations=tuple(peer.Allocation(i, b.size, b.begin, b.end) for i, b in enumerate(problem))
        )
        placed = peer.allocate(pool)
        theirs = max(allocation.offset + allocation.size for allocation in placed.allocations)
        assert ours.lower_bound_bytes <= ours.num_bytes <= theirs


@pytest.mark.parametrize("mean_reach", [0.0, 3.0, 20.0])
@pytest.mark.slow
def test_a_thousand_operators(mean_reach: float) -> None:
    """A chain, and graphs whose values are read again later on: at the bound, or within one alignment per buffer."""
    problem = wired(1000, mean_reach, alignment=16, seed=1)
    found = optimise(problem)
    rows = [
        {"lower": str(b.begin), "upper": str(b.end), "size": str(b.size), "offset": str(offset)}
        for b, offset in zip(problem, found.offsets, strict=True)
    ]
    assert_valid(rows, found.num_bytes)
    assert found.lower_bound_bytes <= found.num_bytes <= found.lower_bound_bytes * 1.01


def wired(count: int, mean_reach: float, *, alignment: int, seed: int) -> list[Buffer]:
    rng = random.Random(seed)
    reach = [int(rng.expovariate(1 / mean_reach)) if mean_reach else 0 for _ in range(count)]
    return [
        Buffer(begin=i, end=min(count + 1, i + 2 + reach[i]), size=rng.randrange(1, 5000), alignment=alignment)
        for i in range(count)
    ]
