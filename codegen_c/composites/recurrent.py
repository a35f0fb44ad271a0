"""Composites of a recurrent layer, which one PrimFunc computes, as an operator: float32, or TensorFlow Lite's integers.

Layers that are not standard, such as an LSTM with peepholes, are other operators of Relax, unrolled or as a loop.
"""

from __future__ import annotations

import numpy as np
from tvm import tirx

from codegen_c.composites.graph import Composite, NoMatch
from codegen_c.operators.kinds import LSTM_GATES, QLstm, QRecurrent, QSvdfFeatures, QSvdfSum, Recurrent
from tvm_ext.core.decisions.composites import (
    IntegerRecurrentLayer,
    PrimFuncs,
    QuantizedLstm,
    QuantizedSvdf,
    RecurrentLayer,
    RepeatedStep,
)
from tvm_ext.core.recurrent_cells import RECURRENT_CELLS

RecurrentOperator = QLstm | QRecurrent | QSvdfFeatures | QSvdfSum | Recurrent


def recurrent_layer(composite: Composite) -> tuple[RecurrentOperator, tuple[int, ...]] | NoMatch:
    """Return the layer, or the part of an SVDF, that a composite of one call computes.

    Also returns the composite's parameters that are its inputs.
    """
    functions = list((PrimFuncs.read(composite.function).functions or {}).values())
    if len(functions) != 1 or len(composite.calls) != 1:
        return NoMatch("is no recurrent layer")
    (function,) = functions
    if RecurrentLayer.read(function).cell:
        return _float_layer(composite, function)
    if IntegerRecurrentLayer.read(function).cell:
        return _integer_layer(composite, function)
    if QuantizedSvdf.read(function).part:
        return _tflite_svdf(composite, QuantizedSvdf.read(function))
    return _tflite_lstm(composite, function)


def _float_layer(composite: Composite, function: tirx.PrimFunc) -> tuple[Recurrent, tuple[int, ...]] | NoMatch:
    layer, repeated, operands = RecurrentLayer.read(function), RepeatedStep.read(function), composite.calls[0].operands
    if any(kind.dtype != "float32" for kind in (*composite.inputs, *composite.outputs)):
        return NoMatch("is a recurrent layer of another type than float32")
    states, (sequence, *weights) = operands[: repeated.num_states], operands[repeated.num_states :]
    arrays = [weight.array for weight in weights[: 3 if layer.has_biases else 2]]
    if sequence.parameter is None or any(array is None for array in arrays):
        return NoMatch("its sequence is a constant, or its weights are not")
    input_weight, hidden_weight, *biases = (array[0] for array in arrays if array is not None)
    bias = biases[0].reshape(2, -1) if biases else np.zeros((2, len(hidden_weight)), np.float32)
    arguments = tuple(operand.parameter for operand in (*states, sequence) if operand.parameter is not None)
    return Recurrent(
        inputs=tuple(composite.inputs[index] for index in arguments),
        outputs=composite.outputs,
        cell=layer.cell,
        input_weight=input_weight,
        hidden_weight=hidden_weight,
        input_bias=bias[0],
        hidden_bias=bias[1],
        initial=tuple(state.array for state in states),
        is_backward=repeated.is_backward,
        cell_limit=layer.cell_limit,
    ), arguments  # fmt: skip


def _integer_layer(composite: Composite, function: tirx.PrimFunc) -> tuple[QRecurrent, tuple[int, ...]] | NoMatch:
    layer, operands = IntegerRecurrentLayer.read(function), composite.calls[0].operands
    num_states = len(RECURRENT_CELLS[layer.cell].states)
    states, (sequence, *others) = operands[:num_states], operands[num_states:]
    arrays = [operand.array for operand in others if operand.array is not None]
    if sequence.parameter is None or len(arrays) != len(others):
        return NoMatch("its sequence is a constant, or its weights are not")
    *products, multiplier, table = arrays
    arguments = tuple(operand.parameter for operand in (*states, sequence) if operand.parameter is not None)
    return QRecurrent(
        inputs=tuple(composite.inputs[index] for index in arguments),
        outputs=composite.outputs,
        layer=layer,
        weights=tuple(products[::2]),
        biases=tuple(products[1::2]),
        multiplier=multiplier,
        table=table,
        initial=tuple(state.array for state in states),
    ), arguments  # fmt: skip


def _tflite_lstm(composite: Composite, function: tirx.PrimFunc) -> tuple[QLstm, tuple[int, ...]] | NoMatch:
    known = QuantizedLstm.read(function)
    if not known.factors:
        return NoMatch("is no recurrent layer on integers")
    operands = composite.calls[0].operands
    arguments = tuple(operand.parameter for operand in operands[:3] if operand.parameter is not None)
    arrays = [operand.array for operand in operands[3:] if operand.array is not None]
    if len(arguments) != 3 or len(arrays) != 3 * LSTM_GATES + 1:
        return NoMatch("its states are constants, or its weights are not")
    first, second, third = (slice(n * LSTM_GATES, (n + 1) * LSTM_GATES) for n in range(3))
    numbers = list(known.factors)
    return QLstm(
        inputs=tuple(composite.inputs[index] for index in arguments),
        outputs=composite.outputs,
        input_weight=np.concatenate(arrays[first]),
        hidden_weight=np.concatenate(arrays[second]),
        bias=np.concatenate(arrays[third]),
        table=arrays[-1],
        factors=tuple(zip(numbers[::2], numbers[1::2], strict=True)),
        zero_points=(known.zero_points[0], known.zero_points[1]),
        cell_power=known.cell_power,
        clip=known.clip,
    ), arguments  # fmt: skip


def _tflite_svdf(
    composite: Composite, known: QuantizedSvdf
) -> tuple[QSvdfFeatures | QSvdfSum, tuple[int, ...]] | NoMatch:
    source, *others = composite.calls[0].operands
    weight, *biases = (operand.array for operand in others)
    if source.parameter is None or weight is None or any(bias is None for bias in biases):
        return NoMatch("its input is a constant, or its weights are not")
    (mantissa, shift), (of_input, of_result) = known.factor, known.zero_points
    ports = {"inputs": (composite.inputs[source.parameter],), "outputs": composite.outputs}
    if known.part == "features":
        return QSvdfFeatures(
            **ports, weight=weight, factor=(mantissa, shift), zero_point=of_input, state_zero_point=of_result,
        ), (source.parameter,)  # fmt: skip
    (bias,) = biases
    assert bias is not None, "compared before"
    sums = weight.astype(np.int64).reshape(len(bias), -1).sum(1)
    start = (bias.astype(np.int64) - of_input * sums).astype(np.int32)  # wraps, as the sums do
    return QSvdfSum(
        **ports, weight=weight, bias=start, factor=(mantissa, shift), zero_point=of_result
    ), (source.parameter,)  # fmt: skip
