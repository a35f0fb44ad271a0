"""Convolutions over one axis become convolutions of images of one row, which kernels compute."""

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
    live,
    map_dataflow,
    op_name,
    operands,
    outputs,
    rebuild,
    static_shape,
    substitute,
    with_span,
)

_ROW = 2
"""Axis of the one row, in front of the axis that is convolved."""
_LAYOUTS = {"relax.nn.conv1d": "OIW", "relax.nn.conv1d_transpose": "IOW"}
"""Layout of the kernel, by operator."""
_GRIDS = ("relax.quantize", "relax.dequantize")
_FOLLOWING = frozenset(
    f"relax.{name}" for name in "add subtract multiply nn.relu clip nn.gelu nn.silu sigmoid tanh".split()
) | {*_GRIDS}


@tvm.transform.module_pass(opt_level=0, name="WidenConvolutions")
class WidenConvolutions:
    """Make of each convolution over one axis one over rows and columns, of images of one row.

    Rewrite:
        y = conv1d(x, w)      ->   y = squeeze(conv2d(expand_dims(x, 2), w of one row), 2)
        z = relu(add(y, b))        and what follows element by element, quantize and dequantize too, before the squeeze
        and transposed convolutions alike
    Leaves alone: convolutions in other layouts than NCW with OIW or, transposed, IOW, and those whose kernel is no
    constant.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _widened)


def _widened(func: relax.Function) -> relax.Function:
    if not any(op_name(binding.value) in _LAYOUTS for binding in bindings(func)):
        return func
    return _Rewriter(func).run()


class _Rewriter:
    """Walks the bindings once. images: of values of three axes, the same as images, where they were made so.

    narrow: those of them that are there with their three axes, too.
    """

    def __init__(self, func: relax.Function) -> None:
        self.func = func
        self.values: Mapping[relax.Var, relax.Expr] = {binding.var: binding.value for binding in bindings(func)}
        self.sequence: list[relax.VarBinding] = []
        self.images: dict[relax.Var, relax.Var] = {}
        self.narrow: set[relax.Var] = set()

    def run(self) -> relax.Function:
        for binding in bindings(self.func):
            if not (self._convolution(binding) or self._follows(binding)):
                self._demand(binding.value)
                self.sequence.append(binding)
        results = outputs(self.func)
        for result in results:
            self._demand(result)
        return rebuild(self.func, live(self.sequence, results))

    def _demand(self, value: relax.Expr) -> None:
        """Writes values that are read with their three axes."""
        for leaf in operands(value):
            if leaf in self.images and leaf not in self.narrow:
                self.narrow.add(leaf)
                call = infer(relax.op.squeeze(self.images[leaf], [_ROW]))
                self.sequence.append(relax.VarBinding(leaf, call))

    def _convolution(self, binding: relax.VarBinding) -> bool:
        call = binding.value
        layout = _LAYOUTS.get(op_name(call) or "")
        if layout is None or (call.attrs.data_layout, call.attrs.kernel_layout) != ("NCW", layout):
            return False
        weight = self._constant_image(call.args[1])
        if weight is None or not isinstance(call.args[0], relax.Var):
            return False
        self._bind(binding, _of_one_row(call, self._image(call.args[0]), weight))
        return True

    def _follows(self, binding: relax.VarBinding) -> bool:
        """An operator that works element by element on images instead."""
        leaves = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        if op_name(binding.value) not in _FOLLOWING or not any(leaf in self.images for leaf in leaves):
            return False
        if op_name(binding.value) in _GRIDS and not _has_one_scale(binding.value):
            return False
        shape, images = static_shape(binding.var), dict[relax.Expr, relax.Expr]()
        if len(shape) != 3:
            return False
        for leaf in operands(binding.value):
            found = self._operand(leaf, shape)
            if found is None:
                return False
            images[leaf] = found
        self._bind(binding, substitute(binding.value, images))
        return True

    def _operand(self, value: relax.Expr, shape: tuple[int, ...]) -> relax.Expr | None:
        """An operand as one of images; None where it is neither of that shape nor a constant that repeats to it."""
        array = array_of(value)
        if array is not None and array.size == 1:
            return value
        known = self._constant_image(value) if array is None or array.ndim <= len(shape) else None
        if known is not None:
            return known
        same = isinstance(value, relax.Var) and static_shape(value) == shape
        return self._image(value) if same else None

    def _image(self, var: relax.Var) -> relax.Var:
        if var not in self.images:
            call = infer(relax.op.expand_dims(var, _ROW))
            self.images[var] = self._bound(f"{var.name}.image", call)
            self.narrow.add(var)
        return self.images[var]

    def _constant_image(self, value: relax.Expr) -> relax.Expr | None:
        """A constant, or a dequantized one, as one of images; None for anything else."""
        array = array_of(value)
        if array is not None:
            return constant(_with_row(array))
        call = self.values.get(value)
        integers = array_of(call.args[0]) if op_name(call) == "relax.dequantize" else None
        if integers is None:
            return None
        num_axes = max(integers.ndim, 1)
        axis = int(call.attrs.axis) % num_axes + 3 - num_axes
        scaled = relax.op.dequantize(
            constant(_with_row(integers)), *call.args[1:], axis=axis + (axis >= _ROW), out_dtype=call.attrs.out_dtype
        )  # fmt: skip
        return self._bound(f"{value.name}.image", with_span(infer(scaled), call.span))

    def _bind(self, binding: relax.VarBinding, call: relax.Expr) -> None:
        """The image of a binding's value."""
        self.images[binding.var] = self._bound(f"{binding.var.name}.image", with_span(infer(call), binding.value.span))

    def _bound(self, name: str, call: relax.Call) -> relax.Var:
        var = relax.DataflowVar(name, call.ty)
        self.sequence.append(relax.VarBinding(var, call))
        return var


def _of_one_row(call: relax.Call, image: relax.Expr, weight: relax.Expr) -> relax.Call:
    attrs = call.attrs
    common = {
        "strides": (1, int(attrs.strides[0])), "padding": (0, int(attrs.padding[0]), 0, int(attrs.padding[-1])),
        "dilation": (1, int(attrs.dilation[0])), "groups": int(attrs.groups), "data_layout": "NCHW",
        "out_dtype": attrs.out_dtype or None,
    }  # fmt: skip
    if op_name(call) == "relax.nn.conv1d":
        return relax.op.nn.conv2d(image, weight, kernel_layout="OIHW", **common)
    added = (0, int(attrs.output_padding[0]))
    return relax.op.nn.conv2d_transpose(image, weight, output_padding=added, kernel_layout="IOHW", **common)


def _has_one_scale(call: relax.Call) -> bool:
    arrays = [array_of(argument) for argument in call.args[1:]]
    return all(array is not None and array.size == 1 for array in arrays)


def _with_row(array: np.ndarray) -> np.ndarray:
    """An array of at most three axes, as it repeats to those, with one for the row."""
    whole = array.reshape((1,) * (3 - array.ndim) + array.shape)
    return np.expand_dims(whole, _ROW)
