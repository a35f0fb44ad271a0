"""UNIDIRECTIONAL_SEQUENCE_LSTM, float and int8, with its output and cell as states.

input[B, T, C] (or [T, B, C]), four matrices [H, C] and four [H, H], four biases[H], hidden[B, H], cell[B, H] ->
output[B, T, H]. Float, or int8 with a cell of int16. Peepholes, projections and normalized layers are refused, as in
TensorFlow Lite Micro. One function runs a step in a loop over time; the float layer is that of ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, frexp

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize_tflite import fixed_point
from codegen_c.tir.repeat import repeat_step
from relay_passes.dataflow import constant, static_shape
from tvm_ext.core.decisions.composites import QuantizedLstm, RepeatedStep
from tvm_ext.frontends import recurrent_layers
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import options_of
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled

_INPUT, _HIDDEN, _CELL = 0, 18, 19
_WEIGHTS, _BIASES = range(1, 9), range(12, 16)
_LEFT_OUT = (*range(9, 12), 16, 17, *range(20, 24))
_GATES = 4
"""Number of gates: input, forget, cell and output, in the order of the operator's weights."""
_ONNX_ORDER = (0, 3, 1, 2)
"""For each gate of ONNX, its index among these gates."""


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
    """Return why the operator cannot be compiled, or None if it can."""
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
    """Return the output, the next hidden state and the next cell as a tuple. Raises Refused for another batch."""
    tensors = [file.tensors[index] if index >= 0 else None for index in node.inputs]
    data, hidden, cell = (values[node.inputs[place]] for place in (_INPUT, _HIDDEN, _CELL))
    batch_axis, options = _batch_axis(node), _options(node)
    shape = static_shape(data)
    if shape[batch_axis] != static_shape(hidden)[0]:
        raise Refused(f"its states are for {static_shape(hidden)[0]} sequences at once, not {shape[batch_axis]}")
    matrices = [_numbers(tensors[place]) for place in _WEIGHTS]
    biases = [_numbers(tensors[place]) for place in _BIASES]
    clip, sequence = float(options.CellClip()), _with_axes(builder, data, batch_axis)
    if file.tensors[node.outputs[0]].dtype == "float32":
        made = _float_layer(builder, matrices, biases, clip, [hidden, cell, sequence])
    else:
        scaled = {place: tensor for place, tensor in enumerate(tensors) if tensor is not None}
        integers = IntegerCell(scaled, matrices, biases, clip)
        made = _in_loop(builder, integers, [hidden, cell, sequence])
    hidden, cell, output = made
    return relax.Tuple([_with_axes(builder, output, batch_axis), hidden, cell])


def _float_layer(
    builder: relax.BlockBuilder,
    matrices: Sequence[np.ndarray],
    biases: Sequence[np.ndarray],
    clip: float,
    given: Sequence[relax.Expr],
) -> list[relax.Expr]:
    """Return the hidden state, the cell and all outputs of the layer, which is that of ONNX with a limited cell."""
    emit, (hidden, cell, sequence) = Emitter(builder), given

    def stacked(parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate([parts[gate] for gate in _ONNX_ORDER])[np.newaxis]

    of_input, of_hidden, bias = map(stacked, (matrices[:_GATES], matrices[_GATES:], biases))
    weights = map(constant, (of_input, of_hidden, np.concatenate([bias, np.zeros_like(bias)], axis=1)))
    states = [emit.reshaped(state, (1, *static_shape(state))) for state in (hidden, cell)]
    inputs = [sequence, *weights, None, *states, None]
    output, *after = recurrent_layers.all_steps(
        emit, inputs, {recurrent_layers.CELL_LIMIT: max(clip, 0.0)}, recurrent_layers.LSTM
    ).fields
    results = [(after[0], hidden), (after[1], cell)]
    steps, _, *shape = static_shape(output)
    return [*(emit.reshaped(value, static_shape(like)) for value, like in results),
            emit.reshaped(output, (steps, *shape))]  # fmt: skip


def _with_axes(builder: relax.BlockBuilder, value: relax.Expr, batch_axis: int) -> relax.Expr:
    """Return [T, B, C] for [B, T, C] if the batch is the first axis, and the reverse; a single batch moves no data."""
    if batch_axis == 1:
        return value
    first, second, channels = static_shape(value)
    if 1 in (first, second):
        return builder.emit(relax.op.reshape(value, (second, first, channels)))
    return builder.emit(relax.op.permute_dims(value, [1, 0, 2]))


def _in_loop(builder: relax.BlockBuilder, cell: IntegerCell, given: Sequence[relax.Expr]) -> list[relax.Expr]:
    """Return the hidden state, the cell and all outputs, by one function that runs a step in a loop."""
    hidden, _, sequence = given
    steps, batch, channels = static_shape(sequence)
    element = relax.TensorType((batch, channels), sequence.ty.dtype)
    kinds = [*(value.ty for value in given[:2]), element, *(value.ty for value in cell.given)]
    parameters = [relax.Var(f"x{place}", kind) for place, kind in enumerate(kinds)]
    inner = relax.BlockBuilder()
    with inner.function("main", parameters):
        with inner.dataflow():
            after = cell.step(inner, parameters)
            results = inner.emit_output(relax.Tuple([*after, after[0]]))
        inner.emit_func_output(results)
    module = inner.get()
    loop = repeat_step(module["main"], RepeatedStep(count=steps, num_states=2, num_sequences=1), module)
    # The decision says the arithmetic of integers, whose step is not evaluated in float64.
    function = builder.add_func(cell.decision().write(RepeatedStep().write(loop.function)), "lstm")
    types = [*(value.ty for value in given[:2]), relax.TensorType((steps, *static_shape(hidden)), sequence.ty.dtype)]
    arguments = relax.Tuple([*given, *cell.given, *map(constant, loop.constants)])
    results = builder.emit(relax.call_tir(function, arguments, types))
    return [builder.emit(relax.TupleGetItem(results, index)) for index in range(len(types))]


def _numbers(tensor: TfliteTensor | None) -> np.ndarray:
    assert tensor is not None and tensor.data is not None, "refused before"
    return tensor.data


_GATE_SCALE, _UNIT_SCALE = 2.0**-12, 2.0**-15


def _entry(x: float) -> int:
    """Return sigmoid(x) in units of 2^-16, plus half of the largest error of linear interpolation near x."""
    value = 1 / (1 + exp(-x))
    bend = value * (1 - value) * (2 * value - 1)
    return round(65536 * (value + bend / (24 * 24 * 16)))


TABLE = np.array([*(_entry(index / 24) for index in range(255)), 65535], np.uint16)


class IntegerCell:
    """Steps of an int8 operator in TensorFlow Lite Micro's arithmetic.

    tensors: its inputs by position in the file. clip: largest magnitude of the cell, 0 without a limit.
    """

    def __init__(
        self,
        tensors: Mapping[int, TfliteTensor],
        matrices: list[np.ndarray],
        biases: list[np.ndarray],
        clip: float,
    ) -> None:
        self._tensors = tensors
        self._matrices, self._biases = matrices, biases
        self.given = [constant(array) for array in (*matrices, *biases, TABLE)]
        scale = _scale(tensors[_CELL])
        self._cell_scale, self._power = scale, frexp(scale)[1] - 1
        self._clip = int(min(max(clip / scale, -32768.0), 32767.0)) if clip > 0 else 0

    def decision(self) -> QuantizedLstm:
        """Return the arithmetic of the layer, for a kernel that computes all of its steps."""
        gates = [self._factor(place, gate) for place in (_INPUT, _HIDDEN) for gate in range(_GATES)]
        factors = [*gates, _UNIT_SCALE, self._new_factor(), self._hidden_factor()]
        return QuantizedLstm(
            factors=tuple(number for factor in factors for number in fixed_point(factor)),
            zero_points=(self._zero_point(_INPUT), self._zero_point(_HIDDEN)),
            cell_power=self._power,
            clip=self._clip,
        )

    def step(self, builder: relax.BlockBuilder, given: Sequence[relax.Expr]) -> tuple[relax.Expr, relax.Expr]:
        hidden, cell, row, *constants = given
        table = constants[-1]
        kept, forget, new, out = (self._gate(builder, gate, row, hidden, constants) for gate in range(_GATES))
        cell = _call(builder, self._cell, [kept, forget, new, cell], "lstm_cell")
        return _call(builder, self._hidden, [cell, out, table], "lstm_hidden"), cell

    def _factor(self, place: int, gate: int) -> float:
        """Factor from the sums of the input, or of the hidden state, to units of a gate."""
        values, weights = self._tensors[place], self._tensors[1 + gate + (0 if place == _INPUT else _GATES)]
        assert values.scales is not None and weights.scales is not None, "refused before"
        return float(values.scales.scale[0] * weights.scales.scale[0]) / _GATE_SCALE

    def _zero_point(self, place: int) -> int:
        scales = self._tensors[place].scales
        assert scales is not None, "refused before"
        return int(scales.zero_point[0])

    def _gate(
        self,
        builder: relax.BlockBuilder,
        gate: int,
        row: relax.Expr,
        hidden: relax.Expr,
        constants: Sequence[relax.Expr],
    ) -> relax.Expr:
        """Return a gate, int16[B, H] in units of 2^-15. Its activation is tanh for the cell gate, else sigmoid."""
        matrices = (self._matrices[gate], self._matrices[_GATES + gate])
        factors = [self._factor(place, gate) for place in (_INPUT, _HIDDEN)]
        zero_points = [self._zero_point(place) for place in (_INPUT, _HIDDEN)]
        for place, matrix, factor in zip((_INPUT, _HIDDEN), matrices, factors, strict=True):
            bias = np.abs(self._biases[gate].astype(np.int64)) if place == _INPUT else 0
            check_sums(np.abs(matrix.astype(np.int64)).sum(1) * 255 + bias, factor)
        shape = (static_shape(row)[0], self._biases[gate].size)
        activation = _tanh if gate == 2 else _sigmoid

        def compute(
            x: te.Tensor, h: te.Tensor, of_x: te.Tensor, of_h: te.Tensor, bias: te.Tensor, table: te.Tensor
        ) -> te.Tensor:
            first, second = (
                _product(values, matrix, zero_point, shape)
                for values, matrix, zero_point in zip((x, h), (of_x, of_h), zero_points, strict=True)
            )

            def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
                parts = (first[b, u] + bias[u], second[b, u])
                one, other = (
                    clamped(rescaled(_wide(part), factor), "int16") for part, factor in zip(parts, factors, strict=True)
                )
                return clamped(_wide(one) + _wide(other), "int16")

            total = te.compute(shape, element, "total")
            return te.compute(shape, lambda b, u: activation(total[b, u], table, -12), "gate")

        weights = [constants[gate], constants[_GATES + gate], constants[2 * _GATES + gate]]
        return _call(builder, compute, [row, hidden, *weights, constants[-1]], f"lstm_gate_{gate}")

    def _new_factor(self) -> float:
        return _UNIT_SCALE * _UNIT_SCALE / self._cell_scale

    def _hidden_factor(self) -> float:
        return _UNIT_SCALE * _UNIT_SCALE / _scale(self._tensors[_HIDDEN])

    def _cell(self, kept: te.Tensor, forget: te.Tensor, new: te.Tensor, cell: te.Tensor) -> te.Tensor:
        def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            left = clamped(rescaled(_wide(forget[b, u]) * _wide(cell[b, u]), _UNIT_SCALE), "int16")
            added = rescaled(_wide(kept[b, u]) * _wide(new[b, u]), self._new_factor())
            total = clamped(_wide(left) + _wide(clamped(added, "int16")), "int16")
            if not self._clip:
                return total
            limit = tirx.const(self._clip, "int16")
            return tirx.max(tirx.min(total, limit), tirx.const(-self._clip, "int16"))

        return te.compute(cell.shape, element, "cell")

    def _hidden(self, cell: te.Tensor, out: te.Tensor, table: te.Tensor) -> te.Tensor:
        zero_point, factor = self._zero_point(_HIDDEN), self._hidden_factor()

        def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            product = _wide(_tanh(cell[b, u], table, self._power)) * _wide(out[b, u])
            return clamped(rescaled(product, factor) + tirx.const(zero_point, "int64"), "int8")

        return te.compute(cell.shape, element, "hidden")


def _call(builder: relax.BlockBuilder, compute: object, arguments: list[relax.Expr], name: str) -> relax.Expr:
    return builder.emit(builder.call_te(compute, *arguments, primfunc_name_hint=name))


def _scale(tensor: TfliteTensor) -> float:
    assert tensor.scales is not None, "refused before"
    return float(tensor.scales.scale[0])


def _wide(value: tirx.Expr) -> tirx.Expr:
    return tirx.Cast("int64", value)


def _number(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _product(values: te.Tensor, matrix: te.Tensor, zero_point: int, shape: tuple[int, int]) -> te.Tensor:
    """Return int32[B, H]: each row of the matrix times the values less their zero point."""
    axis = te.reduce_axis((0, matrix.shape[1]), "c")

    def product(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
        value = tirx.Cast("int32", values[b, axis.var]) - _number(zero_point)
        return te.sum(value * tirx.Cast("int32", matrix[u, axis.var]), axis)

    return te.compute(shape, product, "sums")


def _sigmoid(steps: tirx.Expr, table: te.Tensor, _power: int) -> tirx.Expr:
    """Return the sigmoid, int16 in units of 2^-15, of int16 in units of 2^-12."""
    scaled = tirx.Cast("int32", steps) * _number(3)  # index of the table, 24 entries per unit of x, in units of 2^-9
    line = _line(tirx.abs(scaled), table, bits=9)
    half = _number(1 << 9)
    result = tirx.Select(scaled >= _number(0), line + half, _number(1 << 25) - line + half - _number(1))
    return tirx.Cast("int16", result >> _number(10))


def _tanh(steps: tirx.Expr, table: te.Tensor, power: int) -> tirx.Expr:
    """Return tanh as 2 sigmoid(2 x) - 1, int16 in units of 2^-15, of int16 in units of 2^power."""
    left, right = max(power + 12, 0), max(-power - 12, 0)
    scaled = tirx.Cast("int32", steps) * _number(3 << left)
    if right:
        scaled = (scaled + _number(1 << (right - 1))) >> _number(right)
    size = tirx.abs(scaled)
    line = tirx.Select((size >> _number(8)) >= _number(255), _number(0xFFFF << 8), _line(size, table, bits=8))
    one, half = _number(1 << 23), _number(1 << 7)
    result = tirx.Select(scaled >= _number(0), line - one + half, one - line + half - _number(1))
    return tirx.Cast("int16", result >> _number(8))


def _line(size: tirx.Expr, table: te.Tensor, *, bits: int) -> tirx.Expr:
    """Return the interpolated value between two entries of the table. bits: number of fractional bits of the index."""
    index = tirx.min(size >> _number(bits), _number(254))
    low, high = (tirx.Cast("int32", table[index + _number(step)]) for step in (0, 1))
    return (low << _number(bits)) + (size & _number((1 << bits) - 1)) * (high - low)
