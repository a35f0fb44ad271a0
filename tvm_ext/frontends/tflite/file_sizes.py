"""Sizes in a TensorFlow Lite file before they are read: tables of a flatbuffer may all point to the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tflite

from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.limits import Limits, text_of

# Slots of what holds a text, in the order of the schema; the first one of a table is 4, the next 6.
_NAME_OF_TENSOR, _CUSTOM_CODE = 10, 6
_TENSORS_A_NODE = 4


class FileSizes:
    """Sizes that a file has reached so far; lives while it is read. Each method raises UnsupportedModel.

    weights_bytes: of the constants seen.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path, self._limits = path, limits
        self.weights_bytes = 0
        self._text_bytes = 0
        self._num_nodes = 0
        self._num_tensors = 0

    def check_graph(self, model: tflite.Model, graph: tflite.SubGraph) -> None:
        """The number of operators and of tensors, of this and all graphs before, and of operands of each operator."""
        num_nodes = graph.OperatorsLength()
        self._num_nodes, self._num_tensors = self._num_nodes + num_nodes, self._num_tensors + graph.TensorsLength()
        self._refuse("its operators", "nodes", self._num_nodes)
        if self._num_tensors > _TENSORS_A_NODE * self._limits.nodes:
            self._refuse("its tensors, four to a node", "nodes", -(-self._num_tensors // _TENSORS_A_NODE))
        self._refuse("its inputs", "operands", graph.InputsLength())
        self._refuse("its outputs", "operands", graph.OutputsLength())
        for index in range(num_nodes):
            table = graph.Operators(index)
            self._refuse(f"the inputs of operator {index}", "operands", table.InputsLength())
            self._refuse(f"the outputs of operator {index}", "operands", table.OutputsLength())
            if table.OpcodeIndex() < model.OperatorCodesLength():
                self._add_text(model.OperatorCodes(table.OpcodeIndex()), _CUSTOM_CODE)

    def check_tensor(self, table: tflite.Tensor, index: int) -> None:
        """The length of a tensor's name and its rank, or that of its signature."""
        self._add_text(table, _NAME_OF_TENSOR)
        rank = max(table.ShapeLength(), table.ShapeSignatureLength())
        self._refuse(f"the rank of tensor {index}", "rank", rank)

    def check_constant(self, name: str, shape: Sequence[int], num_bytes: int) -> None:
        """One more constant; those that share bytes of the file have copies of their own here."""
        self.weights_bytes += num_bytes
        self._refuse(f"constant {name!r}, {text_of(shape)}", "tensor_bytes", num_bytes)
        self._refuse(f"constant {name!r} and those before it", "weights_bytes", self.weights_bytes)

    def _add_text(self, table: Any, slot: int) -> None:
        offset = table._tab.Offset(slot)
        self._text_bytes += table._tab.VectorLen(offset) if offset else 0
        self._refuse("its names", "text_bytes", self._text_bytes)

    def _refuse(self, what: str, limit: str, value: int) -> None:
        reason = self._limits.excess(limit, value)
        if reason:
            raise UnsupportedModel(f"{self._path}: {what}: {reason}.")
