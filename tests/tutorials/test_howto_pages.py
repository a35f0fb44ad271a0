"""Pages that go from a model to a firmware: their commands run as they stand there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from documentation.report_keys import undescribed
from tests.support.page_commands import page_steps
from tests.support.peers import peer
from tests.support.tflite_models import ds_cnn
from tvm_ext.core.files.output_folder import in_the_way


@pytest.mark.board
def test_the_wake_word(repository: Path, tmp_path: Path) -> None:
    files, printed = _follow("wake_word.md", repository, tmp_path)
    assert files == ["make_model.py", "main.c"] and printed == "awake at frame 67\n"
    report = json.loads((tmp_path / "work" / "out" / "wake" / "report.json").read_text(encoding="utf-8"))
    assert not undescribed(report)


@pytest.mark.board
def test_a_wake_word_from_samples(repository: Path, tmp_path: Path) -> None:
    files, printed = _follow("from_samples.md", repository, tmp_path)
    assert files == ["make_model.py", "main.c"] and printed == "awake after run 68\n"
    report = json.loads((tmp_path / "work" / "out" / "wake" / "report.json").read_text(encoding="utf-8"))
    assert {"fourier_powers_f32", "banded_dense_f32"} <= {step["kernel"] for step in report["steps"]}


@pytest.mark.board
def test_boxes_of_a_detector(repository: Path, tmp_path: Path) -> None:
    files, printed = _follow("boxes.md", repository, tmp_path)
    assert files == ["make_model.py", "heads.toml", "main.c"] and printed == "sun at 44, 36\nlamp at 12, 12\n"
    package = tmp_path / "work" / "out" / "detector"
    assert "detector_boxes.h" in (package / "manifest.json").read_text(encoding="utf-8") and not in_the_way(package)


@pytest.mark.board
def test_the_early_exit(repository: Path, tmp_path: Path) -> None:
    """The last layers run for faint images only: the firmware counts its instructions."""
    files, printed = _follow("early_exit.md", repository, tmp_path)
    assert files == ["make_model.py", "exit.toml", "main.c"]
    assert [line.split(", ")[1] for line in printed.splitlines()] == ["first layers"] * 2 + ["all layers"] * 2
    report = json.loads((tmp_path / "work" / "out" / "exit" / "report.json").read_text(encoding="utf-8"))
    first, rest = (model["verify"]["qemu"] for model in report["models"].values())
    assert first["passed"] and rest["passed"]
    counted = [float(line.split(", ")[2].split()[0]) for line in printed.splitlines()]
    best, worst = first["instructions"] / 1e6, (first["instructions"] + rest["instructions"]) / 1e6
    assert counted == pytest.approx([best, best, worst, worst], abs=0.11)  # the page prints tenths, rounded down


@pytest.mark.board
def test_layers_for_an_ethos_u(repository: Path, tmp_path: Path) -> None:
    """Every layer of a run arrives at the driver with a command stream; the header in its place computes nothing."""
    peer("ethosu.vela")
    files, _ = _follow("ethos_u.md", repository, tmp_path, {"model.tflite": ds_cnn(int8=True)})
    assert files == ["ethos_u.toml", "streams.py", "npu.c", "ethosu_driver.h"]
    package = tmp_path / "work" / "net"
    report = json.loads((package / "report.json").read_text(encoding="utf-8"))
    layers = report["processors"][-1]["steps"]
    assert len(layers) >= 4
    assert (package / "streams.h").read_text().count("commands_") == 3 * len(layers)
    run = ["make", "-s", "-C", str(package), "run", "DRIVER=npu.c"]
    failed = subprocess.run(run, capture_output=True, text=True, timeout=300, check=False)
    assert "FAIL outputs differ" in failed.stdout + failed.stderr, "every layer was started with its stream"


def _follow(
    name: str, repository: Path, tmp_path: Path, given: Mapping[str, bytes] | None = None
) -> tuple[list[str], str]:
    """Run the commands of a page; return the names of its files and its last output, which the page promises.

    given: files that the reader has.
    """
    steps = list(page_steps(repository / "docs" / "howto" / name))
    environment = {**os.environ, "PATH": f"{_programs(repository, tmp_path)}:{os.environ['PATH']}"}
    printed = ""
    work = tmp_path / "work"
    work.mkdir()
    for file, data in (given or {}).items():
        (work / file).write_bytes(data)
    for step in steps:
        if step.kind == "file":
            (work / step.name).write_text(step.text, encoding="utf-8")
        elif step.kind == "commands":
            command = ["bash", "-e", "-c", f"{{ {step.text}\n}} 2>&1"]  # QEMU prints what firmware says on stderr
            done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, f"{step.text}\n{done.stdout}"
            printed = done.stdout
        else:
            assert printed == step.text
    return [step.name for step in steps if step.kind == "file"], printed


def _programs(repository: Path, folder: Path) -> Path:
    """A folder with `python` and `tvm-ext` as an activated environment has them, of this checkout."""
    programs = folder / "bin"
    programs.mkdir()
    for name, arguments in {"python": "", "tvm-ext": "-m tvm_ext"}.items():
        script = f'#!/bin/sh\nPYTHONPATH="{repository}" exec "{sys.executable}" {arguments} "$@"\n'
        (programs / name).write_text(script, encoding="utf-8")
        (programs / name).chmod(0o755)
    assert shutil.which("make") is not None
    return programs
