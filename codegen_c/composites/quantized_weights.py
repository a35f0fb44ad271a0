"""Weights and biases of QDQ composites as integers, with their scales."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, CallOperand, NoMatch
from codegen_c.composites.quantized_chain import Dequantized, QuantizedChain
from tvm_ext.core.wide_biases import HIGH_SCALE, joined_bias


def weights_of(
    chain: QuantizedChain | Dequantized, value: CallOperand, channel_axis: int, *, takes_nine_bits: bool = False
) -> tuple[np.ndarray, np.ndarray] | NoMatch:
    """Weights as int8 around zero, and their float32 scales, one for all output channels or one per channel.

    takes_nine_bits: as int16 where they lie further from their zero point than int8 holds.
    """
    if value.var not in chain.constants:
        return NoMatch("its weights are not quantized constants")
    given = chain.constants[value.var]
    if given.scale.size > 1 and given.axis != channel_axis % given.data.ndim:
        return NoMatch("the scales of its weights lie along another axis than that of its output channels")
    if given.data.dtype == np.int8 and not given.zero_point.any():
        return given.data, given.scale
    if given.data.dtype not in (np.int8, np.uint8):
        return NoMatch(f"its weights are {given.data.dtype}, not int8 or uint8")
    steps = given.steps
    if steps.min(initial=0) < -128 or steps.max(initial=0) > 127:
        if takes_nine_bits:
            return steps.astype(np.int16), given.scale
        return NoMatch("its weights lie further from their zero point than int8 holds; quantize them symmetrically")
    return steps.astype(np.int8), given.scale


def linear_of(
    chain: QuantizedChain, anchor: Call, channels: int, channel_axis: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | NoMatch:
    """Weights as the graph has them, one scale per channel, and the bias. channel_axis: of the weights' outputs."""
    if chain.parameter(anchor.operands[0]) is None:
        return NoMatch("its first operand is no activation")
    weights = weights_of(chain, anchor.operands[1], channel_axis, takes_nine_bits=True)
    if isinstance(weights, NoMatch):
        return weights
    scale = np.ascontiguousarray(np.broadcast_to(weights[1], channels).astype(np.float32))
    source = chain.inputs[chain.parameter(anchor.operands[0]) or 0].quantization
    assert source is not None, "every input of a chain is quantized"
    bias = _bias(chain, anchor, scale.astype(np.float64) * np.float64(np.float32(source.scale)), channels)
    return bias if isinstance(bias, NoMatch) else (weights[0], scale, bias)


def _bias_type(chain: QuantizedChain) -> str:
    """Element type of a bias that a file leaves out, or gives as real numbers: wide beside activations of 16 bits."""
    return "int64" if np.dtype(chain.inputs[0].dtype).itemsize > 1 else "int32"


def _bias(chain: QuantizedChain, anchor: Call, scale: np.ndarray, channels: int) -> np.ndarray | NoMatch:
    """The bias added after the anchor, in units of `scale`; zeros if nothing is added."""
    rest = list(chain.body[1:])
    wide = _wide_bias(chain, rest, channels) if len(rest) == 2 else None
    if wide is not None:
        return wide
    if not rest:
        return np.zeros(channels, dtype=_bias_type(chain))
    if len(rest) > 1 or rest[0].name != "add":
        return NoMatch("something other than a bias and a clamp follows it")
    added = next((v for v in rest[0].operands if v.var is not anchor.var and v.var != anchor.var), None)
    if added is not None and added.var in chain.constants:
        given = chain.constants[added.var]
        if chain.rounding == "tflite" and given.data.dtype == np.int32 and given.data.shape == (channels,):
            return np.ascontiguousarray(given.data)  # in TensorFlow Lite these are the units, whatever their scale says
        real = given.steps.reshape(-1) * given.scale.astype(np.float64)
    elif added is not None and added.array is not None:
        real = added.array.astype(np.float64).reshape(-1)
    else:
        return NoMatch("what is added to it is not constant")
    shape = added.array.shape if added.array is not None else chain.constants[added.var].data.shape
    if real.size not in (1, channels) or (real.size == channels > 1 and shape[-1] != channels):
        return NoMatch("its bias is not one number a channel")
    units = np.round(np.broadcast_to(real, channels) / scale)
    if np.abs(units).max(initial=0) >= 2.0 ** (8 * np.dtype(_bias_type(chain)).itemsize - 1):
        return NoMatch("its bias does not fit 32 bits")
    return units.astype(_bias_type(chain))


def _wide_bias(chain: QuantizedChain, rest: list[Call], channels: int) -> np.ndarray | None:
    """The int64 bias that is added in two parts; None for anything else."""
    parts = [chain.constants.get(value.var) for call in rest for value in call.operands if call.name == "add"]
    known = [part for part in parts if part is not None]
    if len(known) != 2 or any(part.data.shape != (channels,) or part.data.dtype != np.int32 for part in known):
        return None
    high, low = known
    in_parts = np.array_equal(high.scale, low.scale * np.float32(HIGH_SCALE))
    return joined_bias(high.data, low.data) if in_parts else None
