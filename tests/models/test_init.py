"""`tvm-ext init`: a project that compiles, builds and runs as it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.tflite_models import Network
from tvm_ext.command_line.main import app


def told(*arguments: str | Path, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.output


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
@pytest.mark.parametrize("kind", ["floats", "bytes"])
def test_a_project_compiles_builds_and_runs(kind: str, tmp_path: Path) -> None:
    model = (
        saved(SMALL_MODELS["image_in_and_out"](), tmp_path, "My Net-2") if kind == "floats" else tmp_path / "q.tflite"
    )
    if kind == "bytes":
        net = Network(int8=True)
        model.write_bytes(net.writer.finish([net.dense(net.input((1, 8)), 4, "d")]))
    project, name = tmp_path / "app", "my_net_2" if kind == "floats" else "q"
    text = told("init", model, "-p", "nucleo-h743zi", "-o", project)
    assert f"cd {project} && tvm-ext compile" in text
    told("compile", project, "--verify", "host")
    subprocess.run(["cmake", "-S", project, "-B", tmp_path / "build"], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", tmp_path / "build"], check=True, capture_output=True)
    done = subprocess.run([tmp_path / "build" / f"{name}_app"], check=True, capture_output=True, text=True)
    assert "[0] = " in done.stdout
    assert {"tvm_ext.toml", "board.toml", "main.c", "CMakeLists.txt", model.name} <= {p.name for p in project.iterdir()}


def test_a_folder_that_holds_something_stays_as_it_is(tmp_path: Path) -> None:
    model = saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "notes.txt").write_text("mine")
    assert "the folder is not empty" in told("init", model, "-p", "host", "-o", tmp_path / "app", status=2)
    assert [path.name for path in (tmp_path / "app").iterdir()] == ["notes.txt"]


def test_nothing_is_left_of_a_project_whose_model_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    assert "BadModel" in told("init", tmp_path / "net.onnx", "-p", "host", "-o", tmp_path / "app", status=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx"]
