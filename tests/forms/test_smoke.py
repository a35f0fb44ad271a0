"""Smoke tests of docs/packages.md, block by block: each form of a package builds and runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen_c.emit.forms.registry import forms

_HERE = Path(__file__).parent
_PAGE = (_HERE.parents[1] / "docs" / "packages.md").read_text()
_BLOCKS = {
    f"{title}-{number}": block
    for title, text in re.findall(r"^## (.+?)$(.*?)(?=^## |\Z)", _PAGE, re.MULTILINE | re.DOTALL)
    for number, block in enumerate(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
}


def test_every_form_has_a_smoke_test() -> None:
    assert {name.rpartition("-")[0] for name in _BLOCKS} == {form.title for form in forms()}


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
@pytest.mark.parametrize("name", _BLOCKS)
def test_a_block_of_the_page(name: str, kws: Path, tmp_path: Path) -> None:
    shutil.copytree(kws, tmp_path / "kws")
    _run(["bash", "-euo", "pipefail", "-c", _BLOCKS[name]], tmp_path)


@pytest.mark.board
@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
@pytest.mark.parametrize("name", _BLOCKS)
def test_a_boards_package_builds_on_this_machine_too(name: str, board_kws: Path, tmp_path: Path) -> None:
    """As unit tests of firmware do. An installed package is found by projects for its own board alone."""
    shutil.copytree(board_kws, tmp_path / "kws")
    if "find_package" in _BLOCKS[name]:
        with pytest.raises(AssertionError, match=r"Could not find a configuration file.*\n*.*compatible"):
            _run(["bash", "-euo", "pipefail", "-c", _BLOCKS[name]], tmp_path)
        return
    _run(["bash", "-euo", "pipefail", "-c", _BLOCKS[name]], tmp_path)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="no cmake")
def test_a_zephyr_build_without_the_symbol_leaves_the_model_out(kws: Path, tmp_path: Path) -> None:
    block = next(text for name, text in _BLOCKS.items() if name.startswith("Zephyr"))
    shutil.copytree(kws, tmp_path / "kws")
    with pytest.raises(AssertionError, match=r"kws\.h"):
        _run(["bash", "-eu", "-c", block.replace("CONFIG_TVM_EXT_KWS=y", "CONFIG_TVM_EXT_KWS=n")], tmp_path)


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, env=os.environ | {"STUBS": f"{_HERE}/stubs"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
