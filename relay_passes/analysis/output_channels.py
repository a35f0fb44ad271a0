"""Compute dense and convolution layers for some of their output channels.

A layer is a composite with one product of an activation and constant weights, and element-wise operators before and
after it. Its channels are the last axis of its result. The weights of a convolution, OHWI, have them as their first
axis, and those of a dense layer as their last. Each element of a result is computed as in the whole layer.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    build,
    constant,
    infer,
    op_name,
    outputs,
    static_shape,
    with_span,
)
from tvm_ext.core.row_access import ColumnOperator, Columns

SCALED = frozenset({"relax.quantize", "relax.dequantize"})
_MATMUL, _CONV = "relax.matmul", "relax.nn.conv2d"
_PRODUCTS = (_MATMUL, _CONV)


def channels_of(composite: relax.Function, elementwise: AbstractSet[str]) -> ColumnOperator | None:
    """Return the output channels of a vector times constant weights, or None for everything else.

    elementwise: names of the operators that may follow. Every channel reads the whole input.
    """
    if not _has_one_product(composite, elementwise, (_MATMUL,)):
        return None
    shape = static_shape(outputs(composite)[0])  # each of these operators has a single result
    if len(shape) != 2 or shape[0] != 1 or computing_channels(composite, (0, shape[1])) is None:
        return None
    return ColumnOperator(num_columns=shape[1], readers=(None,) * len(composite.params))


def layer_channels(composite: relax.Function, elementwise: AbstractSet[str]) -> int:
    """Return the number of output channels of a layer that can compute some of them alone, or 0 for everything else.

    elementwise: names of the operators that may follow.
    """
    if len(composite.params) != 1 or not _has_one_product(composite, elementwise, _PRODUCTS):
        return 0
    channels = static_shape(outputs(composite)[0])[-1]
    return channels if channels > 1 and computing_channels(composite, (0, 1)) is not None else 0


def _has_one_product(composite: relax.Function, elementwise: AbstractSet[str], products: tuple[str, ...]) -> bool:
    """Return True for one of some products, with element-wise operators besides."""
    names = [op_name(binding.value) or "" for binding in bindings(composite)]
    found = [name for name in names if name in products]
    return len(found) == 1 and not {*names} - {*found} - SCALED - elementwise


def computing_channels(composite: relax.Function, made: Columns) -> relax.Function | None:
    """Return the composite for some channels, or None where its weights or later operands are not constant."""
    (result,) = outputs(composite)
    channels = static_shape(result)[-1]
    new = {param: relax.Var(param.name, param.ty, param.span) for param in composite.params}
    cut = set[relax.Var]()
    """Values that have only the wanted channels."""
    sequence: list[relax.VarBinding] = []
    filters = {binding.value.args[1] for binding in bindings(composite) if op_name(binding.value) == _CONV}
    for binding in bindings(composite):
        call, name = binding.value, op_name(binding.value)
        has_channels = _has_channels(call, name, cut)
        if has_channels is None:
            return None
        axis = 0 if binding.var in filters else -1
        shared = _shared_operands(call, name, axis)
        args = [
            _some(arg, channels, made, 0 if axis == 0 or arg in filters else -1)
            if has_channels and position not in shared
            else arg
            for position, arg in enumerate(call.args)
        ]
        args = [new.get(arg, arg) if isinstance(arg, relax.Var) else arg for arg in args]
        value = with_span(infer(relax.Call(call.op, args, call.attrs, call.ty_args, call.span)), call.span)
        new[binding.var] = var = relax.Var(binding.var.name, value.ty, binding.var.span)
        sequence.append(relax.VarBinding(var, value))
        if has_channels:
            cut.add(binding.var)
    if result not in cut or static_shape(new[result])[-1] != made[1] - made[0]:
        return None
    return build([new[param] for param in composite.params], sequence, [new[result]], attrs=composite.attrs)


def _has_channels(call: relax.Call, name: str | None, cut: AbstractSet[relax.Var]) -> bool | None:
    """Return True where a result has the layer's output channels, or None where they cannot be separated."""
    variables = [arg for arg in call.args if isinstance(arg, relax.Var)]
    if name in _PRODUCTS:
        weight = call.args[1]
        known = weight in cut if isinstance(weight, relax.Var) else array_of(weight) is not None
        known &= name == _MATMUL or _separates_channels(call)
        return True if known and call.args[0] not in cut else None
    if not variables:  # a quantized constant, which is weights or bias
        return True
    inside = [var in cut for var in variables]
    return all(inside) if all(inside) or not any(inside) else None


def _separates_channels(conv: relax.Call) -> bool:
    """Return True for a convolution, channels last, whose output channels each read all input channels."""
    attrs = conv.attrs
    return int(attrs.groups) == 1 and attrs.kernel_layout == "OHWI" and (attrs.out_layout or "NHWC") == "NHWC"


def _shared_operands(call: relax.Call, name: str | None, axis: int) -> range:
    """Return the positions of operands that all channels share: the input, or parameters along another axis.

    axis: that of the channels in the result.
    """
    if name in _PRODUCTS:
        return range(1)
    dims = len(static_shape(call.args[0]))
    if name in SCALED and (int(call.attrs.axis) - axis) % max(dims, 1):
        return range(1, 3)
    return range(0)


def _some(arg: relax.Expr, channels: int, made: Columns, axis: int) -> relax.Expr:
    """Return a constant's part for some channels, or the constant itself where all channels share it."""
    array = array_of(arg)
    if array is None or not array.ndim or array.shape[axis] != channels:
        return arg
    part = array[made[0] : made[1]] if axis == 0 else array[..., made[0] : made[1]]
    return constant(np.ascontiguousarray(part))
