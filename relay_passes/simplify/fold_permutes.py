"""Fold permutations of the axes of activations into the products that read them.

Rewrite, in a function that multiplies two activations one of which is permuted:
    matmul(permute_dims(q), permute_dims(k))   ->  permute_dims(einsum(q, k, "bthd,bshd->bths"))
    f(permute_dims(x))                         ->  permute_dims(f(x))
    where f is a softmax over the last axis that stays the last axis, an element-wise operator with scalars, or
    arithmetic with a constant, which is permuted instead.
    The vectors of a head are thus read where a dense layer wrote them, and permutations meet and cancel.
Leaves alone: functions without such products, and operands whose rows lie between a sequence of several elements and
    the heads; a permutation that no operator absorbs is written where it is read.
"""

from __future__ import annotations

from string import ascii_lowercase

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
    permuted_axes,
    rebuild,
    static_shape,
    substitute,
    with_span,
)

_ELEMENTWISE = frozenset(
    f"relax.{name}" for name in "quantize dequantize multiply divide add subtract clip nn.relu nn.gelu nn.silu".split()
)
_ARITHMETIC = frozenset(f"relax.{name}" for name in "multiply divide add subtract".split())
Axes = tuple[int, ...]


@tvm.transform.module_pass(opt_level=0, name="FoldPermutes")
class FoldPermutes:
    """Absorb the permutations around products of two activations into these products."""

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _folded)


def _folded(func: relax.Function) -> relax.Function:
    rewriter = _Rewriter(func)
    sequence = rewriter.run()
    if not rewriter.products:
        return func
    results = [substitute(result, rewriter.replaced) for result in outputs(func)]
    replaced = [relax.VarBinding(b.var, substitute(b.value, rewriter.replaced)) for b in sequence]
    return rebuild(func, live(replaced, results), results)


class _Rewriter:
    """A single walk over the bindings.

    stored: the source and the axes of each value that exists only as a permutation of that source so far.
    """

    def __init__(self, func: relax.Function) -> None:
        self.original, self.results = bindings(func), outputs(func)
        self.sequence: list[relax.VarBinding] = []
        self.stored: dict[relax.Var, tuple[relax.Expr, Axes]] = {}
        self.integers: dict[relax.Var, relax.VarBinding] = {}
        """The dequantized operands. Their integers are permuted before the dequantize."""
        self.replaced: dict[relax.Var, relax.Expr] = {}
        self.products = 0

    def run(self) -> list[relax.VarBinding]:
        """Return the rewritten bindings, including the bindings that have lost their readers."""
        for binding in self.original:
            if not (self._permute(binding) or self._product(binding) or self._follow(binding)):
                self._demand(binding.value)
                self.sequence.append(binding)
        for result in self.results:
            self._demand(result)
        return self.sequence

    def _demand(self, value: relax.Expr) -> None:
        """Write the permutations of values that are read in the order of the model."""
        for leaf in operands(value):
            if leaf in self.stored:
                source, axes = self.stored.pop(leaf)
                if leaf in self.integers:
                    self._demand(self.integers[leaf].value)
                    self.sequence.append(self.integers[leaf])
                elif axes == tuple(range(len(axes))):
                    self.replaced[leaf] = source
                else:
                    self.sequence.append(relax.VarBinding(leaf, infer(relax.op.permute_dims(source, axes))))

    def _permute(self, binding: relax.VarBinding) -> bool:
        if op_name(binding.value) != "relax.permute_dims" or not isinstance(binding.value.args[0], relax.Var):
            return False
        source, rank = binding.value.args[0], len(static_shape(binding.var))
        axes = permuted_axes(binding.value)
        inner, before = self.stored.get(source, (source, tuple(range(rank))))
        self.stored[binding.var] = (inner, tuple(before[axis] for axis in axes))
        return True

    def _product(self, binding: relax.VarBinding) -> bool:
        """Write a matmul of permuted activations as an einsum of the activations as they are stored."""
        if op_name(binding.value) != "relax.matmul" or len(operand_list := list(operands(binding.value))) != 2:
            return False
        ranks = {len(static_shape(value)) for value in operand_list}
        if len(ranks) != 1 or any(array_of(value) is not None for value in operand_list):
            return False
        if not any(value in self.stored for value in operand_list) or not _same_stacks(*operand_list):
            return False
        rank = ranks.pop()
        *batch, row, depth, column = ascii_lowercase[: rank + 1]
        first, axes = self._source(operand_list[0], rank, rows_stay=True)
        second, other_axes = self._source(operand_list[1], rank)
        if axes == other_axes == tuple(range(rank)):
            return False
        result = [*_placed([*batch, row, depth], axes)[:-1], column]
        subscripts = "".join(
            [*_placed([*batch, row, depth], axes), ",", *_placed([*batch, depth, column], other_axes), "->", *result]
        )
        call = infer(relax.op.einsum((first, second), subscripts))
        self.products += 1
        self._bind(binding, call, axes)
        return True

    def _source(self, value: relax.Expr, rank: int, *, rows_stay: bool = False) -> tuple[relax.Expr, Axes]:
        """Return a stack of matrices as it is stored, and its axes there.

        Where the product cannot read that order, the stack is first written in the order of the model.
        rows_stay: whether the elements of each row have to be contiguous.
        """
        source, axes = self.stored.get(value, (value, tuple(range(rank))))
        if _stacks_lie_together(static_shape(value), axes) and not (rows_stay and axes[-1] != rank - 1):
            return source, axes
        self._demand(value)
        return value, tuple(range(rank))

    def _follow(self, binding: relax.VarBinding) -> bool:
        """Let an operator work on the stored value instead of its permutation, where that is possible."""
        leaves = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        if len(leaves) != 1 or leaves[0] not in self.stored or not isinstance(binding.value, relax.Call):
            return False
        source, axes = self.stored[leaves[0]]
        name, rank = op_name(binding.value), len(axes)
        arrays = [(leaf, array) for leaf in operands(binding.value) if (array := array_of(leaf)) is not None]
        if name == "relax.nn.softmax":
            follows = axes[-1] == rank - 1 and int(binding.value.attrs.axis) % rank == rank - 1
        else:
            most = rank if name in _ARITHMETIC else 0
            follows = name in _ELEMENTWISE and all(a.ndim <= most or (a.size == 1 and a.ndim <= 1) for _, a in arrays)
        if not follows:
            return False
        if name == "relax.dequantize":
            self.integers[binding.var] = binding
        permuted = {leaf: _permuted(array, axes) for leaf, array in arrays if array.size > 1}
        self._bind(binding, infer(substitute(binding.value, {leaves[0]: source, **permuted})), axes)
        return True

    def _bind(self, binding: relax.VarBinding, call: relax.Call, axes: Axes) -> None:
        """Bind a call whose result has the stored order, and record the axes of the original value."""
        value = with_span(call, binding.value.span)
        if axes == tuple(range(len(axes))):
            self.sequence.append(relax.VarBinding(binding.var, value))
            return
        var = relax.DataflowVar(f"{binding.var.name}.as_stored", call.ty)  # no tensor of the model has this order
        self.sequence.append(relax.VarBinding(var, value))
        self.stored[binding.var] = (var, axes)


def _placed(labels: list[str], axes: Axes) -> list[str]:
    """Return the labels of a tensor's axes in the order in which the tensor is stored."""
    found = [""] * len(axes)
    for label, axis in zip(labels, axes, strict=True):
        found[axis] = label
    return found


def _permuted(array: np.ndarray, axes: Axes) -> relax.Expr:
    """Permute a constant so that it broadcasts to the stored tensor as it did to the permuted tensor."""
    whole = array.reshape((1,) * (len(axes) - array.ndim) + array.shape)
    return constant(np.ascontiguousarray(np.transpose(whole, np.argsort(axes))))


def _stacks_lie_together(shape: tuple[int, ...], axes: Axes) -> bool:
    """Return True where the axes of the stack are adjacent and in order, without the axes of matrices between them."""
    wide = [axis for axis in range(len(shape)) if shape[axis] > 1]
    stored, stacks = sorted(wide, key=axes.__getitem__), [axis for axis in wide if axis < len(shape) - 2]
    first = stored.index(stacks[0]) if stacks else 0
    return stored[first : first + len(stacks)] == stacks


def _same_stacks(first: relax.Expr, second: relax.Expr) -> bool:
    """Return True where both operands have the same stack of matrices, so that neither is broadcast."""
    return static_shape(first)[:-2] == static_shape(second)[:-2]
