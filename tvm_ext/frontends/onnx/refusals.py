"""Nodes of an ONNX model that are refused by name and attributes alone."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tvm_ext.frontends.custom_calls import HOW_TO_BRING

WAY_OUT = "Export the model without them, with static shapes, or replace them by operators of the ONNX standard."
"""Last line of the error that lists nodes."""

_RANDOM = ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
_STRINGS = ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer", "LabelEncoder")


def draws(node: onnx.NodeProto) -> bool:
    """Return True for a node with random results, whose value for one draw must never be taken as its result."""
    return node.op_type in _RANDOM or "Random" in node.op_type or "Dropout" in node.op_type


def operator_of(node: onnx.NodeProto) -> str:
    """Return an operator's full name, such as `ai.onnx.Conv` or `com.microsoft.Gelu`."""
    return f"{node.domain or 'ai.onnx'}.{node.op_type}"


_GENERATES = "it generates text, or reads a cache whose length data decide; run it in the application, or"
_IS_DECIDED = "data decide the shape of its output; compute it in the application, or"
_IS_APPROXIMATE = "onnxruntime quantizes inside it at run time; export it in float for --quantize int8, or"
CONTRIB_REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        "BeamSearch DecoderMaskedMultiHeadAttention GreedySearch GroupQueryAttention MoE NGramRepeatBlock QMoE "
        "SampleOp Sampling SparseAttention WhisperBeamSearch".split(),
        _GENERATES,
    ),
    **dict.fromkeys("BifurcationDetector Tokenizer Unique".split(), _IS_DECIDED),
    "DynamicQuantizeLSTM": _IS_APPROXIMATE,
}
"""Why operators of com.microsoft are refused, where more can be said than that they are not known."""


def not_defined(node: onnx.NodeProto) -> str:
    """Return why an unknown node is refused."""
    known = CONTRIB_REASONS.get(node.op_type) if node.domain == "com.microsoft" else None
    reason = known or "there is neither a converter for it nor a definition by other operators;"
    return f"{reason} bring it as {HOW_TO_BRING}, named {operator_of(node)!r}"


def refusal(node: onnx.NodeProto) -> str | None:
    """Return why a node is refused by its name and attributes alone, or None."""
    if "training" in node.domain:
        return "it belongs to training; export the model for inference"
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type in _STRINGS:
        return "strings, which are no tensors in C; turn them into numbers in the application"
    if node.op_type in _RANDOM:
        return "its result is random; draw it in the application, and hand it in as an input"
    if any(a.name == "training_mode" and a.i for a in node.attribute):
        return "it is in training mode; export the model for inference"
    return None
