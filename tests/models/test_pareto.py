"""`tvm-ext pareto`: points that trade bytes for instructions, as JSON and as a picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions
from tvm_ext.command_line.main import app
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.child import Child
from tvm_ext.estimates.pareto import pareto


def test_points_fall_in_bytes_and_rise_in_instructions(tmp_path: Path) -> None:
    path, folder = saved(image_network(1), tmp_path), tmp_path / "out"
    result = CliRunner().invoke(app, ["pareto", str(path), "-p", "cortex_m4", "-o", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    points = json.loads((folder / "pareto.json").read_text())["points"]
    assert points[0]["method"] == "whole" and len(points) >= 2
    for before, after in pairwise(points):
        assert after["arena_bytes"] < before["arena_bytes"]
        assert after["modelled_instructions"] >= before["modelled_instructions"]
    picture = ElementTree.parse(folder / "pareto.svg").getroot()
    assert len(picture.findall("{http://www.w3.org/2000/svg}circle")) == len(points)


def test_the_last_point_is_the_least_that_can_be_had(digits: Path) -> None:
    module, board = tvm_ext.load(digits / "digits.onnx"), Platform.load("cortex_m4")
    points = pareto(module, board, BuildOptions())
    assert points[0].arena_bytes == 11_264 and points[-1].arena_bytes == 4_800
    with pytest.raises(DoesNotFit):
        compile_module(module, board, BuildOptions(ram=4_799))


def test_a_budget_that_no_point_is_within_is_said(digits: Path, tmp_path: Path) -> None:
    arguments = ["pareto", str(digits / "digits.onnx"), "-p", "cortex_m4", "-o", str(tmp_path / "found"), "--budget"]
    result = CliRunner().invoke(app, [*arguments, "4799"])
    assert result.exit_code == 0 and json.loads((tmp_path / "found" / "pareto.json").read_text())["chosen"] is None
    said = " ".join(result.stderr.split())
    assert "--budget 4799: no point fits, so none is chosen; the smallest arena is 4800 B." in said


@pytest.mark.parametrize("ram", ["64XB", "=12", "dtcm=", "12 KiB KiB"])
def test_budgets_that_are_no_sizes(tmp_path: Path, ram: str) -> None:
    arguments = ["compile", "m.onnx", "-p", "cortex_m4", "-o", str(tmp_path / "out"), "--ram", ram]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2 and re.search("not of the form 64KiB|is not a size", result.output)


def test_points_are_the_same_by_any_number_of_processes(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class DiesFirst(Child):
        lost = 0

        def call(self, *values: Any, **more: Any) -> Any:
            if DiesFirst.lost < 2:
                DiesFirst.lost += 1
                self.kill()
            return super().call(*values, **more)

    module, board = tvm_ext.load(digits / "digits.onnx"), Platform.load("cortex_m4")
    alone = pareto(module, board, BuildOptions())
    monkeypatch.setattr("tvm_ext.services.local.Child", DiesFirst)
    monkeypatch.setattr("tvm_ext.services.local._Opened.start_s", 0.0)  # from the second try on, however short it is
    assert pareto(module, board, BuildOptions(), jobs=2) == alone and DiesFirst.lost == 2


def test_errors_are_the_same_by_processes(digits: Path) -> None:
    with pytest.raises(DoesNotFit, match="nearest budget"):
        pareto(tvm_ext.load(digits / "digits.onnx"), Platform.load("cortex_m4"), BuildOptions(ram=100), jobs=2)
