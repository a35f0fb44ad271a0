"""TVM's converters of single operators, over tensors by index and with quantization taken off.

TVM finds tensors by name, which files repeat, asks the file for shapes that the user may have fixed otherwise, and
mixes quantization into most converters, some of them wrongly. Here an operator sees its inputs' values as they are
handed over, with the shapes these have, and no tensor is quantized: whoever calls decides on what to convert.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite.tflite_frontend import ExprTable, OperatorConverter, TensorWrapper

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused


class FloatConverter(OperatorConverter):
    """TVM's converter of one operator, over real values; lives for that operator.

    graph: number of the subgraph that it stands in, whose tensors the following are. values: what is known of its
    inputs, by tensor; constants need not be there. computed: constants that the file does not have. as_real: tensors
    that are integers in the file, and float32 here.
    """

    def __init__(
        self,
        model: tflite.Model,
        graph: int,
        builder: relax.BlockBuilder,
        values: Mapping[int, relax.Expr],
        computed: Mapping[int, np.ndarray],
        as_real: frozenset[int],
    ) -> None:
        super().__init__(model, model.Subgraphs(graph), ExprTable(), builder)
        self._values, self._computed, self._as_real = values, computed, as_real

    def convert(self, operator: str, table: tflite.Operator) -> relax.Expr:
        """The operator's result, or a tuple of them. Raises Refused where TVM has no converter."""
        converter = self.convert_map.get(operator)
        if converter is None:
            raise Refused("there is no converter for it")
        result = converter(op=table)
        if result is None:
            raise Refused("TVM's importer gives no result for it")
        return result

    def get_expr(self, input_tensor_idx: int) -> relax.Expr:
        return self._values[int(input_tensor_idx)]

    def has_expr(self, input_tensor_idx: int) -> bool:
        return int(input_tensor_idx) in self._values

    def is_prefetched(self, input_tensor_idx: int) -> bool:
        return False

    def get_tensors(self, tensors_idx_list: np.ndarray) -> list[TensorWrapper]:
        found = []
        for index in self._indices_or_empty(tensors_idx_list):
            tensor = self.subgraph.Tensors(index) if index >= 0 else 0
            tensor = _RealTensor(tensor) if int(index) in self._as_real else tensor
            buffer = self.model.Buffers(tensor.Buffer()) if index >= 0 else 0
            found.append(TensorWrapper(int(index), tensor, buffer))
        return found

    def get_tensor_value(self, tensor_wrapper: TensorWrapper, is_sparse: bool = False) -> np.ndarray:
        """The numbers of a tensor: those worked out while importing, or those in the file."""
        known = self._values.get(tensor_wrapper.tensor_idx)
        if isinstance(known, tvm.ir.GenericConst):
            return known.value.numpy()
        if tensor_wrapper.tensor_idx in self._computed:
            return self._computed[tensor_wrapper.tensor_idx]
        if known is not None:
            raise Refused("one of its parameters depends on data")
        return super().get_tensor_value(tensor_wrapper, is_sparse)

    def get_tensor_shape(self, tensor_wrapper: TensorWrapper) -> np.ndarray:
        known = self._values.get(tensor_wrapper.tensor_idx)
        if known is not None:
            return np.array(static_shape(known), np.int64)
        return super().get_tensor_shape(tensor_wrapper) if tensor_wrapper.tensor.ShapeLength() else np.array([], int)


class _RealTensor:
    """A tensor of the file that says it is float32, in the words of the flatbuffers library."""

    def __init__(self, tensor: tflite.Tensor) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> object:
        return getattr(self._tensor, name)

    def Type(self) -> int:
        return tflite.TensorType.FLOAT32
