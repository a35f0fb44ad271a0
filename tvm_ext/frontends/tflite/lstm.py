"""UNIDIRECTIONAL_SEQUENCE_LSTM: its output and its cell are kept from call to call.

input[B, T, C] (or [T, B, C]), four matrices [H, C] and four [H, H], four biases[H], hidden[B, H], cell[B, H] ->
output[B, T, H]. Float, or int8 with a cell of int16. Peepholes, projections and normalized layers are refused, as
TensorFlow Lite Micro does. Steps of one call stand one behind the other.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite
from tvm import relax

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import options_of
from tvm_ext.frontends.tflite.lstm_integer import IntegerCell
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor

_INPUT, _HIDDEN, _CELL = 0, 18, 19
_WEIGHTS, _BIASES = range(1, 9), range(12, 16)
_LEFT_OUT = (*range(9, 12), 16, 17, *range(20, 24))
_GATES = 4
"""Input, forget, cell and output, in the order of the operator's weights."""


def states(node: TfliteNode) -> tuple[int, ...]:
    return (node.inputs[_HIDDEN], node.inputs[_CELL])


def kept_shapes(file: TfliteFile, node: TfliteNode) -> tuple[tuple[int, ...], ...]:
    units = file.tensors[node.inputs[_BIASES[0]]].shape[0]
    shape = file.tensors[node.inputs[_INPUT]].shape
    return ((shape[_batch_axis(node)], units),) * 2


def _options(node: TfliteNode) -> tflite.UnidirectionalSequenceLSTMOptions:
    return options_of(node.table, tflite.UnidirectionalSequenceLSTMOptions)


def _batch_axis(node: TfliteNode) -> int:
    return 1 if _options(node).TimeMajor() else 0


def refusal(file: TfliteFile, node: TfliteNode) -> str | None:
    """Reason why it cannot be compiled; None when it can."""
    needed = (_INPUT, *_WEIGHTS, *_BIASES, _HIDDEN, _CELL)
    if len(node.inputs) != 24 or len(node.outputs) != 1 or -1 in node.outputs:
        return f"it has {len(node.inputs)} inputs and {len(node.outputs)} outputs; 24 and one are needed"
    if any(node.inputs[place] < 0 for place in needed):
        return "weights, biases and states of all four gates are needed"
    if any(node.inputs[place] >= 0 for place in _LEFT_OUT):
        return "peepholes, projections and normalized layers are not supported"
    tensors = {place: file.tensors[node.inputs[place]] for place in needed}
    if any(tensors[place].data is None for place in (*_WEIGHTS, *_BIASES)):
        return "its weights are computed by the model"
    kinds = tflite.ActivationFunctionType
    if _options(node).FusedActivationFunction() not in (kinds.TANH, kinds.NONE):
        return "the activation of its cell is tanh"
    output = file.tensors[node.outputs[0]]
    return _of_shapes(node, tensors, output) or _of_types(tensors, output) or _of_scales(tensors, output)


def _of_shapes(node: TfliteNode, tensors: Mapping[int, TfliteTensor], output: TfliteTensor) -> str | None:
    shape = tensors[_INPUT].shape
    if len(shape) != 3:
        return f"its input has shape {list(shape)}; rank 3 is needed"
    batch, channels = shape[_batch_axis(node)], shape[2]
    units = int(np.prod(tensors[_BIASES[0]].shape))
    wanted = {
        **dict.fromkeys(_WEIGHTS[:_GATES], (units, channels)), **dict.fromkeys(_WEIGHTS[_GATES:], (units, units)),
        **dict.fromkeys(_BIASES, (units,)),
    }  # fmt: skip
    for place, needed in wanted.items():
        if tensors[place].shape != needed:
            return f"{tensors[place].name!r} is {list(tensors[place].shape)}; {list(needed)} is needed"
    for place in (_HIDDEN, _CELL):
        if int(np.prod(tensors[place].shape)) != batch * units:
            return f"its state {tensors[place].name!r} is {list(tensors[place].shape)}; {[batch, units]} is needed"
    if output.shape != (*shape[:2], units):
        return f"its output is {list(output.shape)}; {[*shape[:2], units]} is needed"
    return None


def _of_types(tensors: Mapping[int, TfliteTensor], output: TfliteTensor) -> str | None:
    types = {place: str(tensor.dtype) for place, tensor in tensors.items()}
    if {*types.values(), str(output.dtype)} == {"float32"}:
        return None
    wide = {**dict.fromkeys(_BIASES, "int32"), _CELL: "int16"}
    if output.dtype != "int8" or any(dtype != wide.get(place, "int8") for place, dtype in types.items()):
        listed = ", ".join(dict.fromkeys([*types.values(), str(output.dtype)]))
        return f"its tensors are {listed}; all float32, or int8 with biases of int32 and a cell of int16"
    return None


def _of_scales(tensors: Mapping[int, TfliteTensor], output: TfliteTensor) -> str | None:
    hidden, cell = tensors[_HIDDEN], tensors[_CELL]
    if output.dtype == "float32":
        return None
    for tensor in (*(tensors[place] for place in (_INPUT, *_WEIGHTS, _HIDDEN, _CELL)), output):
        if tensor.scales is None or tensor.scales.scale.size != 1:
            return f"its tensor {tensor.name!r} needs one scale"
    assert hidden.scales is not None and cell.scales is not None, "just checked"
    if not hidden.scales.equals(output.scales):
        return f"its output and its state {hidden.name!r} have one scale and zero point"
    every = [tensors[place].scales for place in (*_WEIGHTS, _CELL)]
    if any(scales is not None and scales.zero_point[0] for scales in every):
        return "the zero point of its weights and of its cell is 0"
    fraction, exponent = np.frexp(cell.scales.scale[0])
    if fraction != 0.5 or not -30 < exponent - 1 <= 2:
        return f"the scale of its cell is {cell.scales.scale[0]:g}; a power of two from 2^-29 to 4 is needed"
    return None


def convert(
    file: TfliteFile, node: TfliteNode, values: Mapping[int, relax.Expr], builder: relax.BlockBuilder
) -> relax.Expr:
    """(output, next hidden state, next cell)."""
    tensors = [file.tensors[index] if index >= 0 else None for index in node.inputs]
    data, hidden, cell = (values[node.inputs[place]] for place in (_INPUT, _HIDDEN, _CELL))
    batch_axis, options = _batch_axis(node), _options(node)
    shape = static_shape(data)
    if shape[batch_axis] != static_shape(hidden)[0]:
        raise Refused(f"its states are for {static_shape(hidden)[0]} sequences at once, not {shape[batch_axis]}")
    matrices = [_numbers(tensors[place]) for place in _WEIGHTS]
    biases = [_numbers(tensors[place]) for place in _BIASES]
    if file.tensors[node.outputs[0]].dtype == "float32":
        step = _FloatCell(matrices, biases, float(options.CellClip()), builder).step
    else:
        scaled = {place: tensor for place, tensor in enumerate(tensors) if tensor is not None}
        step = IntegerCell(scaled, matrices, biases, float(options.CellClip()), builder).step
    outputs: list[relax.Expr] = []
    for index in range(shape[1 - batch_axis]):
        row = builder.emit(relax.op.strided_slice(data, [1 - batch_axis], [index], [index + 1]))
        row = builder.emit(relax.op.reshape(row, (shape[batch_axis], shape[2])))
        hidden, cell = step(row, hidden, cell)
        outputs.append(builder.emit(relax.op.expand_dims(hidden, 1 - batch_axis)))
    joined = outputs[0] if len(outputs) == 1 else builder.emit(relax.op.concat(outputs, 1 - batch_axis))
    return relax.Tuple([joined, hidden, cell])


def _numbers(tensor: TfliteTensor | None) -> np.ndarray:
    assert tensor is not None and tensor.data is not None, "refused before"
    return tensor.data


class _FloatCell:
    """One step on real numbers: a product of all gates, then what they let through."""

    def __init__(
        self, matrices: list[np.ndarray], biases: list[np.ndarray], clip: float, builder: relax.BlockBuilder
    ) -> None:
        of_input, of_hidden = np.concatenate(matrices[:_GATES]), np.concatenate(matrices[_GATES:])
        self._weights = constant(np.ascontiguousarray(np.concatenate([of_input, of_hidden], 1).T))
        self._bias, self._units = constant(np.concatenate(biases)), biases[0].size
        self._clip, self._builder = clip, builder

    def step(self, row: relax.Expr, hidden: relax.Expr, cell: relax.Expr) -> tuple[relax.Expr, relax.Expr]:
        emit = self._builder.emit
        read = emit(relax.op.concat([row, hidden], 1))
        sums = emit(relax.op.add(emit(relax.op.matmul(read, self._weights)), self._bias))
        kept, forget, new, out = (
            emit(relax.op.strided_slice(sums, [1], [gate * self._units], [(gate + 1) * self._units]))
            for gate in range(_GATES)
        )
        added = emit(relax.op.multiply(emit(relax.op.sigmoid(kept)), emit(relax.op.tanh(new))))
        left = emit(relax.op.multiply(emit(relax.op.sigmoid(forget)), cell))
        cell = emit(relax.op.add(left, added))
        if self._clip > 0:
            cell = emit(relax.op.clip(cell, -self._clip, self._clip))
        return emit(relax.op.multiply(emit(relax.op.sigmoid(out)), emit(relax.op.tanh(cell)))), cell
