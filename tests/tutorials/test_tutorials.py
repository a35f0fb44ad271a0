"""Every numbered tutorial runs as it stands, in a process of its own, from an unrelated folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.sweeps import some_of

TUTORIALS = sorted(Path(__file__).parents[2].joinpath("tutorials").glob("[0-9][0-9]_*.py"))
ALWAYS = [path for path in TUTORIALS if path.stem[:2] in ("01", "02", "03", "07", "10", "12", "13")]
"""The others take about twenty seconds each, and use what tests of their own hold."""
REST = [path for path in TUTORIALS if path not in ALWAYS]


@pytest.mark.parametrize("tutorial", some_of(ALWAYS, sweep=REST), ids=lambda path: path.stem)
def test_tutorial(tutorial: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(tutorial)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert not any(tmp_path.iterdir()), "a tutorial leaves nothing where it was started"


def test_there_is_a_tutorial() -> None:
    assert TUTORIALS
