"""A layer of integers whose sums become real numbers: dequantize, products, float operators, perhaps quantize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from codegen_c.operators.kinds import Array, Operator, QConv2d, QDense, Rounding, TensorType
from codegen_c.operators.quantization import Quantization
from codegen_c.operators.scalar import IDENTITY, ScalarProgram

RangeMeaning = Literal["onnx", "tflite_asymmetric", "tflite_symmetric"]


@dataclass(frozen=True, kw_only=True)
class OwnSteps:
    """Quantization of float activations by the range that they have in a run: its arithmetic, and of how many ranges.

    by_vector: each vector along the last axis has a range; otherwise the whole tensor has one. scale_last: sums are
    multiplied by the weights' scale, then by that of the activations; otherwise by the product of both.
    """

    meaning: RangeMeaning
    by_vector: bool = False
    scale_last: bool = False


def steps_type(shape: tuple[int, ...]) -> TensorType:
    """Type of activations in steps of a range, as a layer reads them: the zero point of a run is taken off its sums."""
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=1.0, zero_point=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class RealLayer(Operator):
    """Sums of a quantized convolution or dense layer, times `scale`, plus `bias`, then `finish`.

    inputs: the layer's, then those that `finish` reads, each of the output's shape, float32 or quantized. Output:
    float32, or quantized by `rounding`. layer: of one image, or of one vector of all there are; its result is int32
    sums without a bias. scale, bias: float32[K]. float32 throughout, products and sums rounded one by one.
    own_steps: where the first input is float32 and quantized here; then `layer` reads int8 steps around zero, and
    `scale` is that of the weights.
    """

    layer: QConv2d | QDense
    scale: Array
    bias: Array
    finish: ScalarProgram = IDENTITY
    rounding: Rounding = "onnx"
    own_steps: OwnSteps | None = None
