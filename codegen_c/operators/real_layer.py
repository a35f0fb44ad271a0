"""A layer of integers whose sums become real numbers: dequantize, products, float operators, perhaps quantize."""

from __future__ import annotations

from dataclasses import dataclass

from codegen_c.operators.kinds import Array, Operator, QConv2d, QDense, Rounding
from codegen_c.operators.scalar import IDENTITY, ScalarProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class RealLayer(Operator):
    """Sums of a quantized convolution or dense layer, times `scale`, plus `bias`, then `finish`.

    inputs: the layer's, then those that `finish` reads, each of the output's shape, float32 or quantized. Output:
    float32, or quantized by `rounding`. layer: of one image, or of one vector of all there are; its result is int32
    sums without a bias. scale, bias: float32[K]. float32 throughout, products and sums rounded one by one.
    """

    layer: QConv2d | QDense
    scale: Array
    bias: Array
    finish: ScalarProgram = IDENTITY
    rounding: Rounding = "onnx"
