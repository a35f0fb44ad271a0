"""Convolutions over NHWC images get their kernels as [K, R, S, C], which is how they are read here."""

from __future__ import annotations

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, bindings, build, infer, op_name, outputs, with_span

_NHWC_KERNELS = frozenset({("NHWC", "HWIO"), ("NHWC", "HWOI")})


def with_ohwi_kernels(composite: relax.Function) -> relax.Function | None:
    """A composite over NHWC images with its convolution's constant kernel (HWIO, HWOI) as OHWI; None if it has none."""
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
    """A constant, or a dequantized one, with its axes in another order; None if `weight` is neither."""
    array = array_of(weight)
    if array is not None:
        return relax.const(np.ascontiguousarray(array.transpose(axes)))
    if op_name(weight) != "relax.dequantize" or array_of(weight.args[0]) is None:
        return None
    data = relax.const(np.ascontiguousarray(array_of(weight.args[0]).transpose(axes)))
    axis = axes.index(int(weight.attrs.axis) % len(axes))
    return infer(relax.op.dequantize(data, weight.args[1], weight.args[2], axis=axis, out_dtype=weight.attrs.out_dtype))
