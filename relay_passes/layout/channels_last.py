"""Rewrite a composite from NCHW to NHWC, together with the kernels of its convolutions.

A rule receives the call and its operands, and returns the call for NHWC, or None where there is no such call. Constants
are permuted at compile time, quantized constants under their dequantize.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, bindings, build, infer, op_name, outputs, static_shape, with_span
from relay_passes.own_operators import range_quantize
from tvm_ext.core.decisions.composites import OwnRange
from tvm_ext.core.names import RANGE_QUANTIZE

NCHW_TO_NHWC = (0, 2, 3, 1)
NHWC_TO_NCHW = (0, 3, 1, 2)
IOHW_TO_OHWI = (1, 2, 3, 0)
WINDOWS = frozenset({"relax.nn.conv2d", "relax.nn.max_pool2d", "relax.nn.avg_pool2d"})
SPREADS = frozenset({"relax.nn.conv2d_transpose"})


def has_window(composite: relax.Function) -> bool:
    """Return True where the composite slides a window over NCHW images.

    Such a composite is a convolution, a pool or a transposed convolution.
    """
    windows = [b.value.attrs for b in bindings(composite) if op_name(b.value) in WINDOWS | SPREADS]
    return any(
        getattr(attrs, "data_layout", None) == "NCHW" or getattr(attrs, "layout", None) == "NCHW" for attrs in windows
    )


def laid_out(composite: relax.Function) -> relax.Function:
    """Return the composite in the layout that it will have inside the model, or unchanged where no rule moves it."""
    moved = channels_last(composite) if has_window(composite) else with_ohwi_kernels(composite)
    return moved or composite


def channels_last(composite: relax.Function) -> relax.Function | None:
    """Return the composite with every rank-4 parameter and result as NHWC, or None where an operator has no rule."""
    operands = _Operands(composite)
    for binding in bindings(composite):
        name = op_name(binding.value)
        if name == "relax.dequantize" and array_of(binding.value.args[0]) is not None:
            operands.constants[binding.var] = binding.value
            continue
        rule = RULES.get(name or "")
        rewritten = rule(binding.value, operands) if rule else None
        if rewritten is None:
            return None
        operands.bind(binding.var, infer(with_span(rewritten, binding.value.span)))
    results = [operands.new[result] for result in outputs(composite)]
    return build(operands.params, operands.sequence, results, attrs=composite.attrs)


class _Operands:
    """The values of a composite while it is rewritten.

    new: the new variable of each value.
    constants: the dequantize of each quantized constant.
    """

    def __init__(self, composite: relax.Function) -> None:
        self.sequence: list[relax.VarBinding] = []
        self.new: dict[relax.Var, relax.Var] = {}
        self.constants: dict[relax.Var, relax.Call] = {}
        self.params = [self._param(param) for param in composite.params]

    def _param(self, param: relax.Var) -> relax.Var:
        if is_image(param):
            shape = static_shape(param)
            moved = relax.TensorType([shape[axis] for axis in NCHW_TO_NHWC], param.ty.dtype)
            self.new[param] = relax.Var(param.name, moved)
        else:
            self.new[param] = param
        return self.new[param]

    def bind(self, old: relax.Var, value: relax.Expr) -> None:
        self.new[old] = relax.Var(old.name, value.ty)
        self.sequence.append(relax.VarBinding(self.new[old], value))

    def __getitem__(self, expr: relax.Expr) -> relax.Expr:
        """Return the operand for NHWC.

        Images are permuted, and constants of rank 1 to 3 first get the rank of an image.
        """
        array = array_of(expr)
        if expr in self.constants:
            return self.constant(expr, NCHW_TO_NHWC if prod(static_shape(expr)) > 1 else None)
        if array is None:
            return self.new.get(expr, expr) if isinstance(expr, relax.Var) else expr
        if array.size == 1:
            return expr
        return relax.const(array.reshape((1,) * (4 - array.ndim) + array.shape).transpose(NCHW_TO_NHWC))

    def constant(self, expr: relax.Expr, axes: Sequence[int] | None) -> relax.Expr | None:
        """Return a constant, or a quantized constant, with its axes in another order, or None if `expr` is neither.

        A quantized constant of fewer axes first gets the leading axes of extent 1 that broadcasting would add.
        """
        array = array_of(expr)
        if array is not None:
            return relax.const(np.ascontiguousarray(array.transpose(axes))) if axes else expr
        call = self.constants.get(expr)
        if call is None:
            return None
        if axes:
            data = array_of(call.args[0])
            whole = data.reshape((1,) * (len(axes) - data.ndim) + data.shape)
            moved = relax.const(np.ascontiguousarray(whole.transpose(axes)))
            axis = list(axes).index(int(call.attrs.axis) % data.ndim + whole.ndim - data.ndim)
            call = relax.op.dequantize(moved, call.args[1], call.args[2], axis=axis, out_dtype=call.attrs.out_dtype)
        var = relax.Var(expr.name, infer(call).ty)
        self.sequence.append(relax.VarBinding(var, infer(call)))
        return var


def is_image(expr: relax.Expr) -> bool:
    """Return True where a value is a tensor of rank 4."""
    return isinstance(expr.ty, relax.TensorType) and expr.ty.ndim == 4


def _same_call(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite an element-wise call.

    None where a vector or matrix beside an image would broadcast along other axes.
    """
    vectors = [
        arg for arg in call.args if isinstance(arg, relax.Var) and not is_image(arg) and arg not in operands.constants
    ]
    if not is_image(call):
        arguments = [operands.new.get(arg, arg) if isinstance(arg, relax.Var) else arg for arg in call.args]
    elif any(static_shape(vector) not in ((), (1,)) for vector in vectors):
        return None
    else:
        arguments = [operands[arg] for arg in call.args]
    return relax.Call(call.op, arguments, call.attrs, call.ty_args)


def _conv2d(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "OIHW":
        return None
    weight = operands.constant(call.args[1], NCHW_TO_NHWC)
    if weight is None:
        return None
    return relax.op.nn.conv2d(
        operands[call.args[0]], weight, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
        groups=attrs.groups, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC", out_dtype=attrs.out_dtype,
    )  # fmt: skip


def _conv2d_transpose(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    attrs = call.attrs
    one_by_one = int(attrs.groups) == 1 and all(int(step) == 1 for step in attrs.dilation)
    if attrs.data_layout != "NCHW" or attrs.kernel_layout != "IOHW" or not one_by_one:
        return None
    weight = operands.constant(call.args[1], IOHW_TO_OHWI)
    if weight is None:
        return None
    return relax.op.nn.conv2d_transpose(
        operands[call.args[0]], weight, strides=attrs.strides, padding=attrs.padding,
        output_padding=attrs.output_padding, dilation=attrs.dilation, groups=attrs.groups, data_layout="NHWC",
        kernel_layout="OHWI", out_layout="NHWC", out_dtype=attrs.out_dtype,
    )  # fmt: skip


def _pool2d(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    attrs = call.attrs
    if attrs.layout != "NCHW":
        return None
    make = relax.op.nn.max_pool2d if call.op.name == "relax.nn.max_pool2d" else relax.op.nn.avg_pool2d
    return make(
        operands[call.args[0]], pool_size=attrs.pool_size, strides=attrs.strides, padding=attrs.padding,
        dilation=attrs.dilation, ceil_mode=attrs.ceil_mode, count_include_pad=attrs.count_include_pad,
        layout="NHWC", out_layout="NHWC",
    )  # fmt: skip


def _quantize(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    data, scale, zero_point = call.args
    make = relax.op.quantize if call.op.name == "relax.quantize" else relax.op.dequantize
    axis = int(call.attrs.axis)
    if is_image(data):
        axis = NCHW_TO_NHWC.index(axis % 4)
    return make(operands[data], scale, zero_point, axis=axis, out_dtype=call.attrs.out_dtype)


def _range_quantize(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite ranges of a whole image, or of each image of a batch, which do not depend on the order of elements."""
    own = OwnRange.read(call)
    return range_quantize(operands[call.args[0]], own.meaning, own.axes) if own.axes <= 1 else None


def _concat(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
    if not fields or not all(is_image(field) and array_of(field) is None for field in fields):
        return None
    return relax.op.concat([operands[field] for field in fields], axis=NCHW_TO_NHWC.index(int(call.attrs.axis) % 4))


def _pad(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    attrs = call.attrs
    if not is_image(call.args[0]) or str(attrs.pad_mode) != "constant":
        return None
    width = [int(width) for width in attrs.pad_width]
    moved = [width[2 * axis + end] for axis in NCHW_TO_NHWC for end in (0, 1)]
    return relax.op.nn.pad(operands[call.args[0]], moved, pad_value=float(attrs.pad_value))


def _take(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite a `take` by a constant vector of indices along a single axis."""
    data, indices = call.args
    if not is_image(data) or array_of(indices) is None or array_of(indices).ndim != 1 or call.attrs.axis is None:
        return None
    return relax.op.take(operands[data], indices, axis=NCHW_TO_NHWC.index(int(call.attrs.axis) % 4))


def _strided_slice(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite a slice: its bounds stay, and only its axes change position."""
    data, axes, *bounds = call.args
    if not is_image(data) or not isinstance(axes, relax.Tuple):
        return None
    moved = relax.Tuple([relax.prim_value(NCHW_TO_NHWC.index(int(axis.value) % 4)) for axis in axes.fields])
    return relax.Call(call.op, [operands[data], moved, *bounds], call.attrs, call.ty_args)


def _mean(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite a mean over rows and columns: batch and channels keep their order without the reduced axes."""
    axes = sorted(int(axis) % 4 for axis in call.attrs.axis or ())
    if not is_image(call.args[0]) or axes != [2, 3]:
        return None
    return relax.op.mean(operands[call.args[0]], axis=[1, 2], keepdims=call.attrs.keepdims)


def _group_norm(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite a normalization of groups of channels over rows and columns. Its weights are vectors in both layouts."""
    attrs = call.attrs
    data, *vectors = call.args
    axes = sorted(int(axis) % 4 for axis in attrs.axes)
    if not is_image(data) or int(attrs.channel_axis) % 4 != 1 or axes not in ([2, 3], [1, 2, 3]):
        return None
    if any(array_of(vector) is None for vector in vectors):
        return None
    return relax.op.nn.group_norm(
        operands[data], *vectors, num_groups=int(attrs.num_groups), channel_axis=3, axes=[1, 2],
        epsilon=float(attrs.epsilon), center=bool(attrs.center), scale=bool(attrs.scale),
    )  # fmt: skip


def _reshape(call: relax.Call, operands: _Operands) -> relax.Expr | None:
    """Rewrite a reshape from an image to another rank.

    None unless the elements have the same order in both layouts.
    """
    if not is_image(call.args[0]) or is_image(call):
        return None
    shape = static_shape(call.args[0])
    moved = [axis for axis in NCHW_TO_NHWC if shape[axis] > 1]
    if moved != sorted(moved):
        return None
    return relax.op.reshape(operands[call.args[0]], list(static_shape(call)))


RULES: dict[str, Callable[[relax.Call, _Operands], relax.Expr | None]] = {
    "relax.nn.conv2d": _conv2d,
    "relax.nn.conv2d_transpose": _conv2d_transpose,
    "relax.nn.max_pool2d": _pool2d,
    "relax.nn.avg_pool2d": _pool2d,
    "relax.quantize": _quantize,
    "relax.dequantize": _quantize,
    RANGE_QUANTIZE: _range_quantize,
    "relax.concat": _concat,
    "relax.nn.pad": _pad,
    "relax.strided_slice": _strided_slice,
    "relax.take": _take,
    "relax.mean": _mean,
    "relax.nn.group_norm": _group_norm,
    "relax.reshape": _reshape,
    **dict.fromkeys(
        (
            f"relax.{name}"
            for name in (
                "add subtract multiply divide maximum minimum power negative abs sqrt rsqrt exp log sin cos tanh erf "
                "sigmoid floor ceil round nn.relu nn.silu nn.gelu nn.gelu_tanh nn.leakyrelu clip astype"
            ).split()
        ),
        _same_call,
    ),
}


_NHWC_KERNELS = frozenset({("NHWC", "HWIO"), ("NHWC", "HWOI")})


def with_ohwi_kernels(composite: relax.Function) -> relax.Function | None:
    """Return a composite over NHWC images with its convolution's constant kernel (HWIO, HWOI) as OHWI, or None."""
    sequence, moved = bindings(composite), False
    quantized = {b.var: b.value for b in sequence if op_name(b.value) == "relax.dequantize"}
    rebuilt: list[relax.VarBinding] = []
    renamed: dict[relax.Var, relax.Var] = {}
    for binding in sequence:
        call = binding.value
        if (
            op_name(call) != "relax.nn.conv2d"
            or (call.attrs.data_layout, call.attrs.kernel_layout) not in _NHWC_KERNELS
        ):
            rebuilt.append(binding)
            continue
        axes = tuple(str(call.attrs.kernel_layout).index(axis) for axis in "OHWI")
        weight = _moved(quantized.get(call.args[1], call.args[1]), axes)
        if weight is None:
            return None
        if isinstance(weight, relax.Call):
            renamed[call.args[1]] = relax.Var(call.args[1].name, weight.ty)
            rebuilt = [b for b in rebuilt if b.var is not call.args[1]]
            rebuilt.append(relax.VarBinding(renamed[call.args[1]], weight))
            weight = renamed[call.args[1]]
        attrs = call.attrs
        value = relax.op.nn.conv2d(
            call.args[0], weight, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
            groups=attrs.groups, data_layout="NHWC", kernel_layout="OHWI", out_layout="NHWC", out_dtype=attrs.out_dtype,
        )  # fmt: skip
        rebuilt.append(relax.VarBinding(binding.var, infer(with_span(value, call.span))))
        moved = True
    if not moved:
        return None
    return build(composite.params, rebuilt, outputs(composite), attrs=composite.attrs, as_tuple=False)


def _moved(weight: relax.Expr, axes: tuple[int, ...]) -> relax.Expr | None:
    """Return a constant, or a dequantized constant, with its axes in another order, or None if `weight` is neither."""
    array = array_of(weight)
    if array is not None:
        return relax.const(np.ascontiguousarray(array.transpose(axes)))
    if op_name(weight) != "relax.dequantize" or array_of(weight.args[0]) is None:
        return None
    data = relax.const(np.ascontiguousarray(array_of(weight.args[0]).transpose(axes)))
    axis = axes.index(int(weight.attrs.axis) % len(axes))
    return infer(relax.op.dequantize(data, weight.args[1], weight.args[2], axis=axis, out_dtype=weight.attrs.out_dtype))
