"""The C that README.md shows is the C that comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_ext


@pytest.mark.board
def test_excerpt_is_generated(repository: Path, digits: Path, tmp_path: Path) -> None:
    (excerpt,) = re.findall(r"```c\n(.*?)```", (repository / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    options = tvm_ext.BuildOptions(verify=())
    package = tvm_ext.build(tvm_ext.load(digits / "digits.onnx"), "cortex_m4", tmp_path / "digits", options)
    assert excerpt in (package.folder / "digits.c").read_text(encoding="utf-8")
