"""Lower quantized (QDQ) fused operators: weights, biases and scales as integers.

Only this file combines the scales of weights and biases. Kernels get integers and the scales from which they derive
their multipliers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.composites.chains import INTEGERS, Dequantized, QuantizedChain, quantized_chain
from codegen_c.composites.constant_channels import plain_constant_channels
from codegen_c.composites.floats import Match, reaching, window_of
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.composites.interpolation import image_taps
from codegen_c.composites.normalization import group_operator, normalize_operator
from codegen_c.composites.products import product_operator
from codegen_c.composites.scalar_calls import ProgramBuilder
from codegen_c.operators.kinds import (
    PackedQConv2d,
    PackedQDense,
    QAffine,
    QBinary,
    QConstantBinary,
    QConv2d,
    QConv2dTranspose,
    QDense,
    QDivide,
    QInterpolate,
    QMaskedSoftmax,
    QMean,
    QPool2d,
    QPrelu,
    QSoftmax,
    Quantization,
    QUnary,
    TensorType,
    Window,
)
from tvm_ext.core.decisions.composites import StoredWeights
from tvm_ext.core.wide_biases import HIGH_SCALE, joined_bias


def quantized_operator(composite: Composite) -> Match | NoMatch:
    """Return the integer operator of a QDQ composite, and the indices of its inputs among the parameters."""
    chain = quantized_chain(composite)
    if isinstance(chain, NoMatch):
        return chain
    anchor = chain.body[0] if chain.body else composite.calls[-1]
    make = _ANCHORS.get(anchor.name, _unary)
    return make(chain, anchor)


def _conv2d(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return a quantized convolution, or a transposed convolution, in NHWC layout."""
    attrs = anchor.attrs
    plain = PackedQConv2d if StoredWeights.read(chain.composite.function).bits == 4 else QConv2d
    make = QConv2dTranspose if anchor.name == "nn.conv2d_transpose" else plain
    if attrs.data_layout != "NHWC" or attrs.kernel_layout != "OHWI":
        return NoMatch("its layout is not NHWC")
    if make is QConv2dTranspose and (int(attrs.groups) > 1 or max(map(int, attrs.dilation)) > 1):
        return NoMatch("it is transposed, and has groups or dilation")
    linear = linear_of(chain, anchor, chain.output.shape[-1], channel_axis=0)
    if isinstance(linear, NoMatch):
        return linear
    weight, scale, bias = linear
    window = window_of(attrs, weight.shape[1:3])
    if isinstance(window, NoMatch):
        return window
    operator = make(
        inputs=chain.inputs, outputs=(chain.output,), weight=weight, weight_scale=scale, bias=bias, window=window,
        low=chain.low, high=chain.high, groups=int(attrs.groups), rounding=chain.rounding,
    )  # fmt: skip
    return plain_constant_channels(operator), (0,)


def _dense(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return a quantized dense layer with constant weights, or a product of two activations."""
    if chain.parameter(anchor.operands[1]) is not None:
        return product_operator(chain, anchor)
    channels = chain.output.shape[-1]
    linear = linear_of(chain, anchor, channels, channel_axis=-1)
    if isinstance(linear, NoMatch):
        return linear
    weight, scale, bias = linear
    if weight.ndim != 2 or weight.shape[1] != channels or len(chain.inputs) != 1:
        return NoMatch("its weights are not a matrix")
    make = PackedQDense if StoredWeights.read(chain.composite.function).bits == 4 else QDense
    operator = make(
        inputs=chain.inputs, outputs=(chain.output,), weight=np.ascontiguousarray(weight.T), weight_scale=scale,
        bias=bias, low=chain.low, high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return plain_constant_channels(operator), (0,)


def _pool2d(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    attrs = anchor.attrs
    if attrs.layout != "NHWC" or len(chain.body) != 1:
        return NoMatch("its layout is not NHWC, or more than a clamp follows it")
    window, average = window_of(attrs, tuple(map(int, attrs.pool_size))), anchor.name == "nn.avg_pool2d"
    include = bool(attrs.count_include_pad)
    if not isinstance(window, NoMatch):
        window = reaching(window, chain.inputs[0], anchor.type, counts_padding=include and average)
    return _pool(chain, anchor, window, include)


def _mean(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return an average pool over the whole image for a mean over rows and columns; QMean for other means and sums."""
    shape = chain.inputs[0].shape
    if len(chain.body) != 1 or len(chain.inputs) != 1 or chain.parameter(anchor.operands[0]) is None:
        return NoMatch("more than a clamp follows it")
    rank = len(shape)
    axes = tuple(sorted({int(axis) % rank for axis in anchor.attrs.axis or range(rank)})) if rank else ()
    if rank == 4 and axes == (1, 2) and anchor.name == "mean":
        return _pool(chain, anchor, Window(kernel=(shape[1], shape[2])), False, is_mean=True)
    kept = tuple(1 if axis in axes else extent for axis, extent in enumerate(shape))
    operator = QMean(
        inputs=chain.inputs, outputs=(replace(chain.output, shape=kept),), axes=axes, divide=anchor.name == "mean",
        low=chain.low, high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return operator, (0,)


def _pool(
    chain: QuantizedChain, anchor: Call, window: Window | NoMatch, include: bool, *, is_mean: bool = False
) -> Match | NoMatch:
    if isinstance(window, NoMatch):
        return window
    output = chain.output
    if len(output.shape) == 2:  # a mean that dropped its axes
        output = replace(output, shape=(output.shape[0], 1, 1, output.shape[1]))
    operator = QPool2d(
        inputs=chain.inputs, outputs=(output,), method="max" if anchor.name == "nn.max_pool2d" else "average",
        window=window, low=chain.low, high=chain.high, count_include_pad=include, rounding=chain.rounding,
        is_mean=is_mean,
    )  # fmt: skip
    return operator, (0,)


def _binary(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return an operator of two activations, or of an activation and a constant."""
    if len(chain.body) == 2 and chain.body[1].name == "nn.softmax":
        return masked_softmax(chain, anchor)
    indices = [chain.parameter(value) for value in anchor.operands]
    if len(chain.body) == 1 and chain.rounding != "onnx" and (found := _with_constant(chain, anchor)) is not None:
        return found
    if len(chain.body) == 1 and None in indices and not isinstance(found := affine_operator(chain, anchor), NoMatch):
        return found
    if len(chain.body) != 1 or None in indices:
        return _unary(chain, anchor)
    arguments = tuple(index for index in indices if index is not None)
    return _of_two(chain, anchor, tuple(chain.inputs[i] for i in arguments)), arguments


def _quotient(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return the quotient of two activations."""
    indices = [index for value in anchor.operands if (index := chain.parameter(value)) is not None]
    if len(chain.body) != 1 or len(indices) != 2 or chain.rounding != "onnx":
        return _unary(chain, anchor)
    operator = QDivide(
        inputs=tuple(chain.inputs[i] for i in indices), outputs=(chain.output,), low=chain.low, high=chain.high,
    )  # fmt: skip
    return operator, tuple(indices)


def _prelu(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return PReLU: the larger of an activation and zero, plus the smaller of both times slopes."""
    calls = {call.name: call for call in chain.body}
    if sorted(call.name for call in chain.body) != ["add", "maximum", "minimum", "multiply"] or len(chain.inputs) != 1:
        return _unary(chain, anchor)
    slopes = [value.array for value in calls["multiply"].operands if value.array is not None]
    sides = (calls["maximum"], calls["minimum"])
    zeros = [value.array for call in sides for value in call.operands if value.array is not None]
    reads = [chain.parameter(value) for call in sides for value in call.operands if value.array is None]
    is_leak = len(zeros) == 2 and not np.concatenate([zero.reshape(-1) for zero in zeros]).any() and reads == [0, 0]
    inner = {value.var for call in (calls["multiply"], calls["add"]) for value in call.operands if value.array is None}
    made = {calls[name].var for name in ("maximum", "minimum", "multiply")}
    if not is_leak or inner != made or len(slopes) != 1 or not np.isfinite(slopes[0]).all():
        return _unary(chain, anchor)
    if chain.inputs[0].shape != chain.output.shape or slopes[0].ndim > len(chain.output.shape):
        return NoMatch("its slopes repeat its elements")
    operator = QPrelu(
        inputs=chain.inputs, outputs=(chain.output,), slopes=slopes[0], low=chain.low, high=chain.high,
        rounding=chain.rounding,
    )  # fmt: skip
    return operator, (0,)


def _of_two(chain: QuantizedChain, anchor: Call, inputs: tuple[TensorType, ...]) -> QBinary:
    return QBinary(
        inputs=inputs, outputs=(chain.output,), function=anchor.name,  # type: ignore[arg-type]
        low=chain.low, high=chain.high, rounding=chain.rounding,
    )  # fmt: skip


def _with_constant(chain: QuantizedChain, anchor: Call) -> Match | None:
    """Return an operator of an activation and a constant with one scale, as TensorFlow Lite rounds; None for others."""
    constants = [chain.constants.get(value.var) for value in anchor.operands]
    known = [index for index, constant in enumerate(constants) if constant is not None]
    if len(known) != 1 or len(chain.inputs) != 1:
        return None
    (index,), constant = known, constants[known[0]]
    if constant is None or constant.scale.size != 1 or str(constant.data.dtype) not in INTEGERS:
        return None
    rank, zero_point = len(chain.output.shape), int(constant.zero_point.reshape(-1)[0])
    data = constant.data.reshape((1,) * (rank - constant.data.ndim) + constant.data.shape)
    kind = TensorType(
        shape=data.shape, dtype=str(data.dtype),
        quantization=Quantization(scale=float(constant.scale.reshape(-1)[0]), zero_point=zero_point),
    )  # fmt: skip
    inputs = (kind, *chain.inputs) if index == 0 else (*chain.inputs, kind)
    operator = QConstantBinary(
        inputs=chain.inputs, outputs=(chain.output,), binary=_of_two(chain, anchor, inputs), constant=data, index=index
    )
    return operator, (0,)


def _unary(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return the table of an element-wise function of one activation and numbers."""
    calls = chain.composite.calls[:-1]
    builder = ProgramBuilder()
    if len(chain.inputs) != 1 or chain.inputs[0].shape != chain.output.shape:
        return NoMatch("reads more than one activation")
    for call in calls:
        if call.name == "dequantize":
            if call.var in chain.constants:
                return NoMatch("reads a quantized constant")
            builder.element(call.var)
        elif failed := builder.add(call, 1):
            return failed
    return QUnary(inputs=chain.inputs, outputs=(chain.output,), finish=builder.program(), rounding=chain.rounding), (0,)


def _softmax(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    rank = len(chain.output.shape)
    if len(chain.body) != 1 or int(anchor.attrs.axis) % rank != rank - 1:
        return NoMatch("is not a softmax over the last axis")
    return QSoftmax(inputs=chain.inputs, outputs=(chain.output,), rounding=chain.rounding), (0,)


def _interpolate(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Return an interpolation, from take, multiply and add as one matrix of weights for each axis."""
    if len(chain.inputs) != 1 or chain.rounding != "onnx":
        return NoMatch("reads more than one activation")
    calls = chain.composite.calls[:-1]
    real = next((call for call in calls if call.name == "dequantize" and call.var in chain.parameters), None)
    if real is None:
        return NoMatch("reads no activation")
    (source,), output = chain.inputs, chain.output
    others = [call for call in calls if call is not real]
    found = image_taps(others, real.var, (source.shape, output.shape), chain.body[-1].var)
    if isinstance(found, NoMatch):
        return found
    operator = QInterpolate(
        inputs=(replace(source, shape=found.before),), outputs=(replace(output, shape=found.after),), rows=found.rows,
        columns=found.columns, low=chain.low, high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return operator, (0,)


_ANCHORS = {
    "take": _interpolate,
    "nn.conv2d": _conv2d,
    "nn.conv2d_transpose": _conv2d,
    "matmul": _dense,
    "einsum": product_operator,
    "nn.max_pool2d": _pool2d,
    "nn.avg_pool2d": _pool2d,
    "mean": _mean,
    "sum": _mean,
    "add": _binary,
    "subtract": _binary,
    "multiply": _binary,
    "divide": _quotient,
    "maximum": _prelu,
    "minimum": _prelu,
    "nn.softmax": _softmax,
    "nn.layer_norm": normalize_operator,
    "nn.rms_norm": normalize_operator,
    "nn.group_norm": group_operator,
}


VANISHING = 40.0
"""An element that is smaller than the largest by this difference has an exponential below any step."""


def affine_operator(chain: QuantizedChain, anchor: Call) -> tuple[QAffine, tuple[int, ...]] | NoMatch:
    """Return the operator of an activation plus, minus or times a constant of several numbers, real or quantized."""
    numbers = [_real(chain, value) for value in anchor.operands]
    known = [array for array in numbers if array is not None]
    if len(known) != 1 or len(chain.inputs) != 1 or chain.inputs[0].shape != chain.output.shape:
        return NoMatch("is not an activation and a constant")
    (constant,), is_first = known, numbers[0] is not None
    if not np.isfinite(constant).all():
        return NoMatch("its constant is not finite")
    if constant.size == 1 and not chain.constants:
        return NoMatch("its constant is one number")  # a table of all results covers this case
    one, none = np.ones((), np.float64), np.zeros((), np.float64)
    factors, addends = {
        "add": (one, constant), "subtract": (-one, constant) if is_first else (one, -constant),
        "multiply": (constant, none),
    }[anchor.name]  # fmt: skip
    operator = QAffine(
        inputs=chain.inputs, outputs=(chain.output,), factors=factors, addends=addends, low=chain.low,
        high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return operator, (0,)


def masked_softmax(chain: QuantizedChain, mask: Call) -> tuple[QMaskedSoftmax, tuple[int, ...]] | NoMatch:
    """Return a softmax over the last axis after an addition of a constant mask.

    The mask has zeros, and negative numbers so large that they exclude elements.
    """
    known = [array for value in mask.operands if (array := _real(chain, value)) is not None]
    rank, source = len(chain.output.shape), chain.inputs[0]
    is_last = int(chain.body[1].attrs.axis) % rank == rank - 1
    if not is_last or mask.name != "add" or len(known) != 1 or len(chain.inputs) != 1 or source.quantization is None:
        return NoMatch("is not a softmax over the last axis of an activation and a constant mask")
    left_out = known[0] < 0
    # An excluded element must vanish even if it is 255 steps above the others.
    most = -VANISHING - 255 * source.quantization.scale
    if source.shape != chain.output.shape or (known[0] > 0).any() or (known[0][left_out] > most).any():
        return NoMatch("its mask has numbers that neither are zero nor exclude an element")
    if np.broadcast_to(left_out, source.shape).all(axis=-1).any():
        return NoMatch("its mask excludes all elements of a vector")
    operator = QMaskedSoftmax(inputs=chain.inputs, outputs=(chain.output,), rounding=chain.rounding, mask=left_out)
    return operator, (0,)


def _real(chain: QuantizedChain, value: CallOperand) -> np.ndarray | None:
    """Return the real values of a constant, float64; None for an activation."""
    if value.array is not None:
        return value.array.astype(np.float64)
    given = chain.constants.get(value.var)
    return given.real if given else None


def weights_of(
    chain: QuantizedChain | Dequantized, value: CallOperand, channel_axis: int, *, takes_nine_bits: bool = False
) -> tuple[np.ndarray, np.ndarray] | NoMatch:
    """Return weights as int8 around zero, and their float32 scales: one in all, or one per output channel.

    takes_nine_bits: return int16 if the distances from the zero point exceed int8.
    """
    if value.var not in chain.constants:
        return NoMatch("its weights are not quantized constants")
    given = chain.constants[value.var]
    if given.scale.size > 1 and given.axis != channel_axis % given.data.ndim:
        return NoMatch("the scales of its weights are not along the axis of its output channels")
    if given.data.dtype == np.int8 and not given.zero_point.any():
        return given.data, given.scale
    if given.data.dtype not in (np.int8, np.uint8):
        return NoMatch(f"its weights are {given.data.dtype}, not int8 or uint8")
    steps = given.steps
    if steps.min(initial=0) < -128 or steps.max(initial=0) > 127:
        if takes_nine_bits:
            return steps.astype(np.int16), given.scale
        return NoMatch("its weights minus their zero point exceed int8; quantize them symmetrically")
    return steps.astype(np.int8), given.scale


def linear_of(
    chain: QuantizedChain, anchor: Call, channels: int, channel_axis: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | NoMatch:
    """Return weights in the graph's layout, one scale per channel, and the bias.

    channel_axis: axis of the weights that is the output channels. Scales are float64 if quantized integers multiply the
    sums, which then have steps of the scales of weights and input.
    """
    if chain.parameter(anchor.operands[0]) is None:
        return NoMatch("its first operand is not an activation")
    weights = weights_of(chain, anchor.operands[1], channel_axis, takes_nine_bits=True)
    if isinstance(weights, NoMatch):
        return weights
    scale = np.ascontiguousarray(np.broadcast_to(weights[1], channels).astype(np.float32))
    source = chain.inputs[chain.parameter(anchor.operands[0]) or 0].quantization
    assert source is not None, "every input of a chain is quantized"
    chain, factors = _without_factors(chain, channels)
    bias = _bias(chain, anchor, scale.astype(np.float64) * np.float64(np.float32(source.scale)), channels)
    return bias if isinstance(bias, NoMatch) else (weights[0], scale if factors is None else scale * factors, bias)


def _without_factors(chain: QuantizedChain, channels: int) -> tuple[QuantizedChain, np.ndarray | None]:
    """Return a chain without a last product with quantized numbers above zero, and these numbers: float64[channels]."""
    *body, last = chain.body
    known = [chain.constants[value.var] for value in last.operands if value.var in chain.constants]
    if not body or last.name != "multiply" or len(known) != 1:
        return chain, None
    real, shape = known[0].real, known[0].data.shape
    if real.size not in (1, channels) or (real.size > 1 and shape[-1] != channels) or not (real > 0).all():
        return chain, None
    return replace(chain, body=tuple(body)), np.broadcast_to(real.reshape(-1), channels)


def _bias_type(chain: QuantizedChain) -> str:
    """Return the element type of a bias that a file omits or gives in real numbers: int64 for 16-bit activations."""
    return "int64" if np.dtype(chain.inputs[0].dtype).itemsize > 1 else "int32"


def _bias(chain: QuantizedChain, anchor: Call, scale: np.ndarray, channels: int) -> np.ndarray | NoMatch:
    """Return the bias that is added after the anchor, in units of `scale`; zeros if there is none."""
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
        if chain.rounding != "onnx" and given.data.dtype == np.int32 and _is_per_channel(given.data, channels):
            return np.ascontiguousarray(given.data.reshape(-1))  # TensorFlow Lite ignores the scale of a bias
        real = given.steps.reshape(-1) * given.scale.astype(np.float64)
    elif added is not None and added.array is not None:
        real = added.array.astype(np.float64).reshape(-1)
    else:
        return NoMatch("its bias is not constant")
    shape = added.array.shape if added.array is not None else chain.constants[added.var].data.shape
    if real.size not in (1, channels) or (real.size == channels > 1 and shape[-1] != channels):
        return NoMatch("its bias is not one number per channel")
    units = np.round(np.broadcast_to(real, channels) / scale)
    if np.abs(units).max(initial=0) >= 2.0 ** (8 * np.dtype(_bias_type(chain)).itemsize - 1):
        return NoMatch("its bias does not fit 32 bits")
    return units.astype(_bias_type(chain))


def _wide_bias(chain: QuantizedChain, rest: list[Call], channels: int) -> np.ndarray | None:
    """Return the int64 bias that is added in two parts, or None for any other calls."""
    parts = [chain.constants.get(value.var) for call in rest for value in call.operands if call.name == "add"]
    known = [part for part in parts if part is not None]
    if len(known) != 2 or not all(_is_per_channel(p.data, channels) and p.data.dtype == np.int32 for p in known):
        return None
    high, low = known
    in_parts = np.array_equal(high.scale, low.scale * np.float32(HIGH_SCALE))
    return joined_bias(high.data.reshape(-1), low.data.reshape(-1)) if in_parts else None


def _is_per_channel(bias: np.ndarray, channels: int) -> bool:
    """Return True for one number per channel. The axes before are of images that were turned, and have the extent 1."""
    return bias.size == channels and bias.shape[-1:] == (channels,)
