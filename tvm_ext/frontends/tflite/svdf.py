"""SVDF: features of each input, kept for M steps, and weighted sums over these steps; `rank` features per output.

input[B, C], weights_feature[F, C], weights_time[F, M], bias[U], state[B, F * M] -> output[B, U], U = F / rank. Float,
or int8 with a state and weights_time of int8 or int16, in TensorFlow Lite Micro's arithmetic: factors are products and
quotients of float32 scales, accumulators are rounded twice, and zero points of weights are not read. A sum over time
that exceeds int32 wraps, as in TensorFlow Lite Micro.

The state is kept as [B, M - 1, 1, F], with the previous steps in order of time. It is a window with new rows therefore,
which a ring buffer holds without moving rows. The oldest step of the file's state is never read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tflite
from tvm import relax, te, tirx

from codegen_c.kernels.shared.requantize_tflite import fixed_point
from relay_passes.dataflow import constant, static_shape
from tvm_ext.core.decisions.composites import QuantizedSvdf
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import activated, options_of
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode, TfliteTensor
from tvm_ext.frontends.tflite.rescale import check_sums, clamped, rescaled, rescaled_wrapped

_INPUT, _FEATURE, _TIME, _BIAS, _STATE = range(5)
_STATE_TYPES = ("int8", "int16")


def states(node: TfliteNode) -> tuple[int, ...]:
    return (node.inputs[_STATE],)


def kept_shapes(file: TfliteFile, node: TfliteNode) -> tuple[tuple[int, ...], ...]:
    filters, memory = file.tensors[node.inputs[_TIME]].shape
    return ((file.tensors[node.inputs[_INPUT]].shape[0], memory - 1, 1, filters),)


def refusal(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why the operator cannot be compiled, or None if it can."""
    if len(node.inputs) != 5 or len(node.outputs) != 1 or -1 in (*node.inputs, *node.outputs):
        return "it needs an input, weights of features and of time, a bias, a state and an output"
    tensors = [file.tensors[index] for index in node.inputs]
    if any(tensors[place].data is None for place in (_FEATURE, _TIME, _BIAS)):
        return "its weights are computed by the model"
    return _of_shapes(node, tensors) or _of_types(tensors, file.tensors[node.outputs[0]])


def _of_shapes(node: TfliteNode, tensors: list[TfliteTensor]) -> str | None:
    if any(len(tensors[place].shape) != 2 for place in (_INPUT, _FEATURE, _TIME)):
        return "its input and weights have rank 2"
    (batch, channels), (filters, columns), (rows, memory) = (
        tensors[place].shape for place in (_INPUT, _FEATURE, _TIME)
    )
    rank = options_of(node.table, tflite.SVDFOptions).Rank()
    if columns != channels or rows != filters or rank < 1 or filters % rank:
        return (
            f"weights {[filters, columns]} and {[rows, memory]} of rank {rank} do not fit an input of {channels} values"
        )
    if memory < 2:
        return f"its memory is {memory} step; without one before, it is a fully connected layer"
    if tensors[_STATE].shape != (batch, filters * memory) or tensors[_BIAS].shape != (filters // rank,):
        return (
            f"its state is {list(tensors[_STATE].shape)} and its bias {list(tensors[_BIAS].shape)}; "
            f"{[batch, filters * memory]} and {[filters // rank]} are needed"
        )
    return None


def _of_types(tensors: list[TfliteTensor], output: TfliteTensor) -> str | None:
    types = tuple(tensor.dtype for tensor in (*tensors, output))
    if types == ("float32",) * 6:
        return None
    state = tensors[_STATE].dtype
    if state not in _STATE_TYPES or types != ("int8", "int8", state, "int32", state, "int8"):
        return f"its tensors are {', '.join(map(str, types))}; all float32, or int8 with a state of int8 or int16"
    for tensor in (*(tensors[place] for place in (_INPUT, _FEATURE, _TIME, _STATE)), output):
        if tensor.scales is None or tensor.scales.scale.size != 1:
            return f"its tensor {tensor.name!r} needs one scale"
    if state == "int16" and tensors[_STATE].scales.zero_point[0]:
        return "the zero point of its int16 state is 0"
    return None


def convert(
    file: TfliteFile, node: TfliteNode, values: Mapping[int, relax.Expr], builder: relax.BlockBuilder
) -> relax.Expr:
    """Return the output and the next value of the state as a tuple. Raises Refused for another shape of the input."""
    tensors = [file.tensors[index] for index in node.inputs]
    data, state = values[node.inputs[_INPUT]], values[node.inputs[_STATE]]
    if static_shape(data) != tensors[_INPUT].shape:
        raise Refused(f"its state is for an input of {list(tensors[_INPUT].shape)}, not {list(static_shape(data))}")
    options = options_of(node.table, tflite.SVDFOptions)
    is_float = tensors[_INPUT].dtype == "float32"
    new = _features(data, tensors) if is_float else _integer_features(data, tensors, builder)
    window = builder.emit(relax.op.concat([state, builder.emit(new)], 1))
    rows = static_shape(window)[1]
    following = builder.emit(relax.op.strided_slice(window, [1], [1], [rows]))
    if is_float:
        output = activated(_sum(window, tensors, options.Rank()), options.FusedActivationFunction())
    else:
        output = _integer_sum(window, tensors, file.tensors[node.outputs[0]], options.Rank(), builder)
    return relax.Tuple([builder.emit(output), following])


def _features(data: relax.Expr, tensors: list[TfliteTensor]) -> relax.Expr:
    weights = tensors[_FEATURE].data
    assert weights is not None, "refused before"
    product = relax.op.matmul(data, constant(np.ascontiguousarray(weights.T)))
    return relax.op.reshape(product, (static_shape(data)[0], 1, 1, weights.shape[0]))


def _sum(window: relax.Expr, tensors: list[TfliteTensor], rank: int) -> relax.Expr:
    """Return the outputs: a grouped convolution over the steps, with `rank` features in a group."""
    weights, bias = tensors[_TIME].data, tensors[_BIAS].data
    assert weights is not None and bias is not None, "refused before"
    filters, memory = weights.shape
    kernel = weights.reshape(filters // rank, rank, memory, 1).transpose(0, 2, 3, 1)
    summed = relax.op.nn.conv2d(
        window, constant(np.ascontiguousarray(kernel)), groups=filters // rank,
        data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC",
    )  # fmt: skip
    flat = relax.op.reshape(summed, (static_shape(window)[0], filters // rank))
    return relax.op.add(flat, constant(bias))


def _integer_features(data: relax.Expr, tensors: list[TfliteTensor], builder: relax.BlockBuilder) -> relax.Expr:
    weights, state = tensors[_FEATURE].data, tensors[_STATE].dtype
    assert weights is not None and state is not None and tensors[_INPUT].scales is not None, "refused before"
    zero_point = int(tensors[_INPUT].scales.zero_point[0])
    factor = _factor(tensors[_INPUT], tensors[_FEATURE], tensors[_STATE])
    check_sums(np.abs(weights.astype(np.int64)).sum(1) * 255, factor)
    batch, filters = static_shape(data)[0], weights.shape[0]

    def compute(values: te.Tensor, matrix: te.Tensor) -> te.Tensor:
        axis = te.reduce_axis((0, weights.shape[1]), "c")

        def product(b: tirx.Var, f: tirx.Var) -> tirx.Expr:
            value = tirx.Cast("int32", values[b, axis.var]) - tirx.const(zero_point, "int32")
            return te.sum(value * tirx.Cast("int32", matrix[f, axis.var]), axis)

        sums = te.compute((batch, filters), product, "sums")
        return te.compute(
            (batch, 1, 1, filters),
            lambda b, _h, _w, f: _kept(clamped(rescaled(tirx.Cast("int64", sums[b, f]), factor), state), tensors),
            "features",
        )

    zero_points = (zero_point, _zero_point(tensors))
    known = QuantizedSvdf(part="features", factor=fixed_point(factor), zero_points=zero_points)
    return builder.call_te(
        compute, data, constant(weights), primfunc_name_hint="svdf_features", primfunc_attrs=known.attributes()
    )


def _integer_sum(
    window: relax.Expr, tensors: list[TfliteTensor], output: TfliteTensor, rank: int, builder: relax.BlockBuilder
) -> relax.Expr:
    weights, bias = tensors[_TIME].data, tensors[_BIAS].data
    assert weights is not None and bias is not None and output.scales is not None, "refused before"
    zero_point, factor = int(output.scales.zero_point[0]), _factor(tensors[_STATE], tensors[_TIME], output)
    (filters, memory), batch = weights.shape, static_shape(window)[0]
    units = filters // rank
    most = np.abs(weights.astype(np.int64)).sum(1) * -int(np.iinfo(str(tensors[_STATE].dtype)).min)
    state_zero = _zero_point(tensors)
    reach = most.reshape(units, rank).sum(1) * (2 if state_zero else 1)
    largest = int((reach + np.abs(bias.astype(np.int64))).max()) * max(1.0, 2 * factor)
    wraps = largest > np.iinfo(np.int32).max
    total = "int64" if wraps else "int32"  # wrapped at the end: an overflow of signed integers is undefined in C

    def compute(values: te.Tensor, matrix: te.Tensor, offsets: te.Tensor) -> te.Tensor:
        steps, parts = te.reduce_axis((0, memory), "m"), te.reduce_axis((0, rank), "r")

        def product(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            f = u * rank + parts.var
            value = tirx.Cast(total, values[b, steps.var, 0, f]) - tirx.const(state_zero, total)
            return te.sum(value * tirx.Cast(total, matrix[f, steps.var]), [parts, steps])

        sums = te.compute((batch, units), product, "sums")

        def element(b: tirx.Var, u: tirx.Var) -> tirx.Expr:
            steps = tirx.Cast("int64", sums[b, u]) + tirx.Cast("int64", offsets[u])
            scaled = rescaled_wrapped(steps, factor) if wraps else rescaled(steps, factor)
            return clamped(scaled + tirx.const(zero_point, "int64"), "int8")

        return te.compute((batch, units), element, "output")

    known = QuantizedSvdf(part="sum", factor=fixed_point(factor), zero_points=(state_zero, zero_point))
    return builder.call_te(
        compute, window, constant(weights), constant(bias), primfunc_name_hint="svdf_sum",
        primfunc_attrs=known.attributes(),
    )  # fmt: skip


def _kept(value: tirx.Expr, tensors: list[TfliteTensor]) -> tirx.Expr:
    """Return a feature as the state stores it: plus the zero point, wrapped to its type as in TensorFlow Lite Micro."""
    zero_point = _zero_point(tensors)
    if zero_point == 0:
        return value
    shifted = tirx.Cast("int32", value) + tirx.const(zero_point + 128, "int32")
    return tirx.Cast("int8", (shifted & tirx.const(255, "int32")) - tirx.const(128, "int32"))


def _zero_point(tensors: list[TfliteTensor]) -> int:
    """Return the zero point of the state."""
    assert tensors[_STATE].scales is not None, "refused before"
    return int(tensors[_STATE].scales.zero_point[0])


def _factor(one: TfliteTensor, other: TfliteTensor, result: TfliteTensor) -> float:
    """Return the product of two scales divided by the result's scale, in float32."""
    assert one.scales is not None and other.scales is not None and result.scales is not None, "refused before"
    return float(one.scales.scale[0] * other.scales.scale[0] / result.scales.scale[0])
