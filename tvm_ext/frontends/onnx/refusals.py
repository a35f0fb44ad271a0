"""Nodes of an ONNX model that are refused by name and attributes alone."""

from __future__ import annotations

import onnx

from tvm_ext.frontends.custom_calls import HOW_TO_BRING

WAY_OUT = "Export the model without them, with static shapes, or replace them by operators of the ONNX standard."
"""Last line of the error that lists nodes."""

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_STRINGS = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "LabelEncoder")


def draws(node: onnx.NodeProto) -> bool:
    """True for a node whose result may be random: what one draw gave is never taken for what it computes."""
    return node.op_type in _RANDOM or "Random" in node.op_type or "Dropout" in node.op_type


def operator_of(node: onnx.NodeProto) -> str:
    """`ai.onnx.Conv`, `com.microsoft.Gelu`."""
    return f"{node.domain or 'ai.onnx'}.{node.op_type}"


def not_defined(node: onnx.NodeProto) -> str:
    """Reason to refuse a node that nothing here knows."""
    return (
        "there is neither a converter for it nor a definition by other operators; bring it as "
        f"{HOW_TO_BRING}, named {operator_of(node)!r}"
    )


def refusal(node: onnx.NodeProto) -> str | None:
    """Reason to refuse a node from its name and attributes alone; None without."""
    if "training" in node.domain:
        return "it belongs to training; export the model for inference"
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type.startswith(("Sequence", "Optional")) or node.op_type in ("SplitToSequence", "ConcatFromSequence"):
        return "sequences and optionals have no static size"
    if node.op_type in _STRINGS:
        return "strings, which are no tensors in C; turn them into numbers in the application"
    if node.op_type in _RANDOM:
        return "its result is random; draw it in the application, and hand it in as an input"
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return "it is in training mode; export the model for inference"
    return None
