"""Operators as plain data: the meaning of each kind of fused operator, without its implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from codegen_c.custom.contract import CustomCode
from codegen_c.operators.scalar import IDENTITY, ScalarProgram
from tvm_ext.core.decisions.composites import IntegerRecurrentLayer


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """Scale and zero point of a whole tensor: real = scale * (integer - zero_point)."""

    scale: float
    zero_point: int


Array = np.ndarray
Rounding = Literal["onnx", "tflite", "litert"]


@dataclass(frozen=True, kw_only=True)
class TensorType:
    """Shape and element type of an operand, with its quantization if it is quantized."""

    shape: tuple[int, ...]
    dtype: str
    quantization: Quantization | None = None

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """Base class of all operators. inputs: only activations; weights are fields of the operator.

    weight_bits: bits in which quantized weights are stored.
    """

    weight_bits: ClassVar[int] = 8
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]

    @property
    def output(self) -> TensorType:
        """The first output; most operators have only one."""
        return self.outputs[0]


@dataclass(frozen=True, kw_only=True)
class Window:
    """A sliding window over rows and columns, for convolution and pooling."""

    kernel: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)

    @property
    def is_pointwise(self) -> bool:
        """True if each output element depends on the input element at the same position only."""
        return self.kernel == (1, 1) and self.strides == (1, 1) and not any(self.padding)


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv2d(Operator):
    """float32 convolution. `finish` is applied to each accumulator, which starts with the bias.

    A depthwise convolution is a convolution with as many groups as channels; there is no kind of its own for it.
    weight: float32[K, R, S, C / groups], bias: float32[K].
    """

    weight: Array
    bias: Array
    window: Window
    groups: int = 1
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Conv2dTranspose(Conv2d):
    """Transposed convolution: each input element is spread over a window of the output, and overlapping windows add up.

    window: its strides are strides in the output, and its padding is cropped from the output. weight: float32[K, R, S,
    C].
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class Dense(Operator):
    """Product of float32[..., C] and weight float32[K, C], plus bias float32[K], then `finish`."""

    weight: Array
    bias: Array
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Pool2d(Operator):
    """float32 pooling: the maximum of the window without padding, or its average.

    The average divides by the number of elements inside the image, or by the window's size if count_include_pad.
    """

    method: Literal["max", "average"]
    window: Window
    count_include_pad: bool = False
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Elementwise(Operator):
    """Element-wise float32 function. Each input has the output's shape, or repeats along all but its last axes."""

    finish: ScalarProgram


@dataclass(frozen=True, kw_only=True, eq=False)
class Softmax(Operator):
    """float32 softmax, or its logarithm, over the last axis."""

    log: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class QConv2d(Operator):
    """Convolution of a QDQ chain with activations of 8 or 16 bits; also a depthwise one, by `groups`.

    weight: int8[K, R, S, C / groups] with zero point 0, weight_scale: float32[K], or float64[K] if the model multiplies
    sums by integers, whose bits float32 would not hold. bias: int32[K] or int64[K] in steps of the sums. low, high:
    clamp by the output type and a fused activation.
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
    """Transposed convolution of a QDQ chain. window as in Conv2dTranspose, other fields as in QConv2d."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QDense(Operator):
    """Product of integers[..., C] and weight int8[K, C] of a QDQ chain; fields as in QConv2d.

    rounding: "onnx" is one rounding of the exact result, "tflite" is TensorFlow Lite Micro's two, "litert" the float32
    products of LiteRT's default kernels.
    """

    weight: Array
    weight_scale: Array
    bias: Array
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedQConv2d(QConv2d):
    """QConv2d with weights stored in 4 bits; `weight` holds them as int8 from -8 to 7."""

    weight_bits: ClassVar[int] = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedQDense(QDense):
    """QDense with weights stored in 4 bits; `weight` holds them as int8 from -8 to 7."""

    weight_bits: ClassVar[int] = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class QPool2d(Operator):
    """Pooling of a QDQ chain. A maximum needs the same quantization on both sides.

    is_mean: True for an average over the whole image by an operator that reduces axes, for which TensorFlow Lite has
    another rounding.
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
        """True if a factor scales sums to the output; other sums are divided, and a maximum is copied."""
        return self.method == "average" and (self.rounding == "onnx" or self.is_mean)


@dataclass(frozen=True, kw_only=True, eq=False)
class QBinary(Operator):
    """add, subtract or multiply of two QDQ tensors. Extents of 1 are repeated to the output's shape."""

    function: Literal["add", "subtract", "multiply"]
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QDivide(Operator):
    """Quotient of two QDQ tensors. Extents of 1 are repeated to the output's shape."""

    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Extreme(Operator):
    """Larger or smaller of two elements of one integer type. Extents of 1 are repeated to the output's shape."""

    is_larger: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class QConstantBinary(Operator):
    """A QDQ tensor plus, minus or times quantized constants.

    binary: the operator with `constant` as its tensor number `index`. inputs: those of `binary` without it.
    """

    binary: QBinary
    constant: Array
    index: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QUnary(Operator):
    """Any element-wise float function of one QDQ tensor."""

    finish: ScalarProgram
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QPrelu(Operator):
    """QDQ tensor whose elements below zero are multiplied by `slopes`, float32, which broadcast to its shape."""

    slopes: Array
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QMean(Operator):
    """Mean or sum of a QDQ tensor over any axes. The output keeps these axes with an extent of 1."""

    axes: tuple[int, ...]
    divide: bool
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Interpolate(Operator):
    """Interpolation of float32 images; fields as in QInterpolate."""

    rows: tuple[Array, Array]
    columns: tuple[Array, Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class QInterpolate(Operator):
    """Interpolation of QDQ images: each row and column is a weighted sum of input rows and columns.

    rows, columns: int64 indices and float32 weights, [target, taps] each.
    """

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
    """Conversion of float32 to integers of 8 or 16 bits, or back, at the border of a quantized model.

    rounding: of halves, to even ("onnx", "litert") or away from zero ("tflite").
    """

    quantization: Quantization
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class Generic(Operator):
    """Any other operator, as plain C generated from its PrimFuncs, with a reference that runs these.

    most_passes: largest number of iterations of a loop that data end, which writes their number to output 0; 0 for
    everything else.
    """

    name: str
    plain: object
    reference: Callable[[list[Array]], list[Array]]
    most_passes: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Custom(Operator):
    """A custom operator of a user. inputs, outputs: those of the call without constants, then its states.

    input_names, output_names, constants: parameters of the C function, and the elements of constants. reference: the
    user's numpy function.
    """

    name: str
    code: CustomCode
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    constants: tuple[tuple[str, Array], ...]
    reference: Callable[[list[Array]], list[Array]]


@dataclass(frozen=True, kw_only=True)
class MatmulShape:
    """Shape of a matrix product: output[row, head, n] = sum over c of first[row, head, c] * second[head, c, n].

    heads_inside: True if the first tensor and the output are [rows, heads, ...], False if they are [heads, rows, ...].
    steps: stride of head, column and c in the second tensor, in elements; 0 if heads share a matrix.
    """

    rows: int
    heads: int
    depth: int
    columns: int
    heads_inside: bool
    steps: tuple[int, int, int]

    @property
    def outer(self) -> tuple[int, int]:
        """Extents of the first two axes of the first tensor and of the output."""
        return (self.rows, self.heads) if self.heads_inside else (self.heads, self.rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class Matmul(Operator):
    """Product of the first two float32 inputs, then `finish`, which may read further inputs."""

    shape: MatmulShape
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class QMatmul(Operator):
    """Product of two QDQ tensors, times `scale`."""

    shape: MatmulShape
    scale: float
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class ConstantMatmul(Operator):
    """Product of a constant matrix with an activation on its right.

    product: the same with two activations, of which `first` is the first. inputs: those of `product` without it.
    """

    product: Matmul | QMatmul
    first: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class PowerSpectrum(Operator):
    """Sums of the squares of each two successive channels of a product, then `finish`.

    product: with twice as many channels as the output, without operators of its own after it.
    """

    product: Conv2d | Dense
    finish: ScalarProgram = IDENTITY


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalize(Operator):
    """Normalization of float32 vectors along the last axis; fields as in QNormalize."""

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class QNormalize(Operator):
    """LayerNorm or RMSNorm of a QDQ tensor: each vector along the last axis is divided by its root mean square.

    weight, bias: float32[C], applied to the normalized vectors. is_centered: True if the mean is subtracted first, as
    in LayerNorm.
    """

    weight: Array
    bias: Array
    epsilon: float
    is_centered: bool
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QGroupNormalize(Operator):
    """GroupNorm or InstanceNorm of a QDQ tensor: each image's channels are normalized in `groups` runs of equal size.

    weight, bias: float32[C]. channel_axis: 1 or the last axis; the batch is axis 0, and all other axes are pixels.
    """

    weight: Array
    bias: Array
    epsilon: float
    groups: int
    channel_axis: int
    low: int
    high: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QAffine(Operator):
    """QDQ tensor times `factors`, plus `addends`, for position embeddings, masks and cosines of rotary embeddings.

    factors, addends: finite float64 arrays that broadcast to the output's shape, which is the input's.
    """

    factors: Array
    addends: Array
    low: int
    high: int
    rounding: Rounding = "onnx"


@dataclass(frozen=True, kw_only=True, eq=False)
class QMaskedSoftmax(QSoftmax):
    """QSoftmax that gives some elements a probability of zero.

    mask: bool, broadcasts to the input's shape, True for excluded elements. At least one element of each vector is not
    excluded.
    """

    mask: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfConv2d(Conv2d):
    """float16 Conv2d."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfDense(Dense):
    """float16 Dense."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfPool2d(Pool2d):
    """float16 Pool2d."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfElementwise(Elementwise):
    """float16 Elementwise."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfSoftmax(Softmax):
    """float16 Softmax."""


@dataclass(frozen=True, kw_only=True, eq=False)
class HalfCast(Operator):
    """Conversion of float16 to float32, exact, or of float32 to the nearest float16."""


HALF_FORMS: dict[type[Operator], type[Operator]] = {
    Conv2d: HalfConv2d, Dense: HalfDense, Pool2d: HalfPool2d, Elementwise: HalfElementwise, Softmax: HalfSoftmax,
}  # fmt: skip
"""float16 form of each float32 operator."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Permute(Operator):
    """Permutation of axes: output axis i is input axis axes[i]. Any element type.

    first: for each output axis, the index of the first element to take; empty if all are taken.
    """

    axes: tuple[int, ...]
    first: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream(Operator):
    """An input that the application delivers in pieces, or an output that it takes in pieces; axes as in Permute.

    If the inner tensor is one image [1, H, ...], its rows may be streamed one by one. columns: the columns [begin, end)
    of an input image [1, H, W, C] that are read; None for all.
    """

    direction: Literal["read", "write"]
    axes: tuple[int, ...]
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Concat(Operator):
    """Concatenation along one axis. Any element type.

    constants: parts that the model contains, by their positions among all parts; the inputs are the others, in order.
    """

    axis: int
    constants: Mapping[int, Array] = field(default_factory=dict[int, Array])


@dataclass(frozen=True, kw_only=True, eq=False)
class Gather(Operator):
    """Padding, slicing, repetition or nearest neighbour: element [i, j, ...] is input[places[0][i], places[1][j], ...].

    places: int64[extent] for each axis; an index of -1 is outside, and its element is `value`, in the output's type.
    """

    places: tuple[Array, ...]
    value: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Operator):
    """Another shape for the same bytes. Needs no kernel."""


RangeMeaning = Literal["onnx", "tflite_asymmetric", "tflite_symmetric"]


@dataclass(frozen=True, kw_only=True)
class OwnSteps:
    """Quantization of float activations by the range of their values in each run.

    meaning: the format whose arithmetic is used. by_vector: True if each vector along the last axis has its own range,
    False for one range of the whole tensor. scale_last: True if accumulators are multiplied by the weights' scale and
    then by the activations' scale, False if by the product of both.
    """

    meaning: RangeMeaning
    by_vector: bool = False
    scale_last: bool = False


def steps_type(shape: tuple[int, ...]) -> TensorType:
    """Return the type of activations in steps of their range. Zero points are subtracted from the accumulators."""
    return TensorType(shape=shape, dtype="int8", quantization=Quantization(scale=1.0, zero_point=0))


@dataclass(frozen=True, kw_only=True, eq=False)
class RealLayer(Operator):
    """Quantized convolution or dense layer with float results: accumulators times `scale`, plus `bias`, then `finish`.

    inputs: the layer's input, then inputs of `finish`, each of the output's shape, float32 or quantized. The output is
    float32, or quantized by `rounding`. layer: for one image or one vector; its result is int32 accumulators without a
    bias. scale, bias: float32[K]. Everything is float32, and products and sums are rounded one by one. own_steps: set
    if the first input is float32 and quantized here; then `layer` reads int8 steps around zero, and `scale` is the
    weights' scale.
    """

    layer: QConv2d | QDense
    scale: Array
    bias: Array
    finish: ScalarProgram = IDENTITY
    rounding: Rounding = "onnx"
    own_steps: OwnSteps | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Recurrent(Operator):
    """LSTM, GRU or RNN layer in float32: one direction, all steps of a sequence [T, B, C].

    inputs: the initial states that are not constants, [B, H] each, then the sequence. outputs: the final states, then
    the hidden state of each step, [T, B, H].
    cell, cell_limit: as in `RecurrentLayer`, with ONNX's order of the G gates.
    input_weight: float32[G H, C]. hidden_weight: float32[G H, H]. input_bias, hidden_bias: float32[G H].
    initial: for each state its constant, or None for an input.
    is_backward: the last element of the sequence is processed first.
    """

    cell: str
    input_weight: Array
    hidden_weight: Array
    input_bias: Array
    hidden_bias: Array
    initial: tuple[Array | None, ...]
    is_backward: bool = False
    cell_limit: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class QRecurrent(Operator):
    """LSTM, GRU or RNN layer on integers: one direction, all steps of a sequence int8[T, B, C].

    inputs: the initial states that are not constants, [B, H] each, then the sequence. outputs: the final states, then
    the hidden state of each step, int8[T, B, H].
    layer: the cell and its numbers.
    weights, biases: int8[rows, depth] and int32[rows] of each product of the cell. multiplier: int32[R] of all rows.
    table: int16[257]. initial: for each state its constant, or None for an input.
    """

    layer: IntegerRecurrentLayer
    weights: tuple[Array, ...]
    biases: tuple[Array, ...]
    multiplier: Array
    table: Array
    initial: tuple[Array | None, ...]

    @property
    def units(self) -> int:
        """Number of units of the hidden state."""
        return self.output.shape[-1]

    @property
    def hidden_states(self) -> TensorType:
        """The last output: the hidden state of each step."""
        return self.outputs[-1]


LSTM_GATES = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class QSvdfFeatures(Operator):
    """Features of a step of TensorFlow Lite's SVDF on integers.

    inputs: int8[B, C]. outputs: int8 or int16[B, 1, 1, F], the newest step of the state.
    weight: int8[F, C]. factor: (mantissa, shift) from sums of products to the state. zero_point: of the input.
    """

    weight: Array
    factor: tuple[int, int]
    zero_point: int
    state_zero_point: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QSvdfSum(Operator):
    """Weighted sums over the steps of TensorFlow Lite's SVDF on integers.

    inputs: [B, M, 1, F], the features of M steps, int8 or int16. outputs: int8[B, U].
    weight: [F, M] of the type of the features. bias: int32[U], with the part of the zero point of the state.
    factor: (mantissa, shift) from sums to outputs. zero_point: of the output.
    """

    weight: Array
    bias: Array
    factor: tuple[int, int]
    zero_point: int


@dataclass(frozen=True, kw_only=True, eq=False)
class QLstm(Operator):
    """TensorFlow Lite's LSTM on integers, all steps of a sequence.

    inputs: hidden state int8[B, H], cell int16[B, H], sequence int8[T, B, C]. outputs: the next hidden state and cell,
    and the outputs int8[T, B, H].
    input_weight: int8[4 H, C]; hidden_weight: int8[4 H, H]; bias: int32[4 H]: of the input, forget, cell and output
    gate. table: uint16[256], the sigmoid of i / 24 in units of 2^-16.
    factors, zero_points, cell_power, clip: as in `QuantizedLstm`; factors are pairs (mantissa, shift).
    """

    input_weight: Array
    hidden_weight: Array
    bias: Array
    table: Array
    factors: tuple[tuple[int, int], ...]
    zero_points: tuple[int, int]
    cell_power: int
    clip: int
