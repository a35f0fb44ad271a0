"""Measured results that `--tune` keeps: named by all that measures, and measured again where they are no results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tvm_ext.core.platform import Platform
from tvm_ext.services.cache import ResultCache
from tvm_ext.services.job import JobOutcome
from tvm_ext.tuning import remembered
from tvm_ext.tuning.remembered import MethodMeasurement, Tools, read_measurement, write_measurement

KEY = "ab" * 32


@pytest.mark.parametrize("cycles", [12.5, None])
def test_what_was_measured_comes_back(tmp_path: Path, cycles: float | None) -> None:
    cache = ResultCache(folder=tmp_path)
    method = MethodMeasurement(instructions=10, cycles=cycles)
    write_measurement(cache, KEY, method)
    assert read_measurement(cache, KEY) == method
    device = MethodMeasurement(instructions=None, cycles=3.0)
    write_measurement(cache, KEY, device)
    assert read_measurement(cache, KEY) == device


GOOD = {"instructions": 10, "cycles": 1.0}
FORGED = {
    "a text for a number": {"instructions": "10"}, "less than nothing": {"instructions": -1},
    "a truth": {"cycles": True}, "no number": {"cycles": float("nan")}, "without end": {"cycles": float("inf")},
    "a list": {"instructions": [1]},
    "neither of the two": {"instructions": None, "cycles": None},
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_what_no_run_gives_is_measured_again(tmp_path: Path, forged: dict[str, object]) -> None:
    cache = ResultCache(folder=tmp_path)
    cache.put(KEY, JobOutcome(result=json.dumps({**GOOD, **forged}).encode()))
    assert read_measurement(cache, KEY) is None


@pytest.mark.parametrize("result", [b"", b"[]", b"3", b"{}", b'{"instructions": 1}', None])
def test_what_is_no_table_is_measured_again(tmp_path: Path, result: bytes | None) -> None:
    cache = ResultCache(folder=tmp_path)
    cache.put(KEY, JobOutcome(result=result, kind="" if result is not None else "ChildLost"))
    assert read_measurement(cache, KEY) is None


@pytest.mark.board
def test_results_are_those_of_the_code_that_measures(cortex_m4: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    before = Tools.of(cortex_m4, "speed", None)
    assert Tools.of(cortex_m4, "speed", None) == before
    monkeypatch.setattr(remembered, "code_hash", lambda parts: "another")
    assert Tools.of(cortex_m4, "speed", None) != before


@pytest.fixture
def cortex_m4() -> Platform:
    return Platform.load("cortex_m4")
