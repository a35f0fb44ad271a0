"""Write an interpolation that was lowered to loops with operators whose axes can be permuted.

Rewrite:
    call_tir(f, x, places, weights)  ->  take(x, places[:, 0]) * weights[:, 0] + take(x, places[:, 1]) * ...
Leaves alone: every f that computes anything else, which a run on random numbers reveals. In modules without quantized
values, every f but those that add several rows or columns of images.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    is_dataflow,
    is_quantized,
    names_in,
    op_name,
    rebuild,
    static_shape,
    with_span,
)
from tvm_ext.core.decisions.composites import Symbol
from tvm_ext.core.names import unique

IMAGE_RANK = 4


@tvm.transform.module_pass(opt_level=0, name="ExposeInterpolations")
class ExposeInterpolations:
    """Find loops that interpolate along an axis, and write them as weighted sums of `take`."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = mod["main"]
        if not is_dataflow(func):
            return mod
        of_images = not is_quantized(func)
        taken = names_in(func)
        sequence: list[relax.VarBinding] = []
        for binding in bindings(func):
            is_left = of_images and not _is_image(binding.value)
            axis = None if is_left else interpolated_axis(mod, binding.value)
            sequence += [binding] if axis is None else _weighted(binding, axis, taken)
        changed = mod.clone()
        changed.update_func(mod.get_global_var("main"), rebuild(func, sequence))
        return changed


def _is_image(call: relax.Expr) -> bool:
    """Return True for a call_tir of an image and of tables with several taps for each element of an axis."""
    if op_name(call) != "relax.call_tir" or not isinstance(call.ty, relax.TensorType) or call.ty.ndim != IMAGE_RANK:
        return False
    tables = [array_of(field) for field in call.args[1].fields[1:]] if isinstance(call.args[1], relax.Tuple) else []
    return any(table is not None and table.ndim == 2 and table.shape[1] > 1 for table in tables)


def interpolated_axis(mod: tvm.IRModule, call: relax.Expr) -> int | None:
    """Return the axis that a call_tir interpolates along, or None where it does something else.

    The operands are x, int32 places[target, taps] and float32 weights[target, taps].
    """
    if op_name(call) != "relax.call_tir" or not isinstance(call.ty, relax.TensorType):
        return None
    if not isinstance(call.args[1], relax.Tuple) or len(call.args[1].fields) != 3:
        return None
    source, places, weights = (call.args[1].fields[0], *map(array_of, call.args[1].fields[1:]))
    if not isinstance(source, relax.Var) or places is None or weights is None:
        return None
    if (places.dtype, weights.dtype) != (np.int32, np.float32) or places.ndim != 2 or places.shape != weights.shape:
        return None
    shape, target = static_shape(source), static_shape(call)
    if {str(source.ty.dtype), str(call.ty.dtype)} != {"float32"} or len(shape) != len(target):
        return None
    changed = [axis for axis, (a, b) in enumerate(zip(shape, target, strict=True)) if a != b]
    if len(changed) != 1 or target[changed[0]] != len(places) or 0 in shape or places.size == 0:
        return None
    if places.min() < 0 or places.max() >= shape[changed[0]]:
        return None
    function = tvm.compile(Symbol(name="probe").write(mod[call.args[0]]), target="llvm")["probe"]

    def interpolates(x: np.ndarray) -> bool:
        arrays = [tvm.runtime.tensor(array) for array in (x, places, weights, np.empty(target, "float32"))]
        function(*arrays)
        along = np.moveaxis(x, changed[0], 0)[places].astype(np.float64)
        terms = along * weights.reshape(*weights.shape, *[1] * (x.ndim - 1))
        error = np.abs(np.moveaxis(arrays[-1].numpy(), changed[0], 0) - terms.sum(1))
        return bool((error <= 1e-5 * np.abs(terms).sum(1) + 1e-30).all())  # sums near zero have lost digits

    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return changed[0] if all(interpolates(x * np.float32(factor)) for factor in (1, -1, 1e4)) else None


def _weighted(binding: relax.VarBinding, axis: int, taken: set[str]) -> list[relax.VarBinding]:
    source, places, weights = (binding.value.args[1].fields[0], *map(array_of, binding.value.args[1].fields[1:]))
    rank = len(static_shape(source))
    sequence: list[relax.VarBinding] = []

    def bind(call: relax.Call, var: relax.Var | None = None) -> relax.Var:
        typed = with_span(infer(call), binding.value.span)
        if var is None:
            var = relax.DataflowVar(unique(f"{binding.var.name}.tap", taken), typed.ty)
        sequence.append(relax.VarBinding(var, typed))
        return var

    total: relax.Var | None = None
    for tap in range(places.shape[1]):
        column = weights[:, tap].reshape([-1 if i == axis else 1 for i in range(rank)])
        picked = bind(relax.op.take(source, constant(places[:, tap]), axis=axis))
        is_last = tap == places.shape[1] - 1
        var = binding.var if is_last else None
        product = bind(relax.op.multiply(picked, constant(column)), var if total is None else None)
        total = product if total is None else bind(relax.op.add(total, product), var)
    return sequence
