"""Rows per call chosen by what whole runs measure on a board: within the memory, without another bit, kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper

import tvm_ext
from tests.support.onnx_models import model_of, saved, weights
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import VerificationFailed
from tvm_ext.report.tables import report_tables
from tvm_ext.services.cache import FOLDER
from tvm_ext.tuning import rows as tuning_rows
from tvm_ext.tuning.remembered import RunFigures

pytestmark = [pytest.mark.board, pytest.mark.usefixtures("cache")]

WHOLE = BuildOptions(verify=(), name="m")
RAM = 6400


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """Three convolutions, whose results do not fit together but row by row."""
    arrays = {"a": weights(8, 3, 3, 3), "b": weights(8, 8, 3, 3, seed=1), "c": weights(2, 8, 3, 3, seed=2)}
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["first"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["first", "b"], ["second"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Conv", ["second", "c"], ["y"], pads=[1, 1, 1, 1]),
    ]
    model = model_of(nodes, {"x": (1, 3, 20, 12)}, ["y"], arrays)
    return tvm_ext.load(saved(model, tmp_path_factory.mktemp("network"), "m"))


def built(loaded: tvm.IRModule, folder: Path, options: BuildOptions) -> Package:
    return tvm_ext.build(loaded, "cortex_m4", folder / "m", options, jobs=2)


@pytest.fixture(scope="module")
def plain(loaded: tvm.IRModule, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return built(loaded, tmp_path_factory.mktemp("plain"), replace(WHOLE, ram=RAM))


@pytest.fixture(scope="module")
def tuned(loaded: tvm.IRModule, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    return built(loaded, tmp_path_factory.mktemp("tuned"), replace(WHOLE, ram=RAM, tune=True))


def rows_of(package: Package) -> dict[str, Any]:
    return package.report["tuning"]["rows"]


def test_the_fastest_rows_that_fit_are_taken(tuned: Package) -> None:
    found = rows_of(tuned)
    (sequence,) = found["sequences"]
    measured = {one["rows_per_call"]: one for one in sequence["candidates"] if one["not_measured"] is None}
    assert measured and sequence["modelled"] not in measured
    assert all(one["arena_bytes"] <= RAM for one in measured.values())
    cycles = {rows: one["estimated_cycles"] for rows, one in measured.items()}
    cycles[sequence["modelled"]] = found["before"]["estimated_cycles"]
    assert sequence["chosen"] == min(cycles, key=cycles.__getitem__)
    assert found["after"]["estimated_cycles"] == cycles[sequence["chosen"]]
    assert tuned.report["arena_bytes"] <= RAM


def test_what_does_not_fit_is_told(loaded: tvm.IRModule, tuned: Package, tmp_path: Path) -> None:
    limit = tuned.report["tuning"]["rows"]["arena_bytes"]
    tight = built(loaded, tmp_path, replace(WHOLE, ram=limit, tune=True))
    (sequence,) = rows_of(tight)["sequences"]
    assert "does not fit" in {one["not_measured"] for one in sequence["candidates"]}
    assert tight.report["arena_bytes"] <= limit


def test_figures_are_those_of_the_whole_run(tuned: Package) -> None:
    profile = tuned.profile()
    found = rows_of(tuned)["after"]
    assert profile.num_instructions == pytest.approx(found["instructions"], rel=0.002)
    assert profile.cycles == pytest.approx(found["estimated_cycles"], rel=0.002)


def test_no_bit_of_the_output_changes(plain: Package, tuned: Package) -> None:
    sample = {"x": np.random.default_rng(6).standard_normal((1, 3, 20, 12)).astype(np.float32)}
    for place in ("host", "qemu"):
        one, other = (package.run(sample, on=place) for package in (plain, tuned))
        assert all(one[name].tobytes() == other[name].tobytes() for name in one)


def test_what_was_measured_is_not_measured_again(
    loaded: tvm.IRModule, tuned: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning_rows, "linked", lambda *_: pytest.fail("it is known"))
    again = built(loaded, tmp_path, replace(WHOLE, ram=RAM, tune=True))
    assert rows_of(again) == rows_of(tuned)
    assert (again.folder / "m.c").read_bytes() == (tuned.folder / "m.c").read_bytes()


def test_other_bits_are_an_error(
    loaded: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    """A planted fault: each run says that it wrote something else."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    known = tuning_rows.RunFigures.of
    count = iter(range(100))

    def planted(layers: list[Any], outputs: bytes) -> RunFigures:
        return known(layers, outputs + bytes([next(count)]))

    monkeypatch.setattr(tuning_rows.RunFigures, "of", planted)
    with pytest.raises(VerificationFailed, match="m gives other outputs by other rows per call"):
        built(loaded, tmp_path, replace(WHOLE, ram=RAM, tune=True))


def test_models_without_sequences_have_no_rows(loaded: tvm.IRModule, tmp_path: Path) -> None:
    assert rows_of(built(loaded, tmp_path, replace(WHOLE, tune=True))) is None


def test_buffers_of_the_callers_are_not_measured(loaded: tvm.IRModule, tmp_path: Path) -> None:
    package = built(loaded, tmp_path, replace(WHOLE, ram=RAM, tune=True, io="caller"))
    found = rows_of(package)
    assert "inputs and outputs in the arena" in found["not_measured"] and not found["sequences"]


def test_the_report_shows_them(tuned: Package) -> None:
    bare = {**tuned.report, "tuning": {**tuned.report["tuning"], "rows": None}}
    assert len(report_tables(tuned.report)) == len(report_tables(bare)) + 1
