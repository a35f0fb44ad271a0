"""`tvm-ext pareto --axes flash,cycles`: verified builds that trade flash for cycles, each repeated by its command."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.models.test_least_flash import convolutions
from tests.support.onnx_models import saved
from tvm_ext import Platform
from tvm_ext.building.flash_pareto import FlashPoint, chosen, flash_pareto, front, limits_of, write_flash_pareto
from tvm_ext.command_line.main import app

M4 = Platform.load("cortex_m4")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.board
def test_points_are_verified_builds_that_their_commands_repeat(tmp_path: Path) -> None:
    path = saved(convolutions((3, 3), num_layers=2), tmp_path)
    points = flash_pareto(tvm_ext.load(path), M4, verify=("host",))
    for more, less in pairwise(points):
        assert more.flash_bytes > less.flash_bytes and more.predicted_cycles < less.predicted_cycles
    assert points[0].options == ("--optimize", "speed") and points[-1].options == ("--optimize", "size")
    limited = [point for point in points if point.flash is not None]
    assert limited and all(point.weights_bytes <= (point.flash or 0) for point in limited)
    assert all(point.verified == ("host",) and point.instructions is None for point in points)

    budget = points[1].flash_bytes
    write_flash_pareto(points, path, M4, tmp_path / "front", budget_bytes=budget)
    record = json.loads((tmp_path / "front" / "pareto.json").read_text())
    assert record["axes"] == ["flash", "cycles"] and len(record["points"]) == len(points)
    assert record["chosen"]["flash_bytes"] == budget
    picture = ElementTree.parse(tmp_path / "front" / "pareto.svg").getroot()
    assert len(picture.findall(f"{SVG}circle")) == len(points)
    page = (tmp_path / "front" / "pareto.html").read_text()
    assert all(" ".join(point.options) in page for point in points) and f"{budget:,}" in page

    command = record["chosen"]["command"].split()
    assert command[:2] == ["tvm-ext", "compile"]
    command[command.index("-o") + 1] = str(tmp_path / "again")
    result = CliRunner().invoke(app, [*command[1:], "--verify", "host"])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "again" / "report.json").read_text())
    assert report["weights_bytes"] + report["code_bytes"] == budget
    assert report["prediction"]["cycles"] == record["chosen"]["predicted_cycles"]


def point(weights_bytes: int, cycles: int) -> FlashPoint:
    return FlashPoint(
        optimize="speed", flash=None, weights_bytes=weights_bytes, code_bytes=1000, arena_bytes=64,
        predicted_cycles=cycles, instructions=None, verified=(),
    )  # fmt: skip


def test_points_that_another_beats_are_left_out() -> None:
    points = [point(500, 90), point(300, 100), point(300, 120), point(400, 100), point(200, 300)]
    assert front(points) == (points[0], points[1], points[4])
    assert front(points[:1]) == (points[0],)


def test_the_chosen_point_has_the_fewest_cycles_within_the_budget() -> None:
    points = front([point(500, 90), point(300, 100), point(200, 300)])
    assert chosen(points, 1499) == points[1] and chosen(points, 1500) == points[0]
    assert chosen(points, 1199) is None and chosen(points, None) is None


def test_limits_leave_room_for_the_tables_of_kernels_for_speed() -> None:
    limits = list(limits_of(7400, 6400))
    assert limits[0] < 7400 and limits[-1] == 6500 and len(limits) == 6
    assert limits == sorted(limits, reverse=True)
    assert not list(limits_of(6500, 6400)), "weights that do not grow"


def test_what_the_points_are_compiled_for_is_not_an_option(digits: Path, tmp_path: Path) -> None:
    arguments = ["pareto", str(digits / "digits.onnx"), "-p", "cortex_m4", "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--axes", "flash,cycles", "--optimize", "size"])
    assert result.exit_code == 2 and "Remove --optimize" in " ".join(result.output.split())
    result = CliRunner().invoke(app, [*arguments, "--axes", "flash"])
    assert result.exit_code == 2 and not (tmp_path / "out").exists()


def test_the_command_says_what_fits_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = front([point(500, 90), point(200, 300)])
    monkeypatch.setattr("tvm_ext.building.flash_pareto.flash_pareto", lambda *_, **__: points)
    path = saved(convolutions((3, 3), num_layers=1), tmp_path)
    arguments = ["pareto", str(path), "-p", "cortex_m4", "-o", str(tmp_path / "out"), "--axes", "flash,cycles"]
    result = CliRunner().invoke(app, [*arguments, "--budget", "1199"])
    assert result.exit_code == 0, result.output
    said = " ".join(result.stderr.split())
    assert "--budget 1199: no point fits, so none is chosen; the smallest flash is 1200 B." in said
    assert "Build a row again: tvm-ext compile" in " ".join(result.stdout.split())
