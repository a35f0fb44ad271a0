"""The C that README.md shows is the C that comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_ext


@pytest.mark.board
def test_excerpt_is_generated(repository: Path, digits: Path, tmp_path: Path) -> None:
    excerpts = re.findall(r"```c\n(.*?)```", (repository / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    module = tvm_ext.load(digits / "digits.onnx")
    shown = {"arena": "digits.c", "stream": "digits.h"}
    for excerpt, (io, name) in zip(excerpts, shown.items(), strict=True):
        options = tvm_ext.BuildOptions(io=io, verify=())  # type: ignore[arg-type]
        package = tvm_ext.build(module, "cortex_m4", tmp_path / io, options)
        assert excerpt in (package.folder / name).read_text(encoding="utf-8")
