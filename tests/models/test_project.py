"""`tvm_ext.toml`: what `tvm-ext compile` does in a project's folder, and what its arguments change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.project_file import ProjectFile

FILE = """
platform = "board.toml"

[model]
name = "net"
file = "small.onnx"
calibration = "samples.npz"

[options]
optimize = "size"
hooks = true
quantize = "int8"
ram = "48KiB"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a model, a platform of its own and a project's file."""
    saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    shipped = Path(__file__).parents[2] / "tvm_ext" / "platforms" / "cortex_m4.toml"
    text = shipped.read_text(encoding="utf-8").replace('name = "cortex_m4"', 'name = "my_board"')
    (tmp_path / "board.toml").write_text(text, encoding="utf-8")
    (tmp_path / "tvm_ext.toml").write_text(FILE, encoding="utf-8")
    np.savez(tmp_path / "samples.npz", x=np.ones((2, 3, 12, 10), np.float32))
    return tmp_path


def compiled(*arguments: str | Path) -> dict[str, object]:
    result = CliRunner().invoke(app, ["compile", *map(str, arguments), "--verify", "none", "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_current_folders_project_is_compiled(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    report = compiled()
    assert report["platform"] == "my_board" and (project / "package" / "net.h").is_file()
    assert report["options"]["optimize"] == "size" and report["options"]["hooks"] is True  # type: ignore[index]


def test_arguments_go_over_the_file(project: Path, tmp_path: Path) -> None:
    """Only those that are typed: a default of the command line is no choice."""
    report = compiled(project, "-p", "cortex_m7", "-o", tmp_path / "other", "--no-hooks", "--name", "mine")
    options = report["options"]
    assert report["platform"] == "cortex_m7" and (tmp_path / "other" / "mine.h").is_file()
    assert options["hooks"] is False and options["optimize"] == "size"  # type: ignore[index]
    assert compiled(project, "--optimize", "speed")["options"]["optimize"] == "speed"  # type: ignore[index]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('file = "small.onnx"', 'file = "../small.onnx"', "model.file = '../small.onnx': is no plain path"),
        ('platform = "board.toml"', 'platform = "../b.toml"', "platform = '../b.toml': is no plain path"),
        ('name = "net"', "", "model.name: is missing"),
        ("hooks = true", "hook = true", "options.hook: unknown key; allowed here: optimize"),
        ("hooks = true", 'io = "air"', "options.io"),
        ('name = "net"', 'name = "net"\nfolder = "x"', "model.folder: unknown key; allowed here: name, file"),
        ('platform = "board.toml"', 'platform = "host"\noutput = "../x"', "output = '../x': is no plain path"),
        ('platform = "board.toml"', 'platform = "host"\nfolder = "x"', "folder: unknown key"),
        ("hooks = true", 'state = "hot"', "options.state: unknown key"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(project: Path, old: str, new: str, said: str) -> None:
    (project / "tvm_ext.toml").write_text(FILE.replace(old, new), encoding="utf-8")
    result = CliRunner().invoke(app, ["compile", str(project)])
    assert result.exit_code == 2 and said in result.stderr, result.stderr


def test_options_that_contradict_each_other(project: Path) -> None:
    (project / "tvm_ext.toml").write_text(FILE.replace("hooks = true", 'io = "caller"\npin = {x = 0}'))
    with pytest.raises(BadOptions, match=r"tvm_ext\.toml: options: "):
        ProjectFile.load(project)


def test_without_a_project_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, said in (
        ([], "MODEL is missing, and "),
        (["x.onnx"], "-p is missing: choose one of always_on"),
        (["x.onnx", "-p", "host"], "-o is missing"),
    ):
        result = CliRunner().invoke(app, ["compile", *arguments])
        assert result.exit_code == 2 and said in result.stderr, result.stderr
