"""What an ONNX model may hold that cannot be compiled, and the one error that lists all of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import onnx

from tvm_ext.core.errors import UnsupportedModel

_NUM_NODES_NAMED = 3
_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_STRINGS = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "LabelEncoder")


class Refused(Exception):
    """Raised by a converter: this node cannot be compiled, for the reason given."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One node that cannot be compiled."""

    operator: str
    node: str
    reason: str


def operator_of(node: onnx.NodeProto) -> str:
    """`ai.onnx.Conv`, `com.microsoft.Gelu`."""
    return f"{node.domain or 'ai.onnx'}.{node.op_type}"


def refusal(node: onnx.NodeProto) -> str | None:
    """Why a node can be refused from its name and attributes alone; None when it cannot."""
    if "training" in node.domain:
        return "it belongs to training; export the model for inference"
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type.startswith(("Sequence", "Optional")) or node.op_type in ("SplitToSequence", "ConcatFromSequence"):
        return "sequences and optionals have no static size"
    if node.op_type in _STRINGS:
        return "strings"
    if node.op_type in _RANDOM:
        return "its result is random"
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return "it is in training mode; export the model for inference"
    return None


def unsupported(path: Path, problems: Sequence[Problem]) -> UnsupportedModel:
    """One error for all problems, grouped by operator and reason."""
    ordered = sorted(problems, key=lambda problem: (problem.operator, problem.reason))
    lines = []
    for (operator, reason), group in groupby(ordered, key=lambda problem: (problem.operator, problem.reason)):
        nodes = [problem.node for problem in group]
        named = ", ".join(nodes[:_NUM_NODES_NAMED]) + (", ..." if len(nodes) > _NUM_NODES_NAMED else "")
        times = "once" if len(nodes) == 1 else f"{len(nodes)} times"
        lines.append(f"  {operator}, {times} ({named}): {reason}")
    head = f"{path}: cannot be compiled because of:"
    foot = "Export the model without them, with static shapes, or replace them by operators of the ONNX standard."
    return UnsupportedModel("\n".join([head, *lines, foot]))


def summary(error: Exception) -> str:
    """Type and last line of an error that is not ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:200]}" if lines else type(error).__name__
