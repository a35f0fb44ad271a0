"""No two public classes of the three packages share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
NAMED_BY_OTHERS = {"OnnxOpConverter"}
"""Bases of classes that are named for operators of a standard: `Concat` converts what ONNX calls Concat."""


def test_no_two_public_classes_share_a_name() -> None:
    sources = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }
    assert len(sources) > 300 and shared_names(sources) == {}


def test_a_shared_name_is_noticed() -> None:
    sources = {"a.py": "class Part:\n    class Inner: ...\n", "b.py": "class Part(Base): ...\nclass _Own: ...\n"}
    assert shared_names(sources) == {"Part": ["a.py:1", "b.py:1"]}
    hidden = {"a.py": "class _Own: ...\n", "b.py": "class _Own: ...\n", "c.py": "class Own: ...\n"}
    assert shared_names(hidden) == {}
    converters = {"a.py": "class Concat(OnnxOpConverter): ...\n", "b.py": "class Concat: ...\n"}
    assert shared_names(converters) == {}


def shared_names(sources: Mapping[str, str]) -> dict[str, Sequence[str]]:
    """Public names that several classes have, with the places of these. sources: text by file."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, text in sources.items():
        for name, line in _public_classes(text):
            places[name].append(f"{file}:{line}")
    return {name: found for name, found in places.items() if len(found) > 1}


def _public_classes(text: str) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        if not NAMED_BY_OTHERS & {base.id for base in node.bases if isinstance(base, ast.Name)}:
            yield node.name, node.lineno
