"""Attributes on which ONNX's own inference crashes or never ends, read before it reads them.

Of all attributes of the standard's operators, set to extreme values one at a time, these are the ones.
"""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.onnx.walk_nodes import nodes_of

_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")
_MOST_AXES = 64


def screen_attributes(path: Path, model: onnx.ModelProto) -> None:
    """Raises BadModel for such a value, UnsupportedModel for an equation that a function's caller brings."""
    for node in nodes_of(model):
        for attribute in node.attribute:
            where = f"{path}: node {node.name or node.op_type} ({node.op_type}): {attribute.name}"
            if node.op_type == "Einsum" and attribute.ref_attr_name:
                raise UnsupportedModel(f"{where} is an attribute of the function's: write it out there.")
            if node.op_type == "Einsum" and not _EQUATION.fullmatch(_text(attribute).replace(" ", "")):
                raise BadModel(
                    f"{where} = {_text(attribute)[:100]!r}: letters, commas between terms, one '...' in a term and one "
                    "'->' are what an equation has."
                )
            least = {"axis": -_MOST_AXES, "batch_dims": 0}.get(attribute.name)
            if least is not None and not least <= attribute.i <= _MOST_AXES:
                raise BadModel(f"{where} = {attribute.i}: no tensor has so many axes.")


def _text(attribute: onnx.AttributeProto) -> str:
    return attribute.s.decode("utf-8", errors="backslashreplace")
