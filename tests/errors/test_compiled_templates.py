"""Compiled templates beside compiled modules: used again, and compiled again if damaged or of other options."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from tvm_ext.core.files.compiled_templates import remember_compiled


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (tmp_path / "page.j2").write_text("hello {{ name }}")
    return tmp_path


def rendered(folder: Path, *, autoescape: bool = False) -> str:
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(folder), autoescape=autoescape)
    return remember_compiled(environment).get_template("page.j2").render(name="<a>")


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "__pycache__").glob("*"))


def test_an_entry_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rendered(folder) == "hello <a>"
    assert len(entries(folder)) == 1
    monkeypatch.setattr(jinja2.Environment, "_compile", lambda *_: pytest.fail("it is compiled again"))
    assert rendered(folder) == "hello <a>"


def test_other_options_and_another_text_are_compiled(folder: Path) -> None:
    assert rendered(folder) == "hello <a>"
    assert rendered(folder, autoescape=True) == "hello &lt;a&gt;"
    (folder / "page.j2").write_text("bye {{ name }}")
    assert rendered(folder, autoescape=True) == "bye &lt;a&gt;"
    assert len(entries(folder)) == 1


def test_a_damaged_entry_is_replaced(folder: Path) -> None:
    rendered(folder)
    (entry,) = entries(folder)
    whole = entry.read_bytes()
    for damaged in (whole[:-1], whole[:70], b"", b"\xff" * 100):
        entry.write_bytes(damaged)
        assert rendered(folder) == "hello <a>"
        assert entry.read_bytes() == whole


def test_nothing_is_written_where_python_writes_no_modules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert rendered(folder) == "hello <a>"
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    (folder / "__pycache__").write_text("a file in place of the folder")
    assert rendered(folder) == "hello <a>"


def test_a_template_that_is_no_file() -> None:
    environment = jinja2.Environment(loader=jinja2.DictLoader({"page": "hello"}))
    assert remember_compiled(environment).get_template("page").render() == "hello"
