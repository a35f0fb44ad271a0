"""LayerNorm and RMSNorm over the last axis of a quantized tensor as Operators."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, NoMatch
from codegen_c.composites.quantized_chain import QuantizedChain
from codegen_c.operators.attention import QNormalize


def normalize_operator(chain: QuantizedChain, anchor: Call) -> tuple[QNormalize, tuple[int, ...]] | NoMatch:
    """The normalization of a chain, whose weights and biases are constants."""
    shape, is_centered = chain.output.shape, anchor.name == "nn.layer_norm"
    axes = [int(axis) % len(shape) for axis in anchor.attrs.axes]
    arrays = [value.array for value in anchor.operands[1:]]
    if len(chain.body) != 1 or chain.rounding != "onnx" or chain.parameter(anchor.operands[0]) is None:
        return NoMatch("more than a clamp follows it")
    if axes != [len(shape) - 1] or any(array is None or array.size != shape[-1] for array in arrays):
        return NoMatch("is not a normalization over the last axis with constant weights")
    known = [np.asarray(array, np.float32).reshape(-1) for array in arrays if array is not None]
    weight, bias = (*known, np.zeros(shape[-1], np.float32))[:2]
    operator = QNormalize(
        inputs=chain.inputs, outputs=(chain.output,), weight=weight, bias=bias, epsilon=float(anchor.attrs.epsilon),
        is_centered=is_centered, low=chain.low, high=chain.high,
    )  # fmt: skip
    return operator, (0,)
