"""No file of the three packages imports in a circle, also not inside functions or for type checkers alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.imports import circle_in, imports_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")


def test_no_files_import_in_a_circle() -> None:
    imports = imports_of(ROOT, PACKAGES)
    assert len(imports) > 300 and sum(map(len, imports.values())) > 1000
    assert circle_in(imports) == []


@pytest.mark.parametrize(
    "back",
    [
        "from toy.a import A\n",
        "def late():\n    from toy import a\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import toy.a\n",
    ],
)
def test_a_circle_is_noticed(back: str, tmp_path: Path) -> None:
    folder = tmp_path / "toy" / "room"
    folder.mkdir(parents=True)
    (tmp_path / "toy" / "a.py").write_text("from toy.room.b import B\nA = B\n")
    (folder / "b.py").write_text(f"{back}B = 1\n")
    assert circle_in(imports_of(tmp_path, ["toy"])) == ["toy.a", "toy.room.b", "toy.a"]


def test_every_file_of_code_generation_has_a_room() -> None:
    assert [path.name for path in (ROOT / "codegen_c").glob("*.py")] == ["__init__.py"]
