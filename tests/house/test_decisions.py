"""Names of attributes stand in `tvm_ext/core/decisions` alone: everybody else reads and writes values."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tvm_ext.core.decisions.composites import MoveTarget
from tvm_ext.core.decisions.decision import Decision

ROOT = Path(__file__).parents[2]
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
HOME = ROOT / "tvm_ext" / "core" / "decisions"

HOLDING = {"attrs"}
"""Variables and fields that hold attributes of functions, modules and calls."""
WRITERS = {"with_attr", "with_attrs", "without_attr"}
OF_TVM_ALONE = {"s_tir", "const_name_to_constant"}
"""Attributes that TVM's own passes read or write, and nobody here decides anything by."""


def test_no_other_file_names_an_attribute() -> None:
    names = attribute_names()
    assert {"sequence", "columns", "memory", "weights_ahead", "stream", "tvm_ext.nodes", "Codegen"} <= names
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py") if HOME not in path.parents]
    assert len(files) > 300
    for path in files:
        assert not (found := list(uses(path.read_text(encoding="utf-8"), names))), f"{path}: {found}"


@pytest.mark.parametrize(
    "text",
    [
        'f = f.with_attr("sequence", "s")',
        'f = f.with_attrs({"rows_per_call": 2})',
        'f = f.without_attr("anything")',
        'rows = int(f.attrs["rows_per_call"])',
        'rows = f.attrs.get("rows_per_call", 1)',
        'rows = (f.attrs or {}).get("rows_per_call", 1)',
        'runs = "sequence" in f.attrs',
        'attrs = f.attrs\nrounding = attrs.get("rounding", "onnx")',
        'attrs = make_node("ir.DictAttrs", memory="dtcm")',
        'NODES = "tvm_ext.nodes"\nf.attrs[NODES]',
        'COMPOSITE = "Composite"',
        'told = {"predicted_cycles": 3}\nf = f.with_attrs(told)',
        "if NAME not in f.attrs: f.attrs[NAME]",
    ],
)
def test_a_use_is_noticed(text: str) -> None:
    assert list(uses(text, attribute_names()))


def test_attributes_of_operators_are_no_decisions() -> None:
    text = (
        'axes = call.attrs.axes\nf = f.with_attr("s_tir", True)\nrow = {"memory": place.memory}\nspan = row["memory"]\n'
    )
    assert not list(uses(text, attribute_names()))


def test_no_two_decisions_share_an_attribute() -> None:
    names = [name for decision in decisions() if decision is not MoveTarget for name in decision.names()]  # of calls
    assert len(names) == len(set(names)) > 25


def decisions() -> list[type[Decision]]:
    for path in HOME.glob("*.py"):
        import_module(f"tvm_ext.core.decisions.{path.stem}" if path.stem != "__init__" else "tvm_ext.core.decisions")
    return Decision.__subclasses__()


def attribute_names() -> set[str]:
    return {name for decision in decisions() for name in decision.names()}


def uses(text: str, names: set[str]) -> Iterator[str]:
    """Lines that read or write attributes by name, or say a name that means nothing else."""
    unmistakable = {name for name in names if name.startswith("tvm_ext.") or name[0].isupper() or "symbol" in name}
    for node in ast.walk(ast.parse(text)):
        if _is_use(node) or (isinstance(node, ast.Constant) and node.value in unmistakable):
            yield f"line {node.lineno}: {ast.unparse(node)}"


def _is_use(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr=called), args=[ast.Constant(value=name), *_]) if called in WRITERS:
            return name not in OF_TVM_ALONE
        case ast.Call(func=ast.Attribute(attr=called)) if called in WRITERS:
            return True
        case ast.Call(func=ast.Attribute(attr="get", value=held)) | ast.Subscript(value=held):
            return _holds(held)
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[held]):
            return _holds(held)
        case ast.Call(args=[ast.Constant(value="ir.DictAttrs"), *_], keywords=named):
            return any(keyword.arg for keyword in named)
        case _:
            return False


def _holds(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in HOLDING
        case ast.BoolOp(values=[first, *_]):
            return _holds(first)
        case _:
            return False
