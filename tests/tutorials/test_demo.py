"""`make demo` does what it says, with the board."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.board
def test_demo(repository: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(repository / "tutorials" / "demo.py"), str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    for wanted in ("onnxruntime", "C on this machine", "C on Cortex-M4, in QEMU", "executed instructions", "flash"):
        assert wanted in result.stdout
    assert "not run" not in result.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"digits_host", "digits_cortex_m4"}
