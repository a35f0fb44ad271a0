"""`tvm-ext inspect FOLDER`: a row for each model file, also for files that fail or take too long."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from onnx import helper
from typer.testing import CliRunner

from tests.support.onnx_models import SMALL_MODELS, model_of, saved
from tvm_ext.command_line.main import app
from tvm_ext.sweeps.inspect_folder import COLUMNS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that compiles, a model below it that does not, a damaged file, and a file of another kind."""
    folder = tmp_path_factory.mktemp("models")
    saved(SMALL_MODELS["branches"](), folder).rename(folder / "good.onnx")
    inner = folder / "inner"
    inner.mkdir()
    refused = model_of([helper.make_node("Unique", ["x"], ["y"])], {"x": (4,)}, {"y": (4,)})
    saved(refused, inner).rename(inner / "refused.onnx")
    (folder / "bad.tflite").write_bytes(b"no model")
    (folder / "bad.tosa").write_bytes(b"no model")
    (folder / "bad.mlir").write_bytes(b"no model")
    (folder / "notes.txt").write_text("no model")
    return folder


def told(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_table_has_a_row_for_each_file(folder: Path) -> None:
    rows = {row["file"]: row for row in json.loads(told(folder, "--json"))}
    assert [*rows] == ["bad.mlir", "bad.tflite", "bad.tosa", "good.onnx", "inner/refused.onnx"]
    good, bad, refused = rows["good.onnx"], rows["bad.tflite"], rows["inner/refused.onnx"]
    assert good["compiles"] and good["error"] is None and good["operators"]
    assert good["ram_bytes"] > 0 and good["flash_bytes"] > 0 and good["kernel_macs_share"] == 1.0
    assert (bad["compiles"], bad["error"]) == (False, "BadModel")
    assert bad["reason"].startswith("bad.tflite: is not a TensorFlow Lite file")
    assert (refused["compiles"], refused["error"]) == (False, "UnsupportedModel")
    assert "Unique" in refused["reason"] and str(folder) not in refused["reason"]


def test_the_table_as_csv(folder: Path) -> None:
    rows = [*csv.DictReader(io.StringIO(told(folder, "--csv")))]
    assert [*rows[0]] == [*COLUMNS]
    assert [row["compiles"] for row in rows] == ["False", "False", "False", "True", "False"]


def test_a_file_that_takes_too_long(folder: Path) -> None:
    rows = json.loads(told(folder, "--json", "--seconds", "0.001"))
    assert [row["error"] for row in rows] == ["ChildExpired"] * 5


def test_what_needs_a_single_model(folder: Path, tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["inspect", str(folder), "--shape", "x=1"])
    assert result.exit_code != 0 and "give its file instead of a folder" in result.output
    empty = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert empty.exit_code != 0 and "has no model files below it" in empty.output
