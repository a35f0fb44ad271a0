"""Turn loops that only copy elements (nearest-neighbour resizing, edge padding) back into `take`.

Rewrite:
    call_tir(f, x)   ->   take(take(x, rows, axis=2), columns, axis=3)
    The pass runs f on the numbers 0, 1, 2 ... to learn, for each axis, which elements f copies.
Leaves alone: functions of several tensors or of types other than float32, and every f that computes new values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    names_in,
    op_name,
    rebuild,
    static_shape,
    with_span,
)
from tvm_ext.core.decisions.composites import Symbol
from tvm_ext.core.names import unique

# float32 represents every integer below 2**24 exactly, so larger tensors cannot be probed with their own indices.
_MAX_ELEMENTS = 1 << 24
# Up to this size every element is probed with every number below, which takes len(_NUMBERS) runs.
_FEW_ELEMENTS = 1 << 16

_NUMBERS = np.array([sign * size for size in (1e-30, 0.3, 1, 2.5, 1000.7, 1e7, 1e30) for sign in (1, -1)], np.float32)
"""Probe values that rounding, clamping, sign changes and additions would change."""


@tvm.transform.module_pass(opt_level=0, name="ExposeGathers")
class ExposeGathers:
    """Find loops that only copy elements, and write them as `take`."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        func = mod["main"]
        taken = names_in(func)
        sequence: list[relax.VarBinding] = []
        for binding in bindings(func):
            places = _places(mod, binding.value)
            sequence += [binding] if places is None else _takes(binding, places, taken)
        changed = mod.clone()
        changed.update_func(mod.get_global_var("main"), rebuild(func, sequence))
        return changed


def _takes(binding: relax.VarBinding, places: list[np.ndarray], taken: set[str]) -> list[relax.VarBinding]:
    """Return one `take` for each axis along which elements move."""
    value = binding.value.args[1].fields[0]
    extents = static_shape(value)
    moved = [axis for axis, place in enumerate(places) if not np.array_equal(place, np.arange(extents[axis]))]
    sequence: list[relax.VarBinding] = []
    for axis in moved:
        call = infer(relax.op.take(value, constant(places[axis].astype("int32")), axis=axis))
        call = with_span(call, binding.value.span)
        is_last = axis == moved[-1]
        name = binding.var.name if is_last else unique(f"{binding.var.name}.{axis}", taken)
        value = binding.var if is_last else relax.DataflowVar(name, call.ty)
        sequence.append(relax.VarBinding(value, call))
    return sequence or [relax.VarBinding(binding.var, value)]


def _places(mod: tvm.IRModule, call: relax.Expr) -> list[np.ndarray] | None:
    """Return the source index of each element, axis by axis, or None where the call does more than copy elements."""
    if op_name(call) != "relax.call_tir" or not isinstance(call.args[1], relax.Tuple):
        return None
    source, *rest = call.args[1].fields
    constants = [array_of(value) for value in rest]
    if not isinstance(source, relax.Var) or any(array is None for array in constants):
        return None
    if not isinstance(call.ty, relax.TensorType) or {str(source.ty.dtype), str(call.ty.dtype)} != {"float32"}:
        return None
    shape, target = static_shape(source), static_shape(call)
    size = int(np.prod(shape, dtype=np.int64))
    if len(shape) != len(target) or 0 in (*shape, *target) or max(size, math.prod(target)) >= _MAX_ELEMENTS:
        return None
    try:
        function = tvm.compile(Symbol(name="probe").write(mod[call.args[0]]), target="llvm")["probe"]
    except tvm.error.InternalError:  # LLVM has no code for a function that it calls, so f computes
        return None

    def run(x: np.ndarray) -> np.ndarray:
        arrays = [tvm.runtime.tensor(array) for array in (x.reshape(shape), *constants, np.empty(target, "float32"))]
        function(*arrays)
        return arrays[-1].numpy()

    found = run(np.arange(size, dtype="float32"))
    if not (np.isfinite(found).all() and (found == np.rint(found)).all() and found.min() >= 0 and found.max() < size):
        return None
    chosen = found.astype(np.int64)
    return _by_axis(chosen, shape) if all(np.array_equal(run(x), x[chosen]) for x in _probes(size)) else None


def _probes(size: int) -> Iterator[np.ndarray]:
    """Yield inputs that a computing function would change.

    Each element takes every probe value, or two of them in large tensors.
    """
    order = np.random.default_rng(0).permutation(size)
    for turn in range(len(_NUMBERS) if size <= _FEW_ELEMENTS else 2):
        yield _NUMBERS[(order + turn) % len(_NUMBERS)]


def _by_axis(chosen: np.ndarray, shape: tuple[int, ...]) -> list[np.ndarray] | None:
    """Return the source indices axis by axis, or None where an index depends on more than its own axis."""
    places = []
    for axis, coordinates in enumerate(np.unravel_index(chosen, shape)):
        first = np.moveaxis(coordinates, axis, 0).reshape(coordinates.shape[axis], -1)
        if (first != first[:, :1]).any():
            return None
        places.append(first[:, 0])
    return places
