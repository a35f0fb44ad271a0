"""Lists of platforms and the page of one: narrow enough for a terminal, nothing of it left out."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console, RenderableType

from tvm_ext import Platform
from tvm_ext.core.shipped import board_tables, core_tables, platform_path, read_platform_table
from tvm_ext.report.listings import board_table, platform_details, platform_table

COLUMNS = 80


def shown(*parts: RenderableType) -> str:
    console = Console(file=StringIO(), width=COLUMNS)
    for part in parts:
        console.print(part, highlight=False)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_lists_fit_a_terminal_with_every_name_whole() -> None:
    text = shown(platform_table(core_tables()), board_table(board_tables()))
    assert max(map(len, text.splitlines())) <= COLUMNS and "…" not in text
    assert all(f" {name} " in text for name in (*Platform.shipped(), *Platform.boards()))
    assert "Cortex-M33 x2" in text and "Cortex-M85" in text and "Cortex-M0+" in text and "RV32IMC" in text


@pytest.mark.parametrize("name", [*Platform.shipped(), *Platform.boards()])
def test_a_page_has_everything(name: str) -> None:
    text = shown(*platform_details(read_platform_table(platform_path(name))))
    platform = Platform.load(name)
    assert max(map(len, text.splitlines())) <= COLUMNS and "…" not in text
    words = " ".join(text.split())
    for statement in (*platform.sources, *platform.assumptions, *platform.aliases):
        assert "".join(statement.split()) in "".join(words.split())
    for memory in platform.memories:
        assert f"│{memory.name} " in text and (memory.section or "") in text
    assert ("In QEMU: " in text) is (platform.board is not None)
