"""Sweeps over many candidates: memory that does not grow with them, and tables that are written in groups."""

from __future__ import annotations

import csv
import json
import time
import tracemalloc
from concurrent.futures import Executor, Future
from importlib.util import find_spec
from pathlib import Path

import pytest

from tvm_ext import SweepModel
from tvm_ext.command_line import show
from tvm_ext.services.job import answer_with
from tvm_ext.sweeps import table as tables
from tvm_ext.sweeps.picture import picture
from tvm_ext.sweeps.sweep import sweep
from tvm_ext.sweeps.sweep_rows import SweepRows
from tvm_ext.sweeps.table import SweepTable

RESULT = {
    "error": None, "message": None, "ram_bytes": 1000, "flash_bytes": 2000, "code_bytes": None, "stack_bytes": None,
    "instructions": None, "predicted_instructions": 3000, "predicted_cycles": 4000, "macs": 5, "method": "whole",
    "memories": {"sram": 1000}, "seconds": 0.5,
}  # fmt: skip


class _AtOnce(Executor):
    """An executor whose jobs are estimates that are done already."""

    def submit(self, *_: object) -> Future[bytes]:  # pyright: ignore[reportIncompatibleMethodOverride]
        future = Future[bytes]()
        future.set_result(answer_with(json.dumps(RESULT).encode()))
        return future


def _peak_bytes(model: Path, cache: Path, count: int) -> int:
    """Return the memory that a sweep takes at most."""
    models = (SweepModel(source=model, name=f"model {index}") for index in range(count))
    tracemalloc.start()
    table = sweep(models, ["cortex_m4"], executor=_AtOnce(), cache=cache)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [row["model"] for row in table.rows[:3]] == ["model 0", "model 1", "model 2"] and len(table.rows) == count
    return peak


def test_memory_does_not_grow_with_the_candidates(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"0" * 10_000)
    few, many = (_peak_bytes(model, tmp_path / str(count), count) for count in (300, 2_000))
    assert many < few + 1_700 * 100
    assert _peak_bytes(model, tmp_path / "2000", 2_000) < few + 1_700 * 100, "all outcomes are in the cache"


def test_rows_are_put_in_any_order_and_read_in_theirs() -> None:
    rows = SweepRows()
    for index in (2, 0, 1):
        rows.put(index, {"model": index})
    assert [row["model"] for row in rows] == [0, 1, 2] and len(rows) == 3
    assert rows[-1] == {"model": 2} and rows[1:] == [{"model": 1}, {"model": 2}]
    assert rows == [{"model": index} for index in range(3)] and rows != [] and rows != "rows"
    with pytest.raises(IndexError):
        rows[3]


def test_tables_are_written_in_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_GROUP_ROWS", 3)
    rows = [{"model": f"m{n}", "ram_bytes": n or None, "mixed": n if n % 2 else "text"} for n in range(8)]
    table = SweepTable(rows=rows)
    table.write(tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(newline="") as file:
        assert [row["model"] for row in csv.DictReader(file)] == [row["model"] for row in rows]
    if find_spec("pyarrow"):
        from pyarrow import parquet  # pyright: ignore[reportMissingImports]

        table.write(tmp_path / "t.parquet")
        read = parquet.ParquetFile(tmp_path / "t.parquet")
        assert read.num_row_groups == 3
        columns = read.read().to_pydict()
        assert columns["ram_bytes"] == [None, *range(1, 8)] and columns["mixed"][:2] == ["text", "1"]


def test_a_picture_of_many_rows_has_a_limited_number_of_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_ext.sweeps.picture.MOST_POINTS", 10)
    names = {"model": "m", "platform": "p", "options": "o"}
    rows = [{**names, "ram_bytes": n + 1, "predicted_instructions": 100 - n} for n in range(25)]
    assert picture(SweepTable(rows=rows)).count('r="3"') == 9
    assert picture(SweepTable(rows=[])).count("<circle") == 0


def test_progress_tells_the_rate(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(now)))
    said: list[str] = []
    monkeypatch.setattr(show.stderr, "print", lambda text, **_: said.append(text))
    with show.sweep_shown(4) as told:
        for done in range(1, 5):
            told(done, {"error": "DoesNotFit" if done == 2 else None})
    assert said and "of 4 candidates" in said[-1] and "per second, 1 with errors" in said[-1]
