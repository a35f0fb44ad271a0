"""Arguments of a call in torch's graph by their names."""

from __future__ import annotations

from typing import Any


def arguments_of(node: Any) -> dict[str, Any]:
    """Arguments that a node of an ATen operator gives, as its schema calls them; defaults are left out."""
    positional = zip(node.target._schema.arguments, node.args, strict=False)
    return {**{argument.name: value for argument, value in positional}, **node.kwargs}
