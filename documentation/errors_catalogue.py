"""The page of errors: the error classes, and the messages of all raise statements, read from the source code."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from documentation.docstring_lists import with_lists
from documentation.markdown import cell, documented, page
from tvm_ext.core import errors
from tvm_ext.core.errors import TvmExtError

PATH = "docs/reference/errors.md"
ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")


def errors_page() -> str:
    """Return the page. Raises ValueError for an error class without a way out."""
    classes = [entry for _, entry in inspect.getmembers(errors, inspect.isclass) if issubclass(entry, TvmExtError)]
    classes = sorted((entry for entry in classes if entry is not TvmExtError), key=_line)
    if silent := [entry.__name__ for entry in classes if not entry.way_out]:
        raise ValueError(f"{', '.join(silent)}: say in `way_out` what a user does about it.")
    said = messages()
    intro = (
        "Every error raised on purpose is a `tvm_ext.errors.TvmExtError`; the command line prints its class and "
        "message, and exits with 1, or with 2 where it was called wrongly. Messages below are those of the code, with "
        "what a run fills in `<so>`. Their last sentence is the way out."
    )
    return page("Errors", intro, *(_class(entry, said.get(entry.__name__, [])) for entry in classes))


def _line(entry: type) -> int:
    return inspect.getsourcelines(entry)[1]


def _class(entry: type[TvmExtError], said: list[str]) -> str:
    text = with_lists(documented(entry))
    listed = "\n".join(f"- {message}" for message in said)
    return f"## {entry.__name__}\n\n{text}\n\n**Way out.** {_from_here(entry.way_out)}\n\n{listed}"


def _from_here(text: str) -> str:
    """Markdown whose links lead to pages in docs/, as the page of errors has them."""
    return text.replace("](", "](../").replace("](../reference/", "](")


def messages() -> dict[str, list[str]]:
    """Return the messages of all raise statements by error class, sorted and without duplicates."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for name, message in _raises(ast.parse(path.read_text(encoding="utf-8"))):
                found[name].add(message)
    return {name: sorted(texts, key=str.lower) for name, texts in found.items()}


def _raises(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            function = node.exc.func
            name = function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
            text = _template(node.exc.args[0])
            if text:
                yield name, text


def _template(node: ast.expr) -> str:
    """Return the text of a message with `<name>` for each value; empty if the text is not a literal."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return _escaped(node.value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return cell(_template(node.left) + _template(node.right))
    if not isinstance(node, ast.JoinedStr):
        return ""
    parts = [
        _escaped(str(part.value)) if isinstance(part, ast.Constant) else f"`<{_value_name(part)}>`"
        for part in node.values
    ]
    words = [part for part in parts if not part.startswith("`<") and part.strip(" :.,")]
    return cell("".join(parts)) if words else ""


def _escaped(text: str) -> str:
    for letter in "\\*_<>[]`":
        text = text.replace(letter, f"\\{letter}")
    return text


def _value_name(part: ast.expr) -> str:
    """Return a name for a value in a message: its variable or its attribute."""
    value = part.value if isinstance(part, ast.FormattedValue) else part
    names = [node for node in ast.walk(value) if isinstance(node, ast.Name | ast.Attribute)]
    first = names[0] if names else None
    if isinstance(value, ast.Call) and value.args:
        inner = [node for node in ast.walk(value.args[0]) if isinstance(node, ast.Name | ast.Attribute)]
        first = inner[0] if inner else first
    if isinstance(first, ast.Attribute):
        return first.attr
    return first.id if isinstance(first, ast.Name) else "value"
