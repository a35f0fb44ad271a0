"""The C that pages show is the C that comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tvm_ext


@pytest.mark.board
def test_excerpt_is_generated(repository: Path, digits: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(digits / "digits.onnx")
    shown = {"start": ("arena", "digits.c"), "streaming": ("stream", "digits.h")}
    for page, (io, name) in shown.items():
        text = (repository / "docs" / f"{page}.md").read_text(encoding="utf-8")
        excerpt, *_ = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
        options = tvm_ext.BuildOptions(io=io, verify=())  # type: ignore[arg-type]
        package = tvm_ext.build(module, "cortex_m4", tmp_path / io, options)
        assert excerpt in (package.folder / name).read_text(encoding="utf-8")
