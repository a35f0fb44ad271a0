"""Layers with float activations and int8 weights, whose activations are quantized at run time like in LiteRT's kernels.

This is dynamic range quantization; LiteRT calls such layers hybrid. XNNPACK, LiteRT's default delegate, determines
scales of its own (qd8). The kernels meant here are those of `BUILTIN_REF` and of `BUILTIN_WITHOUT_DEFAULT_DELEGATES`.
"""

from __future__ import annotations

import tflite
from tvm import relax

from relay_passes.dataflow import static_shape
from relay_passes.own_operators import range_quantize
from tvm_ext.frontends.tflite.read_file import Scales, TfliteFile, TfliteNode

LAYERS = frozenset("CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED".split())
_REASON = "its weights are integers, its activations float (dynamic-range quantization)"
_WAY_OUT = "quantize both, or none"


def refusal_of_weights(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why a float operator with integer constants is refused, or None for layers that are supported."""
    given = [file.tensors[index] for index in node.inputs if index >= 0]
    if node.operator == "DEQUANTIZE" or not given or given[0].dtype != "float32":
        return None
    scaled = [tensor for tensor in given[1:] if tensor.data is not None and tensor.scales is not None]
    if not scaled:
        is_block = node.operator in LAYERS and len(given) > 1 and given[1].dtype in ("int8", "uint8")
        if is_block and given[1].data is not None:
            return "its weights are integers with a scale for each block of them; quantize by tensor or channel"
        return f"{_REASON} and no constants; {_WAY_OUT}" if is_block else None
    weights = scaled[0]
    if node.operator not in LAYERS or scaled != [given[1]]:
        return f"{_REASON}, which is for {', '.join(sorted(LAYERS))} with float biases; {_WAY_OUT}"
    assert weights.scales is not None, "chosen by them"
    if weights.dtype != "int8" or weights.scales.zero_point.any():
        return f"{_REASON}, and are not int8 around zero; {_WAY_OUT}"
    return None


def of_convolution(x: relax.Expr, weights: Scales | None, groups: int) -> relax.Expr:
    """Return the activations of CONV_2D, with a zero point where channels have different scales, or for groups."""
    by_channel = weights is not None and (weights.scale != weights.scale[0]).any()
    return range_quantize(x, "tflite_asymmetric" if by_channel or groups > 1 else "tflite_symmetric", 1)


def of_depthwise(x: relax.Expr) -> relax.Expr:
    """Return the activations of DEPTHWISE_CONV_2D."""
    return range_quantize(x, "tflite_asymmetric", 1)


def of_rows(x: relax.Expr, options: tflite.FullyConnectedOptions) -> relax.Expr:
    """Return the activations of FULLY_CONNECTED, whose rows are quantized separately."""
    meaning = "tflite_asymmetric" if options.AsymmetricQuantizeInputs() else "tflite_symmetric"
    return range_quantize(x, meaning, len(static_shape(x)) - 1)
