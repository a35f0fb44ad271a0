"""A finished package is read back before it takes the place of another one, and what it says is strict JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import files_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadPackage
from tvm_ext.core.printable import json_text
from tvm_ext.report import report as reports
from tvm_ext.report.read_report import read_report
from tvm_ext.sweeps.table import SweepTable

_UNVERIFIED = BuildOptions(verify=())


def _changed(monkeypatch: pytest.MonkeyPatch, where: str, change: Mapping[str, Any]) -> None:
    """Reports of that module's builds say something else."""
    made = reports.make_report
    monkeypatch.setattr(f"{where}.make_report", lambda *given, **named: {**made(*given, **named), **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": []}, "differs from report.json, which has"),
        ({"warm_up_runs": -1}, "warm_up_runs = .-1"),
        ({"state_bytes": 8}, "differs from report.json, which has"),
        ({"artifacts": {"library": "libother.a", "elf": None}}, r"libother\.a is missing"),
    ],
    ids=["outputs", "damaged", "states", "artifact"],
)
def test_a_package_that_contradicts_itself_replaces_nothing(
    change: Mapping[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    tvm_ext.build(path, "host", tmp_path / "out", _UNVERIFIED)
    before = files_of(tmp_path)
    _changed(monkeypatch, "tvm_ext.building.build", change)
    with pytest.raises(BadPackage, match=message) as caught:
        tvm_ext.build(path, "host", tmp_path / "out", _UNVERIFIED)
    assert "was not replaced" in str(caught.value) and ".tvm_ext." not in str(caught.value)
    assert files_of(tmp_path) == before


def test_scales_that_the_report_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where report and header agree, the report is compared with what was compiled."""
    path = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    monkeypatch.setattr("tvm_ext.packages.package.check_header", lambda *_: None)
    made = reports.make_report

    def other(*given: Any, **named: Any) -> dict[str, Any]:
        report = made(*given, **named)
        report["inputs"][0] |= {"scale": 0.5, "zero_point": 0}
        return report

    monkeypatch.setattr("tvm_ext.building.build.make_report", other)
    with pytest.raises(BadPackage, match="the inputs and outputs of its report differ from its C"):
        tvm_ext.build(path, "host", tmp_path / "out", _UNVERIFIED)
    assert not (tmp_path / "out").exists()


def test_a_bundle_that_contradicts_itself_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, {"a": SMALL_MODELS["branches"]()}, {"a": {"file": "a.onnx"}})
    tvm_ext.bundle(file, "host", tmp_path / "out", verify=())
    before = files_of(tmp_path)
    _changed(monkeypatch, "tvm_ext.bundles.bundler", {"outputs": []})
    with pytest.raises(BadPackage, match="was not replaced"):
        tvm_ext.bundle(file, "host", tmp_path / "out", verify=())
    assert files_of(tmp_path) == before


def _strict(text: str) -> Any:
    def refuse(constant: str) -> float:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)


def test_a_figure_that_is_no_number_is_null(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    _changed(monkeypatch, "tvm_ext.building.build", {"measured": {"snr_db": [float("nan"), float("-inf"), 1.5]}})
    package = tvm_ext.build(path, "host", tmp_path / "out", _UNVERIFIED)
    assert _strict((package.folder / "report.json").read_text())["measured"] == {"snr_db": [None, None, 1.5]}


def test_lines_of_a_sweep_are_strict_too(tmp_path: Path) -> None:
    row = {"model": "m", "platform": "host", "options": "o", "tier": "full", "accuracy": float("nan"), "error": None}
    SweepTable(rows=[row]).write(tmp_path / "t.jsonl")
    assert _strict((tmp_path / "t.jsonl").read_text())["accuracy"] is None


def test_values_of_every_kind_are_kept() -> None:
    value = {"a": (1, True, None, "NaN"), "b": {"c": [0.5]}, "d": float("inf")}
    assert _strict(json_text(value)) == {"a": [1, True, None, "NaN"], "b": {"c": [0.5]}, "d": None}


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_report_that_is_no_strict_json_is_refused(number: str, tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text(f'{{"schema_version": 1, "x": {number}}}')
    with pytest.raises(BadPackage, match="is damaged"):
        read_report(tmp_path)
