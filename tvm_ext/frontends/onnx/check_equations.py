"""Equations of Einsum, read before ONNX's own inference reads them: on a sign it does not know it never ends."""

from __future__ import annotations

import re
from pathlib import Path

import onnx

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.onnx.walk_nodes import nodes_of

_TERM = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
_EQUATION = re.compile(rf"{_TERM}(,{_TERM})*(->{_TERM})?")


def check_equations(path: Path, model: onnx.ModelProto) -> None:
    """Raises BadModel for an equation that is not terms of letters, UnsupportedModel for one that a call brings."""
    for node in nodes_of(model):
        for attribute in node.attribute if node.op_type == "Einsum" else []:
            where = f"{path}: node {node.name or node.op_type} (Einsum)"
            if attribute.ref_attr_name:
                raise UnsupportedModel(
                    f"{where}: its {attribute.name} is an attribute of the function's: write it out there."
                )
            equation = attribute.s.decode("utf-8", errors="backslashreplace")
            if not _EQUATION.fullmatch(equation.replace(" ", "")):
                raise BadModel(
                    f"{where}: {attribute.name} = {equation[:100]!r}: letters, commas between terms, one '...' in a "
                    "term and one '->' are what an equation has."
                )
