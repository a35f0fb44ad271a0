"""The page from a model to a firmware with a wake word: its commands run as they stand there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from documentation.report_keys import undescribed
from tests.support.page_commands import page_steps


@pytest.mark.board
def test_each_command_of_the_page(repository: Path, tmp_path: Path) -> None:
    steps = list(page_steps(repository / "docs" / "howto" / "wake_word.md"))
    assert [step.name for step in steps if step.kind == "file"] == ["make_model.py", "main.c"]
    environment = {**os.environ, "PATH": f"{_programs(repository, tmp_path)}:{os.environ['PATH']}"}
    printed = ""
    work = tmp_path / "work"
    work.mkdir()
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
    assert printed == "awake at frame 67\n"
    assert not undescribed(json.loads((work / "out" / "wake" / "report.json").read_text(encoding="utf-8")))


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
