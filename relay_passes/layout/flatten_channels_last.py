"""Feed flattened images to dense layers with channels last, by permuting the weights instead of the image.

Rewrite:
    c = permute_dims(x, [0, 3, 1, 2]); z = reshape(c, [N, C * H * W]); y = dense(z)
      ->  z = reshape(x, [N, H * W * C]); y = dense'(z), the rows of its constant weights in the order of z
    No element is copied, and where memory is short the layer adds up the rows of x as they arrive.
Leaves alone: a permuted or flattened image that operators other than dense layers also read; layers whose weights
are not constant, or have a scale for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tvm
from tvm import relax

from relay_passes.composites import call_new, composite_of
from relay_passes.dataflow import (
    array_of,
    bindings,
    build,
    constant,
    infer,
    is_dataflow,
    op_name,
    outputs,
    static_shape,
    with_main,
    with_values,
)
from relay_passes.layout.channels_last import NHWC_TO_NCHW
from relay_passes.patterns import Dataflow, any_value, either, op
from tvm_ext.core.names import RANGE_QUANTIZE


@tvm.transform.module_pass(opt_level=0, name="FlattenChannelsLast")
class FlattenChannelsLast:
    """Let dense layers read flattened images with channels last, with the rows of their weights in the same order."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        if not is_dataflow(main):
            return mod
        flow, module = Dataflow(main), mod.clone()
        reshaped: dict[relax.Var, relax.Expr] = {}
        for binding in flow.sequence:
            image = _flattened_image(mod, binding, flow)
            if image is None or binding.var in flow.returned:
                continue
            layers = {
                reader.value.op: _with_rows_moved(mod, reader, binding.var, static_shape(image))
                for reader in flow.readers.get(binding.var, [])
                if isinstance(reader.value, relax.Call)
            }
            if len(layers) < len(flow.readers.get(binding.var, [])) or None in layers.values() or not layers:
                continue
            for var, layer in layers.items():
                module.update_func(var, layer)
            reshaped[binding.var] = _reshaped(module, binding, image)
        return with_main(module, with_values(main, reshaped)) if reshaped else mod


def _flattened_image(mod: tvm.IRModule, binding: relax.VarBinding, flow: Dataflow) -> relax.Var | None:
    """Return the image [N, H, W, C] that a binding flattens to [N, C * H * W], channel after channel, or None."""
    if not _is_one(mod, binding.value, "relax.reshape"):
        return None
    permuted = flow.made.get(binding.value.args[0])
    if permuted is None or not _is_one(mod, permuted.value, "relax.permute_dims"):
        return None
    (inner,) = bindings(composite_of(mod, permuted.value))
    image = permuted.value.args[0]
    batch, *extents = static_shape(image)
    axes = inner.value.attrs.axes
    flat = (batch, int(np.prod(extents)))
    is_channels_first = axes is not None and tuple(int(axis) for axis in axes) == NHWC_TO_NCHW
    return image if is_channels_first and static_shape(binding.var) == flat else None


def _is_one(mod: tvm.IRModule, value: relax.Expr, name: str) -> bool:
    """Return True where an expression calls a composite of this single operator on a variable."""
    composite = composite_of(mod, value)
    if composite is None or len(value.args) != 1 or not isinstance(value.args[0], relax.Var):
        return False
    inner = bindings(composite)
    return len(inner) == 1 and op_name(inner[0].value) == name


def _with_rows_moved(
    mod: tvm.IRModule, reader: relax.VarBinding, data: relax.Var, image: Sequence[int]
) -> relax.Function | None:
    """Return the dense layer that reads `data` for elements in the order of the image, or None for other layers."""
    composite = composite_of(mod, reader.value)
    if composite is None or sum(arg == data for arg in reader.value.args) != 1:
        return None
    param = composite.params[list(reader.value.args).index(data)]
    flow = Dataflow(composite)
    products = [b for b in flow.sequence if op_name(b.value) == "relax.matmul"]
    if len(products) != 1 or len(flow.readers[param]) != 1:
        return None
    source, weight = any_value(param.same_as), any_value()
    real = op(("relax.dequantize", RANGE_QUANTIZE), source, read_once=True)
    match = flow.match(op("relax.matmul", either(source, real), weight), products[0].var)
    if match is None:
        return None
    right = match[weight]
    moved = _moved(right, products[0], image) if right not in flow.made else _moved_quantized(flow.made[right], image)
    if moved is None:
        return None
    sequence = [moved if b.var == moved.var else b for b in flow.sequence]
    return build(composite.params, sequence, outputs(composite), attrs=composite.attrs)


def _moved(weight: relax.Expr, product: relax.VarBinding, image: Sequence[int]) -> relax.VarBinding | None:
    """Return the product with the rows of its weights permuted."""
    array = array_of(weight)
    if array is None or array.ndim != 2:
        return None
    call = product.value
    return relax.VarBinding(
        product.var,
        infer(relax.Call(call.op, [call.args[0], _rows_moved(array, image)], call.attrs, [], call.span)),
    )


def _moved_quantized(dequantize: relax.VarBinding, image: Sequence[int]) -> relax.VarBinding | None:
    """Return the dequantize of permuted weights, or None where a scale belongs to a row."""
    call = dequantize.value
    array = array_of(call.args[0]) if op_name(call) == "relax.dequantize" else None
    if array is None or array.ndim != 2:
        return None
    scale = array_of(call.args[1])
    if scale is None or (scale.size > 1 and int(call.attrs.axis) % 2 != 1):
        return None
    arguments = [_rows_moved(array, image), *call.args[1:]]
    return relax.VarBinding(dequantize.var, infer(relax.Call(call.op, arguments, call.attrs, [], call.span)))


def _rows_moved(weight: np.ndarray, image: Sequence[int]) -> relax.Expr:
    """Permute weights [C * H * W, K] to [H * W * C, K]."""
    _, height, width, channels = image
    planes = weight.reshape(channels, height, width, -1)
    return constant(np.ascontiguousarray(planes.transpose(1, 2, 0, 3).reshape(weight.shape)))


def _reshaped(module: tvm.IRModule, binding: relax.VarBinding, image: relax.Var) -> relax.Call:
    """Return a call of the composite that flattens, for the image with its channels last."""
    callee = binding.value.op
    composite, param = module[callee], relax.Var(image.name, image.ty)
    (inner,) = bindings(composite)
    value = infer(relax.op.reshape(param, list(static_shape(inner.var))))
    function = build([param], [relax.VarBinding(inner.var, value)], [inner.var], attrs=composite.attrs)
    del module[callee]
    return call_new(module, callee.name_hint, function, [image], binding.value.span)
