"""Operators of a model file that cannot be compiled, and the error that lists all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tvm_ext.core.errors import UnsupportedModel

_NUM_NODES_NAMED = 3


class Refused(Exception):
    """Raised during the translation of an operator that cannot be compiled, with the reason as a clause."""


@dataclass(frozen=True, kw_only=True)
class RefusedNode:
    """An operator of the model that cannot be compiled.

    node: its name in the file.
    """

    operator: str
    node: str
    reason: str


def unsupported(path: Path, nodes: Sequence[RefusedNode], *, way_out: str) -> UnsupportedModel:
    """Return a single error for all nodes, grouped by operator and reason.

    way_out: its last line.
    """
    ordered = sorted(nodes, key=lambda node: (node.operator, node.reason))
    lines = []
    for (operator, reason), group in groupby(ordered, key=lambda node: (node.operator, node.reason)):
        names = [node.node for node in group]
        named = ", ".join(names[:_NUM_NODES_NAMED]) + (", ..." if len(names) > _NUM_NODES_NAMED else "")
        times = "once" if len(names) == 1 else f"{len(names)} times"
        lines.append(f"  {operator}, {times} ({named}): {reason}")
    return UnsupportedModel("\n".join([f"{path}: cannot be compiled because of:", *lines, way_out]))


def summary(error: Exception) -> str:
    """Return the type and the last line of an error that is not ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200]}" if lines else type(error).__name__
