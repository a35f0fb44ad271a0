"""Recognize layers that ONNX's DynamicQuantizeLinear quantizes at run time, and write them with range_quantize."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    constant,
    infer,
    is_dataflow,
    live,
    names_in,
    op_name,
    outputs,
    rebuild,
    static_shape,
    with_main,
    with_span,
)
from relay_passes.own_operators import range_quantize
from relay_passes.patterns import Dataflow, Match, Pattern, any_constant, any_value, op
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


class _Rewriter:
    """The search for layers, and the bindings that replace each.

    source, scale, weight, weight_scale, product: patterns of the parts of `layer`.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        def part(name: str, *operands: Pattern) -> Pattern:
            """Match the PrimFunc of a part of DynamicQuantizeLinear."""

            def is_part(call: relax.Call) -> bool:
                return RangePart.read(mod[call.args[0]]).part == name

            return op("relax.call_tir", any_value(), *operands, where=is_part)

        self.mod, self.flow, self.taken = mod, Dataflow(mod["main"]), names_in(mod["main"])
        self.source, self.weight = any_value(), any_constant(lambda weight: weight.dtype == np.int32)
        self.weight_scale = any_constant(lambda scale: scale.dtype == np.float32)
        low = part("low", self.source)
        self.scale = part("scale", part("high", self.source), low)
        zero_point = part("zero_point", low, self.scale)
        integers = op("relax.astype", op("relax.quantize", self.source, self.scale, zero_point))
        steps = op("relax.subtract", integers, op("relax.astype", zero_point))
        self.product = op(_CHANNEL_AXES, steps, self.weight, read_once=True)
        factor = op("relax.multiply", self.scale, self.weight_scale, any_order=True)
        sums = op("relax.astype", self.product, read_once=True)
        self.layer = op("relax.multiply", sums, factor, any_order=True)

    def run(self) -> tvm.IRModule:
        rewritten: list[relax.VarBinding] = []
        for binding in self.flow.sequence:
            match = self.flow.match(self.layer, binding.var)
            made = self._made(binding, match) if match is not None else None
            rewritten += made or [binding]
        func, results = self.flow.func, outputs(self.flow.func)
        return with_main(self.mod, rebuild(func, live(rewritten, results), results))

    def _weight_scale(self, layer: Match) -> np.ndarray | None:
        """Return the scales of the weights, float32[] or float32[K], or None for any other shape."""
        scale, product = layer.array(self.weight_scale), layer.call(self.product)
        if scale.size == 1:
            return scale.reshape(())
        channels, axis = static_shape(product.args[1])[_CHANNEL_AXES[product.op.name]], 1 - product.ty.ndim
        along = scale.shape[axis] if op_name(product) == "relax.nn.conv2d" and scale.ndim >= -axis else scale.shape[-1]
        return scale.reshape(-1) if scale.size == along == channels else None

    def _made(self, binding: relax.VarBinding, match: Match) -> list[relax.VarBinding] | None:
        """Return the bindings that replace the multiplication at the end of a layer, or None for unsuitable weights."""
        product, scale = match.call(self.product), self._weight_scale(match)
        weight = _bytes(product, match.array(self.weight))
        if scale is None or weight is None:
            return None
        span, axis, source = product.span, _CHANNEL_AXES[product.op.name], match[self.source]
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


def _bytes(product: relax.Call, weight: np.ndarray) -> np.ndarray | None:
    """Return weights int32 as int8, or None where int8 does not hold them and for layouts other than NCHW."""
    if weight.size == 0 or np.abs(weight.astype(np.int64)).max() > 128:
        return None
    if op_name(product) == "relax.matmul":
        is_layer = weight.ndim == 2
    else:
        is_layer = product.attrs.data_layout == "NCHW" and product.attrs.kernel_layout == "OIHW"
    return weight.astype(np.int8) if is_layer and weight.max() < 128 else None
