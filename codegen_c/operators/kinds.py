"""Operators as plain data: the meaning of each kind of fused operator, without its implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from codegen_c.custom.contract import CustomCode
from codegen_c.operators.scalar import IDENTITY, ScalarProgram


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """real = scale * (integer - zero_point), one pair for the whole tensor."""

    scale: float
    zero_point: int


Array = np.ndarray
Rounding = Literal["onnx", "tflite"]


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Shape and element type of an operand, with its quantization where it has one."""

    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None

    @property
    def num_elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """Base of all operators. inputs: activations only; weights are fields of the operator itself.

    weight_bits: those in which quantized weights are stored.
    """

    weight_bits: ClassVar[int] = 8
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @property
    def output(self) -> TensorType:
        """The first output; most operators have no other."""
        return self.outputs[0]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A sliding window over rows and columns: convolution and pooling share it."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.padding)


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv2d(Operator):
    """float32 convolution; `finish` runs on each accumulated element (bias is the accumulator's start).

    weight: float32[K, R, S, C / groups], bias: float32[K].
    """

    weight: Array
    bias: Array
    window: Window
    groups: int = 1
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv2dTranspose(Conv2d):
    """Each input element spreads over a window of the output, where such windows add up.

    window: its strides are those of the output, its padding is cut off the output. weight: float32[K, R, S, C].
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense(Operator):
    """float32[..., C] times weight: float32[K, C], plus bias: float32[K], then `finish`."""

    weight: Array
    bias: Array
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool2d(Operator):
    """float32 pooling; max over the window without padding, or average (divided by the window's real
    size unless count_include_pad)."""

    method: Literal["max", "average"]
    window: Window
    count_include_pad: bool = False
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Elementwise(Operator):
    """float32, element by element: every input has the output's shape, or repeats along all but the last axes."""

    finish: ScalarProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax(Operator):
    """float32 softmax (or its logarithm) over the last axis."""

    log: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class QConv2d(Operator):
    """Convolution of a QDQ chain, of activations of 8 or 16 bits.

    weight: int8[K, R, S, C / groups] with zero point 0, weight_scale: float32[K], bias: int32[K] or int64[K] in units
    of input scale * weight scale. low, high: the clamp a fused activation and the output type leave.
    """

    weight: Array
    weight_scale: Array
    bias: Array
    window: Window
    low: int
    high: int
    groups: int = 1
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QConv2dTranspose(QConv2d):
    """Transposed convolution of a QDQ chain; window as in Conv2dTranspose, the rest as in QConv2d."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QDense(Operator):
    """Integers[..., C] times weight: int8[K, C] of a QDQ chain; fields as in QConv2d.

    scale_product: precision in which "tflite" rounding multiplies the scales of input and weights, where all channels
    share one: single for fully connected layers, double for convolutions.
    """

    weight: Array
    weight_scale: Array
    bias: Array
    low: int
    high: int
    rounding: Rounding = "onnx"
    scale_product: Literal["single", "double"] = "single"


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedQConv2d(QConv2d):
    """QConv2d whose weights are stored in 4 bits each; `weight` holds them as int8, from -8 to 7."""

    weight_bits: ClassVar[int] = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedQDense(QDense):
    """QDense whose weights are stored in 4 bits each; `weight` holds them as int8, from -8 to 7."""

    weight_bits: ClassVar[int] = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class QPool2d(Operator):
    """Pooling of a QDQ chain; max needs equal quantization on both sides.

    is_mean: an average over the whole image by an operator that reduces axes, which TensorFlow Lite rounds otherwise.
    """

    method: Literal["max", "average"]
    window: Window
    low: int
    high: int
    count_include_pad: bool = False
    rounding: Rounding = "onnx"
    is_mean: bool = False

    @property
    def has_factor(self) -> bool:
        """True for sums that a factor brings to the output's scale; others are divided, or the largest elements."""
        return self.method == "average" and (self.rounding == "onnx" or self.is_mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class QBinary(Operator):
    """add, subtract or multiply of two QDQ tensors, extents of 1 repeated to those of the output."""

    function: Literal["add", "subtract", "multiply"]
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QUnary(Operator):
    """Any float function of one QDQ tensor, element by element."""

    finish: ScalarProgram
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QMean(Operator):
    """Mean, or sum, of a QDQ tensor over any axes; the output keeps them with an extent of 1."""

    axes: tuple[int, ...]
    divide: bool
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QInterpolate(Operator):
    """Rows and columns of QDQ images as weighted sums of others: int64 places, float32 weights, each [target, taps]."""

    rows: tuple[Array, Array]
    columns: tuple[Array, Array]
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QSoftmax(Operator):
    """Softmax of a QDQ tensor over its last axis."""

    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Convert(Operator):
    """float32 to integers of 8 or 16 bits, or back, by one scale and zero point: the border of a quantized model.

    rounding: of halves, to even numbers ("onnx") or away from zero ("tflite").
    """

    quantization: Quantization
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Generic(Operator):
    """Everything else: plain C made from the operator's PrimFuncs, with a reference that runs them."""

    name: str
    plain: object
    reference: Callable[[list[Array]], list[Array]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Custom(Operator):
    """An operator that the user brought. inputs, outputs: those of the call that are no constants, then its states.

    input_names, output_names, constants: the C function's parameters, and what constants hold. reference: the user's.
    """

    name: str
    code: CustomCode
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    constants: tuple[tuple[str, Array], ...]
    reference: Callable[[list[Array]], list[Array]]


@dataclass(frozen=True, kw_only=True)
class MatmulShape:
    """Products of vectors: output [row, head, n] is the sum over c of first [row, head, c] * second [head, c, n].

    heads_inside: the first tensor and the output keep a row's heads together, [rows, heads, ...]; else [heads, rows,
    ...]. steps: elements of the second tensor from one head, column and c to the next, 0 where heads share a matrix.
    """

    rows: int
    heads: int
    depth: int
    columns: int
    heads_inside: bool
    steps: tuple[int, int, int]

    @property
    def outer(self) -> tuple[int, int]:
        """The first two axes of the first tensor and of the output."""
        return (self.rows, self.heads) if self.heads_inside else (self.heads, self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Matmul(Operator):
    """Products of the first two float32 inputs, each through `finish`, which may read further ones."""

    shape: MatmulShape
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class QMatmul(Operator):
    """Products of two QDQ tensors, times `scale`."""

    shape: MatmulShape
    scale: float
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalize(Operator):
    """float32 vectors along the last axis, each divided by its length; fields as in QNormalize."""

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class QNormalize(Operator):
    """Vectors of a QDQ tensor along its last axis, each divided by its length: LayerNorm, and RMSNorm.

    weight, bias: float32[C], of the results. is_centered: the vector's mean is taken off first, as LayerNorm does.
    """

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QAffine(Operator):
    """A QDQ tensor times `factors`, plus `addends`: position embeddings, masks, the cosines of rotary embeddings.

    factors, addends: float64 arrays, finite, that repeat to the output's shape, which is the input's.
    """

    factors: Array
    addends: Array
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QMaskedSoftmax(QSoftmax):
    """QSoftmax that leaves elements out, which are given a probability of zero.

    mask: bool, repeats to the input's shape, True for what is left out. Every vector keeps an element.
    """

    mask: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfConv2d(Conv2d):
    """Conv2d of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDense(Dense):
    """Dense of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfPool2d(Pool2d):
    """Pool2d of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfElementwise(Elementwise):
    """Elementwise of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfSoftmax(Softmax):
    """Softmax of float16."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfCast(Operator):
    """float16 to float32, exactly, or float32 to the nearest float16."""


HALF_FORMS: dict[type[Operator], type[Operator]] = {
    Conv2d: HalfConv2d, Dense: HalfDense, Pool2d: HalfPool2d, Elementwise: HalfElementwise, Softmax: HalfSoftmax,
}  # fmt: skip
"""Form of each operator of float32."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Permute(Operator):
    """Axes in another order: output axis i is input axis axes[i]. Any element type.

    first: of each output axis, the place along it from which on elements are taken; empty where all are.
    """

    axes: tuple[int, ...]
    first: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream(Operator):
    """A whole input that the application hands over, or an output that it takes; axes as in Permute.

    Where the tensor inside is one image [1, H, ...], its rows may come or go one by one. columns: [begin, end) of an
    image [1, H, W, C] that comes in, which are all that is asked for; None for all there are.
    """

    direction: Literal["read", "write"]
    axes: tuple[int, ...]
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Concat(Operator):
    """Tensors side by side along one axis. Any element type."""

    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Gather(Operator):
    """Padding, slicing, repeating, nearest neighbours: element [i, j, ...] is input[places[0][i], places[1][j], ...].

    A place of -1 is outside: the element is `value`, of the output's type. places: int64[extent] for each axis.
    """

    places: tuple[Array, ...]
    value: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Operator):
    """The same bytes under another shape; no kernel computes it."""


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
