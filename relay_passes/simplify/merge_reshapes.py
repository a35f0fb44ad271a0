"""Merge operators that move no element into one reshape, so that the permutations around them meet."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    infer,
    live,
    map_dataflow,
    names_in,
    op_name,
    outputs,
    permuted_axes,
    rebuild,
    static_shape,
    substitute,
    with_span,
)
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.names import unique

_RESHAPES = frozenset(f"relax.{name}" for name in "reshape expand_dims squeeze flatten broadcast_to".split())
Shape = tuple[int, ...]


@tvm.transform.module_pass(opt_level=0, name="MergeReshapes")
class MergeReshapes:
    """See through axes of extent 1 around products of two activations, and around loops over time.

    Rewrite:
        reshape(expand_dims(x))                     ->  reshape(x)              squeeze and similar operators alike
        permute_dims(x), where only such axes move  ->  reshape(x)
        reshape(permute_dims(x)) of such axes       ->  permute_dims(reshape(x))
        take(x, 2, axis=1)                          ->  reshape(strided_slice(x, axes=[1], begin=[2], end=[3]))
        matmul(reshape(a), reshape(b))              ->  reshape(matmul(a, b))   for stacks of rank 3 and rank 4
    Leaves alone: functions without a product of two activations in modules without loops over time, and reshapes that
        merge or split axes.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        has_loops = any(RepeatedStep.read(func).count for _, func in mod.functions_items())
        return map_dataflow(mod, lambda func: _Rewriter(func).run() if has_loops or _has_products(func) else func)


def _has_products(func: relax.Function) -> bool:
    products = (b.value for b in bindings(func) if op_name(b.value) == "relax.matmul")
    return any(all(array_of(operand) is None for operand in product.args[:]) for product in products)


@dataclass(frozen=True, kw_only=True)
class _View:
    """A value as a permutation of its root, regardless of the axes of extent 1 in both.

    order: the axes of the root with an extent other than 1, in the order in which the value has them.
    """

    root: relax.Expr
    order: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        return list(self.order) == sorted(self.order)


class _Rewriter:
    """A single walk over the bindings.

    views: the view of each value that is not its own root.
    same: replacements for values that equal another value.
    """

    def __init__(self, func: relax.Function) -> None:
        self.func = func
        self.views: dict[relax.Var, _View] = {}
        self.same: dict[relax.Var, relax.Expr] = {}
        self.sequence: list[relax.VarBinding] = []
        self.taken = names_in(func)

    def run(self) -> relax.Function:
        for binding in bindings(self.func):
            value = self._rewritten(relax.VarBinding(binding.var, substitute(binding.value, self.same)))
            if isinstance(value, relax.Var):
                self.same[binding.var] = value
            else:
                self.sequence.append(relax.VarBinding(binding.var, with_span(value, binding.value.span)))
        results = [substitute(result, self.same) for result in outputs(self.func)]
        return rebuild(self.func, live(self.sequence, results), results)

    def _rewritten(self, binding: relax.VarBinding) -> relax.Expr:
        call, shape = binding.value, _shape(binding.var)
        source = call.args[0] if op_name(call) is not None and call.args else None
        if shape is None or not isinstance(source, relax.Var) or _shape(source) is None:
            return call
        name = op_name(call)
        if name in _RESHAPES and prod(static_shape(source)) == prod(shape):
            return self._reshaped(binding.var, source, shape)
        if name == "relax.permute_dims":
            return self._permuted(binding.var, source, permuted_axes(call), shape)
        if name == "relax.take":
            return self._selected(binding, source, shape)
        if name == "relax.matmul" and len(shape) == 3 and all(arg in self.views for arg in call.args[:]):
            return self._lifted(binding, shape)
        return call

    def _view(self, value: relax.Var) -> _View:
        shape = static_shape(value)
        own = _View(root=value, order=tuple(axis for axis, extent in enumerate(shape) if extent != 1))
        return self.views.get(value, own)

    def _reshaped(self, var: relax.Var, source: relax.Var, shape: Shape) -> relax.Expr:
        view = self._view(source)
        if _wide(shape) == _wide(static_shape(source)):
            return self._shown(var, view, shape)
        if view.is_identity:
            return infer(relax.op.reshape(view.root, shape))
        return infer(relax.op.reshape(self._bind(f"{source.name}.permuted", _at_places(view)), shape))

    def _permuted(self, var: relax.Var, source: relax.Var, axes: Shape, shape: Shape) -> relax.Expr:
        view, extents = self._view(source), static_shape(source)
        wide = [axis for axis, extent in enumerate(extents) if extent != 1]
        order = tuple(view.order[wide.index(axis)] for axis in axes if extents[axis] != 1)
        return self._shown(var, _View(root=view.root, order=order), shape)

    def _shown(self, var: relax.Var, view: _View, shape: Shape) -> relax.Expr:
        """Write a view in the given shape, by a permutation after a reshape that places the axes of extent 1."""
        self.views[var] = view
        extents = static_shape(view.root)
        if view.is_identity:
            return view.root if extents == shape else infer(relax.op.reshape(view.root, shape))
        if len(shape) == len(extents) and [extents[axis] for axis in _places(view)] == list(shape):
            return _at_places(view)
        ranks = {axis: rank for rank, axis in enumerate(sorted(view.order))}
        units = sum(extent == 1 for extent in shape)
        inner = (1,) * units + tuple(extents[axis] for axis in sorted(view.order))
        small, wide = iter(range(units)), iter(view.order)
        axes = [next(small) if extent == 1 else units + ranks[next(wide)] for extent in shape]
        inside = view.root if inner == extents else self._bind(f"{var.name}.parts", relax.op.reshape(view.root, inner))
        return infer(relax.op.permute_dims(inside, axes))

    def _selected(self, binding: relax.VarBinding, source: relax.Var, shape: Shape) -> relax.Expr:
        """Write a `take` of a single index along an axis as a slice."""
        place = array_of(binding.value.args[1])
        if place is None or place.ndim or binding.value.attrs.axis is None:
            return binding.value
        view, extents = self._view(source), static_shape(source)
        axis = int(binding.value.attrs.axis) % len(extents)
        index = int(place)
        if not 0 <= index < extents[axis] or extents[axis] == 1:
            return binding.value
        wide = [place for place, extent in enumerate(extents) if extent != 1]
        along = view.order[wide.index(axis)]
        part = self._bind(f"{binding.var.name}.slice", relax.op.strided_slice(view.root, [along], [index], [index + 1]))
        left = _View(root=part, order=tuple(other for other in view.order if other != along))
        return self._shown(binding.var, left, shape)

    def _lifted(self, binding: relax.VarBinding, shape: Shape) -> relax.Expr:
        """Write a product of stacks of rank 3 as a product of stacks with one more leading axis."""
        operands: list[relax.Expr] = []
        for operand in binding.value.args[:]:
            var = relax.DataflowVar(unique(f"{operand.name}.stacks", self.taken), operand.ty)
            shown = self._shown(var, self._view(operand), (1, *static_shape(operand)))
            operands.append(shown if isinstance(shown, relax.Var) else self._bind(var.name, shown))
        product = infer(relax.op.matmul(*operands, out_dtype=binding.value.attrs.out_dtype))
        whole = self._bind(f"{binding.var.name}.stacks", with_span(product, binding.value.span))
        return self._reshaped(binding.var, whole, shape)

    def _bind(self, name: str, value: relax.Call) -> relax.Var:
        call = infer(value)
        var = relax.DataflowVar(unique(name, self.taken), call.ty)
        self.sequence.append(relax.VarBinding(var, call))
        return var


def _places(view: _View) -> list[int]:
    """Return the axes of the root in the order of the view, where axes of extent 1 keep their position."""
    following = iter(view.order)
    return [axis if extent == 1 else next(following) for axis, extent in enumerate(static_shape(view.root))]


def _at_places(view: _View) -> relax.Call:
    return infer(relax.op.permute_dims(view.root, _places(view)))


def _wide(shape: Shape) -> list[int]:
    return [extent for extent in shape if extent != 1]


def _shape(value: relax.Expr) -> Shape | None:
    """Return the shape of a tensor, or None for anything else."""
    return static_shape(value) if isinstance(value.ty, relax.TensorType) else None
