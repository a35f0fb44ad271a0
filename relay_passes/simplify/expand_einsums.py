"""Write einsums of two tensors as matrix products, which have kernels and an int8 form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from string import ascii_letters

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    bindings,
    constant,
    infer,
    map_dataflow,
    names_in,
    op_name,
    operands,
    rebuild,
    static_shape,
    with_span,
)
from tvm_ext.core.names import unique

_FLOATS = ("float32", "float16")


@tvm.transform.module_pass(opt_level=0, name="ExpandEinsums")
class ExpandEinsums:
    """Write an einsum of two tensors as a matmul, with permutations and reshapes where the axes need them.

    Rewrite:
        einsum(x, w, "bij,jk->bik")          ->  matmul(x, w)
        einsum(q, k, "bihd,bjhd->bhij")      ->  matmul(permute_dims(q), permute_dims(k))
        einsum(x, w, "abc,cde->abde")        ->  reshape(matmul(x, reshape(w)))
        einsum(w, x, "mk,bkn->bmn")          ->  permute_dims(matmul(permute_dims(x), permuted w))   where w is constant
        FoldPermutes brings products of two activations back to an einsum in the order in which their kernels read.
    Leaves alone: other numbers of tensors, integers, diagonals, broadcasts, axes that a single tensor sums over,
        products that sum over no axis, and constants with an axis that all three tensors have.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _expanded)


@dataclass(frozen=True, kw_only=True)
class _Product:
    """The axes of an einsum by the part they play in a matrix product, each in the order in which it is written.

    first, second: the operands, and letters of all their axes. The rows of the product are those of the first.
    stacks: axes of all three tensors. depth: axes that are summed over. result: all axes of the result in its order.
    """

    first: tuple[relax.Expr, str]
    second: tuple[relax.Expr, str]
    stacks: str
    rows: str
    depth: str
    columns: str
    result: str
    extents: dict[str, int]

    def sizes(self, letters: str) -> list[int]:
        return [self.extents[letter] for letter in letters]


def _expanded(func: relax.Function) -> relax.Function:
    found = {b.var: product for b in bindings(func) if (product := _product_of(b.value)) is not None}
    if not found:
        return func
    taken = names_in(func)
    sequence: list[relax.VarBinding] = []
    for binding in bindings(func):
        steps = _steps(binding, found[binding.var], taken) if binding.var in found else [binding]
        sequence += steps
    return rebuild(func, sequence)


def _product_of(call: relax.Expr) -> _Product | None:
    """Return the axes of an einsum that is a matrix product, or None."""
    if op_name(call) != "relax.einsum" or str(call.ty.dtype) not in _FLOATS:
        return None
    tensors = list(operands(call.args[0]))
    terms = _terms(str(call.attrs.subscripts), [static_shape(tensor) for tensor in tensors])
    if len(tensors) != 2 or terms is None:
        return None
    (a, b), result = terms
    extents: dict[str, int] = {}
    for tensor, letters in zip(tensors, (a, b), strict=True):
        for letter, extent in zip(letters, static_shape(tensor), strict=True):
            if extents.setdefault(letter, extent) != extent:
                return None  # a broadcast
    # The constant becomes the second operand, whose axes are permuted at compile time. Of two activations, the second
    # has the last axis of the result if it has columns, so that nothing is permuted after the product.
    are_constant = [array_of(tensor) is not None for tensor in tensors]
    ends_in_first = result[-1:] not in b and any(letter in result and letter not in a for letter in b)
    is_turned = are_constant == [True, False] or (are_constant == [False, False] and ends_in_first)
    first, second = zip(tensors[::-1], (b, a), strict=True) if is_turned else zip(tensors, (a, b), strict=True)
    return _by_part(first, second, result, extents)


def _by_part(
    first: tuple[relax.Expr, str], second: tuple[relax.Expr, str], result: str, extents: dict[str, int]
) -> _Product | None:
    a, b = first[1], second[1]
    stacks = "".join(letter for letter in result if letter in a and letter in b)
    rows = "".join(letter for letter in result if letter not in b)
    columns = "".join(letter for letter in result if letter not in a)
    depth = "".join(letter for letter in a if letter in b and letter not in result)
    is_whole = len(a) == len(stacks + rows + depth) and len(b) == len(stacks + depth + columns)
    if not is_whole or not depth or (stacks and array_of(second[0]) is not None):
        return None
    return _Product(
        first=first, second=second, stacks=stacks, rows=rows, depth=depth, columns=columns, result=result,
        extents=extents,
    )  # fmt: skip


def _terms(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str] | None:
    """Return the letters of the axes of each operand and of the result, or None for diagonals.

    An ellipsis becomes letters that the subscripts do not use. A result that is not written has the letters that occur
    once, in alphabetical order, after the ellipsis.
    """
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        return None
    unused = [letter for letter in ascii_letters if letter not in subscripts]
    hidden = [len(shape) - len(term.replace("...", "")) for term, shape in zip(terms, shapes, strict=True)]
    if min(hidden) < 0 or max(hidden) > len(unused):
        return None
    names = "".join(unused[: max(hidden)])
    if not arrow:
        once = sorted(letter for letter in set(inputs) - {".", ","} if inputs.count(letter) == 1)
        result = ("..." if "..." in inputs else "") + "".join(once)
    named = [term.replace("...", names[len(names) - count :]) for term, count in zip(terms, hidden, strict=True)]
    result = result.replace("...", names)
    same_rank = all(len(term) == len(shape) for term, shape in zip(named, shapes, strict=True))
    simple = all(len(set(term)) == len(term) for term in (*named, result))
    return (named, result) if same_rank and simple else None


def _steps(binding: relax.VarBinding, product: _Product, taken: set[str]) -> list[relax.VarBinding]:
    """Return the bindings that compute an einsum as a matmul; the last has its variable."""
    steps: list[relax.VarBinding] = []

    def bound(value: relax.Expr) -> relax.Expr:
        """Return the variable of a call that is appended to the steps; any other value as it is."""
        if not isinstance(value, relax.Call):
            return value
        call = with_span(infer(value), binding.value.span)
        var = relax.DataflowVar(unique(f"{binding.var.name}.{len(steps)}", taken), call.ty)
        steps.append(relax.VarBinding(var, call))
        return var

    def matrices(operand: tuple[relax.Expr, str], order: str, shape: Sequence[int]) -> relax.Expr:
        tensor, letters = operand
        return bound(_reshaped(bound(_permuted(tensor, letters, order)), shape))

    # A stack of products has one axis of rows. The rows of a single product may be several axes.
    rows, stacks = product.sizes(product.rows), product.sizes(product.stacks)
    rows = [prod(rows)] if stacks or not rows else rows
    depth, columns = prod(product.sizes(product.depth)), prod(product.sizes(product.columns))
    first = matrices(product.first, product.stacks + product.rows + product.depth, [*stacks, *rows, depth])
    second = matrices(product.second, product.stacks + product.depth + product.columns, [*stacks, depth, columns])
    written = product.stacks + product.rows + product.columns
    whole = bound(_reshaped(bound(relax.op.matmul(first, second)), product.sizes(written)))
    bound(_permuted(whole, written, product.result))
    return [*steps[:-1], relax.VarBinding(binding.var, steps[-1].value)]


def _permuted(value: relax.Expr, letters: str, order: str) -> relax.Expr:
    """Return a tensor with its axes in another order: the value itself, a constant or a call."""
    axes = [letters.index(letter) for letter in order]
    if letters == order:
        return value
    array = array_of(value)
    return relax.op.permute_dims(value, axes) if array is None else constant(np.transpose(array, axes))


def _reshaped(value: relax.Expr, shape: Sequence[int]) -> relax.Expr:
    if list(static_shape(value)) == list(shape):
        return value
    array = array_of(value)
    return relax.op.reshape(value, list(shape)) if array is None else constant(array.reshape(shape))
