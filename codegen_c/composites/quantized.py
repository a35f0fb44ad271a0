"""QDQ composites as Operators: dequantize, float operators, quantize become one integer operator.

The only place where scales of weights and biases meet; kernels see integers and the scales they derive
multipliers from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from codegen_c.composites.affine import affine_operator, masked_softmax
from codegen_c.composites.floats import Match, reaching, window_of
from codegen_c.composites.graph import Call, Composite, NoMatch
from codegen_c.composites.interpolation import LONGEST_AXIS, images_of, matrices_after, taps_of
from codegen_c.composites.normalization import normalize_operator
from codegen_c.composites.products import product_operator
from codegen_c.composites.quantized_chain import QuantizedChain, quantized_chain
from codegen_c.composites.quantized_weights import linear_of
from codegen_c.composites.scalar_calls import ProgramBuilder
from codegen_c.operators.kinds import (
    PackedQConv2d,
    PackedQDense,
    QBinary,
    QConv2d,
    QConv2dTranspose,
    QDense,
    QInterpolate,
    QMean,
    QPool2d,
    QSoftmax,
    QUnary,
    Window,
)
from tvm_ext.core.decisions.composites import StoredWeights


def quantized_operator(composite: Composite) -> Match | NoMatch:
    """The integer operator of a QDQ composite, and which parameters are its inputs."""
    chain = quantized_chain(composite)
    if isinstance(chain, NoMatch):
        return chain
    anchor = chain.body[0] if chain.body else composite.calls[-1]
    make = _ANCHORS.get(anchor.name, _unary)
    return make(chain, anchor)


def _conv2d(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
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
    return operator, (0,)


def _dense(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    if all(chain.parameter(value) is not None for value in anchor.operands):
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
    return operator, (0,)


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
    """A mean over rows and columns is an average pool over the whole image; others, and sums, have a kernel."""
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
    if len(chain.body) == 2 and chain.body[1].name == "nn.softmax":
        return masked_softmax(chain, anchor)
    indices = [chain.parameter(value) for value in anchor.operands]
    if len(chain.body) == 1 and None in indices and not isinstance(found := affine_operator(chain, anchor), NoMatch):
        return found
    if len(chain.body) != 1 or None in indices:
        return _unary(chain, anchor)
    arguments = tuple(index for index in indices if index is not None)
    operator = QBinary(
        inputs=tuple(chain.inputs[i] for i in arguments), outputs=(chain.output,), function=anchor.name,  # type: ignore[arg-type]
        low=chain.low, high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return operator, arguments


def _unary(chain: QuantizedChain, anchor: Call) -> Match | NoMatch:
    """Any element-wise function of one activation and numbers: a table."""
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
    """take, multiply and add as one matrix for each axis: what every element of the output is made of."""
    if len(chain.inputs) != 1 or chain.rounding != "onnx":
        return NoMatch("reads more than one activation")
    if max(*chain.inputs[0].shape, *chain.output.shape, 1) > LONGEST_AXIS:
        return NoMatch(f"has an axis of more than {LONGEST_AXIS} elements")
    values: dict[Any, list[np.ndarray]] = {}
    for call in chain.composite.calls[:-1]:
        if call.name == "dequantize" and call.var in chain.parameters:
            values[call.var] = [np.eye(extent, dtype=np.float32) for extent in chain.inputs[0].shape]
            continue
        known = [values[value.var] for value in call.operands if value.var in values]
        arrays = [value.array for value in call.operands if value.array is not None]
        made = matrices_after(call, known, arrays)
        if made is None:
            return NoMatch("is not a sum of elements along each axis")
        values[call.var] = made
    matrices = values[chain.body[-1].var]
    images = images_of(matrices)
    if images is None:
        return NoMatch("interpolates along other axes than rows and columns")
    before, row, after = images
    (source,), output = chain.inputs, chain.output
    rows, columns = matrices[row], matrices[row + 1]
    operator = QInterpolate(
        inputs=(replace(source, shape=(before, rows.shape[1], columns.shape[1], after)),),
        outputs=(replace(output, shape=(before, rows.shape[0], columns.shape[0], after)),),
        rows=taps_of(rows), columns=taps_of(columns), low=chain.low, high=chain.high, rounding=chain.rounding,
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
    "nn.softmax": _softmax,
    "nn.layer_norm": normalize_operator,
    "nn.rms_norm": normalize_operator,
}
