"""Composites of a recurrent layer on integers, which one PrimFunc computes, as an operator.

Only TensorFlow Lite's LSTM on integers has this form. Float LSTM, GRU and RNN layers of ONNX and PyTorch are other
operators of Relax, unrolled or as a loop.
"""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Composite, NoMatch
from codegen_c.operators.kinds import LSTM_GATES, QLstm
from tvm_ext.core.decisions.composites import PrimFuncs, QuantizedLstm


def recurrent_layer(composite: Composite) -> tuple[QLstm, tuple[int, ...]] | NoMatch:
    """Return TensorFlow Lite's LSTM on integers, and the parameters of the composite that are its inputs."""
    functions = list((PrimFuncs.read(composite.function).functions or {}).values())
    known = QuantizedLstm.read(functions[0]) if len(functions) == len(composite.calls) == 1 else QuantizedLstm()
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
