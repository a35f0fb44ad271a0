"""Turn transposed convolutions into forms that more kernels compute: convolutions, and one for each group."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    map_dataflow,
    op_name,
    rebuild,
    static_shape,
    with_span,
)
from relay_passes.patterns import Dataflow

_FORMS = {
    "relax.nn.conv1d_transpose": (relax.op.nn.conv1d_transpose, relax.op.nn.conv1d, "NCW", "IOW", "OIW"),
    "relax.nn.conv2d_transpose": (relax.op.nn.conv2d_transpose, relax.op.nn.conv2d, "NCHW", "IOHW", "OIHW"),
}
"""Operators, and layouts of data and of both kernels, by the name of a transposed convolution."""
_MOST_GROUPS = 4
"""Groups up to which a layer for each group costs less than generic loops over all of them."""


@tvm.transform.module_pass(opt_level=0, name="TurnTransposed")
class TurnTransposed:
    """Turn a transposed convolution with strides of 1 into a convolution, and groups of another into layers.

    Rewrite:
        conv2d_transpose(x, w[I, O, h, w], strides 1, padding p)
            -> conv2d(x, w[O, I, h, w] with taps in reverse order, padding dilation * (taps - 1) - p)
        conv2d_transpose(x, w, strides 2, groups 2)
            -> concat(conv2d_transpose(x[:, :I / 2], w[:I / 2]), conv2d_transpose(x[:, I / 2:], w[I / 2:]))
        The groups take the bias and the activation after the layer with them.
    Leaves alone: padding above dilation * (taps - 1); kernels that are no constant, nor a dequantized constant of a
        single group; other layouts; and more than 4 groups with strides above 1.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _turned)


def _turned(func: relax.Function) -> relax.Function:
    values = {binding.var: binding.value for binding in bindings(func)}
    flow, replaced = Dataflow(func), set[relax.Var]()
    sequence: list[relax.VarBinding] = []

    def bound(name: str, value: relax.Expr) -> relax.Var:
        made = infer(value)
        var = relax.DataflowVar(name, made.ty)
        sequence.append(relax.VarBinding(var, made))
        return var

    for binding in bindings(func):
        if binding.var in replaced:
            continue
        call, value, var = binding.value, None, binding.var
        if _is_known(call):
            kernel = array_of(call.args[1])
            if (padding := _padding(call)) is not None:
                weight = _kernel(call, values)
                if isinstance(weight, relax.Call):
                    weight = bound(f"{binding.var.name}.kernel", weight)
                value = None if weight is None else _convolution(call, weight, padding)
            elif kernel is not None and 1 < int(call.attrs.groups) <= _MOST_GROUPS:
                parts, after = [], _after(flow, binding)
                for index, channels in enumerate(_channels(call)):
                    # Verification compares layers by their names, so no two of them may share one.
                    own = bound(f"{binding.var.name}.channels_{index}", _slice(call.args[0], channels))
                    part = bound(f"{binding.var.name}.group_{index}", _group(call, own, kernel[channels]))
                    for follower in after:
                        name = f"{follower.var.name}.group_{index}"
                        part = bound(name, _of_group(follower.value, part, index, int(call.attrs.groups)))
                    parts.append(part)
                value, var = relax.op.concat(parts, axis=1), (after[-1] if after else binding).var
                replaced |= {follower.var for follower in after}
        sequence.append(binding if value is None else relax.VarBinding(var, with_span(infer(value), call.span)))
    return rebuild(func, sequence)


def _is_known(call: relax.Expr) -> bool:
    if op_name(call) not in _FORMS:
        return False
    _, _, data, kernel, _ = _FORMS[op_name(call) or ""]
    return (call.attrs.data_layout, call.attrs.kernel_layout, call.attrs.out_layout or data) == (data, kernel, data)


def _padding(call: relax.Call) -> list[int] | None:
    """Return the padding of the convolution that computes the same; None if strides are above 1 or there is none."""
    attrs = call.attrs
    if any(int(stride) != 1 for stride in attrs.strides) or any(int(width) for width in attrs.output_padding):
        return None
    taps = static_shape(call.args[1])[2:]
    reach = [int(dilation) * (extent - 1) for dilation, extent in zip(attrs.dilation, taps, strict=True)]
    padding = [most - int(width) for most, width in zip((*reach, *reach), attrs.padding, strict=True)]
    return padding if min(padding) >= 0 else None


def _kernel(call: relax.Call, values: Mapping[relax.Var, relax.Expr]) -> relax.Expr | None:
    """Return the kernel of the convolution; None if it is no constant, nor a dequantized one of one group."""
    groups = int(call.attrs.groups)
    array = array_of(call.args[1])
    if array is not None:
        return constant(_turned_kernel(array, groups))
    scaled = values.get(call.args[1])
    integers = array_of(scaled.args[0]) if op_name(scaled) == "relax.dequantize" else None
    if integers is None or groups > 1:
        return None
    axis = {0: 1, 1: 0}.get(int(scaled.attrs.axis) % integers.ndim, int(scaled.attrs.axis))
    turned = constant(_turned_kernel(integers, groups))
    return with_span(
        infer(relax.op.dequantize(turned, *scaled.args[1:], axis=axis, out_dtype=scaled.attrs.out_dtype)), scaled.span
    )


def _turned_kernel(array: np.ndarray, groups: int) -> np.ndarray:
    """Return a kernel [I, O / groups, ...] as [O, I / groups, ...] with its taps in reverse order."""
    inputs, outputs, *taps = array.shape
    grouped = array.reshape(groups, inputs // groups, outputs, *taps).swapaxes(1, 2)
    turned = grouped.reshape(groups * outputs, inputs // groups, *taps)
    return np.ascontiguousarray(np.flip(turned, tuple(range(2, turned.ndim))))


def _convolution(call: relax.Call, weight: relax.Expr, padding: list[int]) -> relax.Call:
    _, make, data, _, kernel = _FORMS[op_name(call) or ""]
    attrs = call.attrs
    return make(
        call.args[0], weight, strides=[1] * (len(padding) // 2), padding=padding, dilation=attrs.dilation,
        groups=int(attrs.groups), data_layout=data, kernel_layout=kernel, out_layout=data,
        out_dtype=attrs.out_dtype or None,
    )  # fmt: skip


def _channels(call: relax.Call) -> list[slice]:
    """Return the input channels of each group."""
    channels = static_shape(call.args[0])[1]
    each = channels // int(call.attrs.groups)
    return [slice(begin, begin + each) for begin in range(0, channels, each)]


def _after(flow: Dataflow, layer: relax.VarBinding) -> list[relax.VarBinding]:
    """Return the addition of a bias and the activations after a layer, each the only reader of the value ahead."""
    found: list[relax.VarBinding] = []
    while (follower := flow.sole_reader((found[-1] if found else layer).var)) is not None:
        is_clamp = op_name(follower.value) in ("relax.nn.relu", "relax.clip")
        if not is_clamp and (op_name(follower.value) != "relax.add" or _bias(follower.value) is None):
            break
        found.append(follower)
    return found


def _bias(add: relax.Call) -> np.ndarray | None:
    """Return the constant of an addition as [1, C, 1 ...] if it has one number for each channel, or None."""
    shape = static_shape(add)
    arrays = [array for array in map(array_of, add.args) if array is not None]
    wanted = (1, shape[1], *[1] * (len(shape) - 2))
    if len(arrays) != 1 or (*[1] * (len(shape) - arrays[0].ndim), *arrays[0].shape) != wanted:
        return None
    return arrays[0].reshape(wanted)


def _of_group(call: relax.Call, part: relax.Var, index: int, groups: int) -> relax.Call:
    """Return the addition of the bias, or the activation, of one group."""
    if op_name(call) != "relax.add":
        return relax.Call(call.op, [part, *call.args[1:]], call.attrs, call.ty_args)
    bias = _bias(call)
    assert bias is not None, "only additions of a bias are taken"
    return relax.op.add(part, constant(np.ascontiguousarray(np.split(bias, groups, axis=1)[index])))


def _slice(value: relax.Expr, channels: slice) -> relax.Call:
    return relax.op.strided_slice(value, [1], [channels.start], [channels.stop])


def _group(call: relax.Call, value: relax.Expr, kernel: np.ndarray) -> relax.Call:
    """Return the layer of a group, on its own channels."""
    make, _, data, layout, _ = _FORMS[op_name(call) or ""]
    attrs = call.attrs
    return make(
        value, constant(np.ascontiguousarray(kernel)), strides=attrs.strides, padding=attrs.padding,
        output_padding=attrs.output_padding, dilation=attrs.dilation, groups=1, data_layout=data, kernel_layout=layout,
        out_layout=data, out_dtype=attrs.out_dtype or None,
    )  # fmt: skip
