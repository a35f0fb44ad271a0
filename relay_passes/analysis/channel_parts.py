"""A dense layer for some of its output channels: the same composite with those columns of its constants."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, bindings, build, constant, infer, op_name, outputs, static_shape, with_span
from tvm_ext.core.columns import ColumnOperator, Columns

_MATMUL = "relax.matmul"
_SCALED = frozenset({"relax.quantize", "relax.dequantize"})


def channels_of(composite: relax.Function, elementwise: AbstractSet[str]) -> ColumnOperator | None:
    """Output channels of one vector times constant weights; None for everything else.

    elementwise: names of operators that may follow. Any channel reads all that comes in.
    """
    names = [op_name(binding.value) or "" for binding in bindings(composite)]
    if names.count(_MATMUL) != 1 or set(names) - {_MATMUL} - _SCALED - elementwise:
        return None
    shape = static_shape(outputs(composite)[0])  # of none of these operators there are several
    if len(shape) != 2 or shape[0] != 1 or computing_channels(composite, (0, shape[1])) is None:
        return None
    return ColumnOperator(num_columns=shape[1], readers=(None,) * len(composite.params))


def computing_channels(composite: relax.Function, made: Columns) -> relax.Function | None:
    """The composite for some channels; None where its weights, or what follows them, are no constants."""
    (result,) = outputs(composite)
    channels = static_shape(result)[-1]
    new = {param: relax.Var(param.name, param.ty, param.span) for param in composite.params}
    cut = set[relax.Var]()
    """Values of which only the wanted channels are there."""
    sequence: list[relax.VarBinding] = []
    for binding in bindings(composite):
        call, name = binding.value, op_name(binding.value)
        has_channels = _has_channels(call, name, cut)
        if has_channels is None:
            return None
        shared = _shared_operands(call, name)
        args = [
            _some(arg, channels, made) if has_channels and position not in shared else arg
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
    """True where a result has the layer's output channels; None where they cannot be told apart."""
    variables = [arg for arg in call.args if isinstance(arg, relax.Var)]
    if name == _MATMUL:
        weight = call.args[1]
        known = weight in cut if isinstance(weight, relax.Var) else array_of(weight) is not None
        return True if known and call.args[0] not in cut else None
    if not variables:  # a quantized constant: weights or bias
        return True
    inside = [var in cut for var in variables]
    return all(inside) if all(inside) or not any(inside) else None


def _shared_operands(call: relax.Call, name: str | None) -> range:
    """Operands that are the same for all channels: the vector; scales and zero points along another axis."""
    if name == _MATMUL:
        return range(1)
    if name in _SCALED and int(call.attrs.axis) not in (-1, len(static_shape(call.args[0])) - 1):
        return range(1, 3)
    return range(0)


def _some(arg: relax.Expr, channels: int, made: Columns) -> relax.Expr:
    """A constant's part for some channels; itself where all channels share it."""
    array = array_of(arg)
    if array is None or not array.ndim or array.shape[-1] != channels:
        return arg
    return constant(np.ascontiguousarray(array[..., made[0] : made[1]]))
