"""Recognize layers that ONNX's DynamicQuantizeLinear quantizes at run time, and write them with range_quantize."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    is_dataflow,
    live,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    users,
    with_span,
)
from relay_passes.own_operators import range_quantize
from tvm_ext.core.decisions.composites import RangePart
from tvm_ext.core.names import unique

_CHANNEL_AXES = {"relax.nn.conv2d": 0, "relax.matmul": 1}
"""Axis of the weights that holds the output channels, by operator."""


@tvm.transform.module_pass(opt_level=0, name="RecognizeDynamicLayers")
class RecognizeDynamicLayers:
    """Turn integer products that are quantized at run time into real products of quantized operands.

    Rewrite, where s and z are scale and zero point of DynamicQuantizeLinear of x, and w an int32 constant of 8 bits:
        q = quantize(x, s, z)                           r = range_quantize(x)
        c = conv2d(astype(q) - astype(z), w)     ->     v = dequantize(w as int8, t)
        y = astype(c) * (s * t)                         y = conv2d(r, v)
        and the same with matmul, where w is a matrix; t is one scale, or one for each output channel
    Leaves alone: other scales and zero points, weights further from their zero point than int8 represents, convolutions
    in other layouts, and accumulators with another reader.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        return _Rewriter(mod).run() if is_dataflow(main) else mod


@dataclass(frozen=True, kw_only=True)
class _Steps:
    """A tensor that is quantized at run time, less its zero point: the real tensor and the variable of its scale."""

    source: relax.Expr
    scale: relax.Var


class _Rewriter:
    def __init__(self, mod: tvm.IRModule) -> None:
        self.mod, self.func = mod, mod["main"]
        self.sequence = bindings(self.func)
        self.values: Mapping[relax.Var, relax.Expr] = {binding.var: binding.value for binding in self.sequence}
        self.readers = users(self.sequence)
        self.returned = {leaf for result in outputs(self.func) for leaf in operands(result)}
        self.taken = {b.var.name for b in self.sequence} | {param.name for param in self.func.params}

    def run(self) -> tvm.IRModule:
        rewritten: list[relax.VarBinding] = []
        for binding in self.sequence:
            rewritten += self._layer(binding) or [binding]
        module = self.mod.clone()
        results = outputs(self.func)
        module.update_func(module.get_global_var("main"), rebuild(self.func, live(rewritten, results), results))
        return module

    def _layer(self, binding: relax.VarBinding) -> list[relax.VarBinding] | None:
        """Return the bindings that replace the multiplication at the end of a layer, or None for everything else."""
        if op_name(binding.value) != "relax.multiply":
            return None
        for real, factor in (binding.value.args, reversed(binding.value.args)):
            sums = self._inner(real, "relax.astype")
            product = self.values.get(sums) if sums is not None else None
            if product is None or op_name(product) not in _CHANNEL_AXES or not self._is_read_once(sums):
                continue
            steps = self._steps(product.args[0])
            scale = self._weight_scale(factor, steps.scale, product) if steps else None
            if steps and scale is not None and (weight := _bytes(product)) is not None:
                return self._made(binding, product, steps.source, weight, scale)
        return None

    def _inner(self, expr: relax.Expr, name: str) -> relax.Var | None:
        """Return the operand of the operator `name` that computes `expr`, or None where `expr` has other readers."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else None
        if op_name(value) != name or not isinstance(value.args[0], relax.Var) or not self._is_read_once(expr):
            return None
        return value.args[0]

    def _is_read_once(self, var: relax.Var) -> bool:
        return len(self.readers.get(var, [])) == 1 and var not in self.returned

    def _steps(self, expr: relax.Expr) -> _Steps | None:
        """Return the tensor that is quantized at run time, where `expr` is its integers less their zero point."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else None
        if op_name(value) != "relax.subtract":
            return None
        wide = [self.values.get(arg) for arg in value.args]
        if any(op_name(one) != "relax.astype" for one in wide):
            return None
        quantize = self.values.get(wide[0].args[0])
        zero_point = wide[1].args[0]
        if op_name(quantize) != "relax.quantize" or quantize.args[2] != zero_point:
            return None
        source, scale = quantize.args[:2]
        return _Steps(source=source, scale=scale) if self._has_own_range(source, scale, zero_point) else None

    def _has_own_range(self, source: relax.Expr, scale: relax.Expr, zero_point: relax.Expr) -> bool:
        """Return True for the scale and zero point of DynamicQuantizeLinear of `source`."""
        ends = self._part(scale, "scale")
        place = self._part(zero_point, "zero_point")
        if ends is None or place is None or place != [ends[1], scale]:
            return False
        return self._part(ends[0], "high") == [source] and self._part(ends[1], "low") == [source]

    def _part(self, expr: relax.Expr, part: str) -> list[relax.Expr] | None:
        """Return the operands of a part of DynamicQuantizeLinear, or None where `expr` is not that part."""
        value = self.values.get(expr) if isinstance(expr, relax.Var) else None
        if op_name(value) != "relax.call_tir" or RangePart.read(self.mod[value.args[0]]).part != part:
            return None
        return list(value.args[1].fields)

    def _weight_scale(self, factor: relax.Expr, scale: relax.Var, product: relax.Call) -> np.ndarray | None:
        """Return the scales of the weights, float32[] or float32[K], where `factor` is their product with `scale`."""
        value = self.values.get(factor) if isinstance(factor, relax.Var) else None
        if op_name(value) != "relax.multiply" or scale not in list(value.args):
            return None
        (other,) = [arg for arg in value.args if arg != scale] or [None]
        array = array_of(other) if other is not None else None
        if array is None or array.dtype != np.float32:
            return None
        if array.size == 1:
            return array.reshape(())
        channels, axis = static_shape(product.args[1])[_CHANNEL_AXES[product.op.name]], 1 - product.ty.ndim
        along = array.shape[axis] if op_name(product) == "relax.nn.conv2d" and array.ndim >= -axis else array.shape[-1]
        return array.reshape(-1) if array.size == along == channels else None

    def _made(
        self, binding: relax.VarBinding, product: relax.Call, source: relax.Expr, weight: np.ndarray, scale: np.ndarray
    ) -> list[relax.VarBinding]:
        span, axis = product.span, _CHANNEL_AXES[product.op.name]
        rounded = self._bound(f"{binding.var.name}.range", with_span(range_quantize(source, "onnx"), span))
        zero = constant(np.zeros((), np.int8))
        real = self._bound(
            f"{binding.var.name}.weight",
            with_span(infer(relax.op.dequantize(constant(weight), constant(scale), zero, axis=axis)), span),
        )
        attrs = product.attrs
        if op_name(product) == "relax.matmul":
            layer = relax.op.matmul(rounded.var, real.var)
        else:
            layer = relax.op.nn.conv2d(
                rounded.var, real.var, strides=attrs.strides, padding=attrs.padding, dilation=attrs.dilation,
                groups=attrs.groups, data_layout=attrs.data_layout, kernel_layout=attrs.kernel_layout,
                out_layout=attrs.out_layout,
            )  # fmt: skip
        return [rounded, real, relax.VarBinding(binding.var, with_span(infer(layer), span))]

    def _bound(self, name: str, value: relax.Expr) -> relax.VarBinding:
        return relax.VarBinding(relax.DataflowVar(unique(name, self.taken), value.ty), value)


def _bytes(product: relax.Call) -> np.ndarray | None:
    """Return constant weights as int8, or None for other weights and for convolution layouts other than NCHW."""
    weight = array_of(product.args[1])
    if weight is None or weight.dtype != np.int32 or weight.size == 0 or np.abs(weight.astype(np.int64)).max() > 128:
        return None
    if op_name(product) == "relax.matmul":
        is_layer = weight.ndim == 2
    else:
        is_layer = product.attrs.data_layout == "NCHW" and product.attrs.kernel_layout == "OIHW"
    return weight.astype(np.int8) if is_layer and weight.max() < 128 else None
