"""The C that pages show is the C that comes out, and the Python of the page for TVM's users runs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from runpy import run_path

import pytest

import tvm_ext
from tvm_ext.core.toolchain import installed


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


def test_the_python_for_users_of_tvm(
    repository: Path, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(digits / "digits.onnx", tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    text = (repository / "docs" / "tvm.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    runs = [block for block in blocks if "aarch64" not in block or installed("aarch64-linux-gnu-gcc")]
    # TVMScript reads the source of its classes, so the blocks run as one file.
    (tmp_path / "page.py").write_text("\n".join(runs), encoding="utf-8")
    run_path(str(tmp_path / "page.py"), run_name="page")
    assert "model_run(void)\n{" in capsys.readouterr().out
