"""Fold zero padding into the convolutions that read it, so that no padded tensor is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    live,
    map_dataflow,
    op_name,
    outputs,
    rebuild,
    static_shape,
    substitute,
)
from relay_passes.patterns import Dataflow

_CONVOLUTIONS = ("relax.nn.conv1d", "relax.nn.conv2d", "relax.nn.conv3d")


@tvm.transform.module_pass(opt_level=0, name="FoldPads")
class FoldPads:
    """Let convolutions add the zeros around an image themselves.

    Rewrite:
        p = pad(x, [0, 0, 0, 0, 0, 1, 0, 1])   ->   y = conv2d(x, w, padding=[0, 0, 1, 1])
        y = conv2d(p, w)
        The same holds with a quantize and a dequantize of the scale of x between them, and for integers that are padded
        with their zero point.
    Leaves alone: values other than zero, negative widths, padding of axes other than rows and columns, padding as wide
    as the window of the kernel, and padded tensors with readers other than convolutions.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _fold)


def _fold(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    changed: dict[relax.Var, relax.Expr] = {}
    unpadded: dict[relax.Var, relax.Expr] = {}
    for binding in flow.sequence:
        carried = _carried(binding, flow) if op_name(binding.value) == "relax.nn.pad" else None
        if carried is None or {binding.var, carried.data} & flow.returned:
            continue
        following = flow.readers[carried.data]
        made = [_with_padding(reader.value, carried.data, binding.value) for reader in following]
        calls = {reader.var: call for reader, call in zip(following, made, strict=True) if call is not None}
        if len(calls) == len(made):
            changed |= calls
            unpadded[carried.replaced] = binding.value.args[0]
    rewritten = [relax.VarBinding(b.var, substitute(changed.get(b.var, b.value), unpadded)) for b in flow.sequence]
    return rebuild(func, live(rewritten, outputs(func)))


@dataclass(frozen=True, kw_only=True)
class _Carried:
    """A padded tensor whose readers may pad instead of the pad.

    data: the tensor that these readers read.
    replaced: the tensor that the input of the pad takes the place of.
    """

    data: relax.Var
    replaced: relax.Var


def _carried(pad: relax.VarBinding, flow: Dataflow) -> _Carried | None:
    """Return the padded tensor, or None where the pad adds anything but zeros or has no reader.

    Integers that a dequantize reads are zero where they equal its zero point. Real numbers may pass a quantize and a
    dequantize, provided that these have the scale and zero point that the numbers were already rounded with.
    """
    following = flow.readers.get(pad.var, [])
    if str(pad.value.attrs.pad_mode) != "constant" or not following:
        return None
    value, calls = float(pad.value.attrs.pad_value), [reader.value for reader in following]
    if op_name(calls[0]) == "relax.dequantize" and len(calls) == 1:
        zero = array_of(calls[0].args[2])
        is_zero = zero is not None and (zero == value).all()
        is_read = following[0].var in flow.readers
        return _Carried(data=following[0].var, replaced=pad.var) if is_zero and is_read else None
    if value != 0:
        return None
    if op_name(calls[0]) == "relax.quantize" and len(calls) == 1:
        behind, source = flow.readers.get(following[0].var, []), flow.values.get(pad.value.args[0])
        data = behind[0].var if len(behind) == 1 else None
        grids = [source, calls[0], *(reader.value for reader in behind)]
        names = ["relax.dequantize", "relax.quantize", "relax.dequantize"]
        is_one = [op_name(call) for call in grids] == names and _one_grid(grids)
        return _Carried(data=data, replaced=data) if is_one and data in flow.readers else None
    return _Carried(data=pad.var, replaced=pad.var)


def _one_grid(calls: list[relax.Call]) -> bool:
    """Return True where all calls quantize with the same scale and zero point."""
    grids = [[array_of(arg) for arg in call.args[1:3]] for call in calls]
    return all(
        array is not None and first is not None and np.array_equal(array, first)
        for grid in grids
        for array, first in zip(grid, grids[0], strict=True)
    )


def _with_padding(call: relax.Call, data: relax.Var, pad: relax.Call) -> relax.Call | None:
    """Return a convolution of `data` with the padding of `pad`, or None where a convolution cannot pad like that."""
    if op_name(call) not in _CONVOLUTIONS or call.args[1] == data:
        return None
    attrs, widths = call.attrs, np.reshape([int(width) for width in pad.attrs.pad_width], (-1, 2))
    axes = [str(attrs.data_layout).index(axis) for axis in "DHW" if axis in str(attrs.data_layout)]
    others = np.delete(widths, axes, axis=0)
    window = [int(static_shape(call.args[1])[str(attrs.kernel_layout).index(axis)]) for axis in "DHW"[-len(axes) :]]
    spanned = (np.array(window) - 1) * np.array([int(step) for step in attrs.dilation]) + 1
    padding = np.reshape([int(width) for width in attrs.padding], (2, -1)) + widths[axes].T
    if others.any() or widths.min() < 0 or (padding >= spanned).any():
        return None
    build = getattr(relax.op.nn, op_name(call).removeprefix("relax.nn."))
    made = build(
        data, call.args[1], strides=attrs.strides, padding=padding.ravel().tolist(), dilation=attrs.dilation,
        groups=attrs.groups, data_layout=attrs.data_layout, kernel_layout=attrs.kernel_layout,
        out_layout=attrs.out_layout, out_dtype=attrs.out_dtype or None,
    )  # fmt: skip
    return relax.Call(made.op, made.args, made.attrs, made.ty_args, call.span, call.ty)
