"""Turn products of a constant matrix with an activation on its right into dense layers, ahead of quantization."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    constant,
    infer,
    live,
    map_dataflow,
    names_in,
    op_name,
    operands,
    outputs,
    permuted_axes,
    rebuild,
    static_shape,
    with_span,
)
from relay_passes.patterns import Dataflow
from tvm_ext.core.names import unique

_CLAMPS = frozenset({"relax.nn.relu", "relax.clip"})


@tvm.transform.module_pass(opt_level=0, name="TurnProducts")
class TurnProducts:
    """Multiply columns of an activation by a constant matrix as a dense layer multiplies rows.

    Rewrite:
        matmul(w, x)                    ->  permute_dims(matmul(permute_dims(x), transposed w))
        relu(add(matmul(w, x), bias))   ->  permute_dims(relu(add(matmul(permute_dims(x), transposed w), bias)))
        The int8 form of a dense layer has a scale for each row of w, and its kernels are those of all dense layers. A
        permutation ahead of the product cancels. Columns of one element are only reshaped.
    Leaves alone: stacks of different matrices, biases that differ along the columns, and float models, whose kernels
        multiply by a matrix on the left without a permutation.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _turned)


@dataclass(frozen=True, kw_only=True)
class _Product:
    """A product and the operators after it that a dense layer contains.

    matrix: float32[M, K]. bias: float32[M], if one is added. clamps: relu and clip, in order.
    """

    members: tuple[relax.VarBinding, ...]
    matrix: np.ndarray
    bias: np.ndarray | None
    clamps: tuple[relax.VarBinding, ...]


def _turned(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    found = [product for b in flow.sequence if (product := _product_of(b, flow)) is not None]
    if not found:
        return func
    taken = names_in(func)
    by_last = {product.members[-1].var: product for product in found}
    inner = {member.var for product in found for member in product.members[:-1]}
    sequence: list[relax.VarBinding] = []
    for binding in flow.sequence:
        if binding.var in by_last:
            sequence += _steps(by_last[binding.var], flow, taken)
        elif binding.var not in inner:
            sequence.append(binding)
    return rebuild(func, live(sequence, outputs(func)))


def _product_of(product: relax.VarBinding, flow: Dataflow) -> _Product | None:
    """Return a product of a constant matrix with an activation on its right, or None for any other binding."""
    call = product.value
    if op_name(call) != "relax.matmul" or str(call.ty.dtype) != "float32":
        return None
    matrix, other = array_of(call.args[0]), call.args[1]
    if matrix is None or array_of(other) is not None or min(matrix.ndim, len(static_shape(other))) < 2:
        return None
    if prod(matrix.shape[:-2]) != 1 or len(static_shape(call)) != len(static_shape(other)):
        return None
    members, bias, rows = [product], None, matrix.shape[-2]
    follower = flow.sole_reader(product.var)
    if follower is not None and op_name(follower.value) == "relax.add":
        arrays = [array for leaf in operands(follower.value) if (array := array_of(leaf)) is not None]
        bias = _bias(arrays[0], rows) if len(arrays) == 1 and static_shape(follower.var) == static_shape(call) else None
        members += [follower] if bias is not None else []
    clamps: list[relax.VarBinding] = []
    while (follower := flow.sole_reader((members + clamps)[-1].var)) is not None and op_name(follower.value) in _CLAMPS:
        clamps.append(follower)
    return _Product(
        members=(*members, *clamps), matrix=matrix.reshape(matrix.shape[-2:]), bias=bias, clamps=tuple(clamps)
    )


def _bias(array: np.ndarray, rows: int) -> np.ndarray | None:
    """Return a constant with one number for each row of the product, or None for any other."""
    varies = [axis - array.ndim for axis, extent in enumerate(array.shape) if extent > 1]
    return np.broadcast_to(array.reshape(-1), rows).astype(np.float32) if varies in ([], [-2]) else None


def _steps(product: _Product, flow: Dataflow, taken: set[str]) -> list[relax.VarBinding]:
    """Return the bindings of the dense layer between its permutations; the last has the variable of the last member."""
    call, result = product.members[0].value, product.members[-1]
    steps: list[relax.VarBinding] = []

    def bound(value: relax.Call, span: tvm.ir.Span | None) -> relax.Var:
        made = with_span(infer(value), span)
        steps.append(
            relax.VarBinding(relax.DataflowVar(unique(f"{result.var.name}.{len(steps)}", taken), made.ty), made)
        )
        return steps[-1].var

    before = flow.values.get(call.args[1])
    rank = len(static_shape(call))
    is_turned = op_name(before) == "relax.permute_dims" and permuted_axes(before) == tuple(_exchanged(rank))
    rows = before.args[0] if is_turned else bound(_turned_rows(call.args[1]), call.span)
    value = bound(relax.op.matmul(rows, constant(np.ascontiguousarray(product.matrix.T))), call.span)
    if product.bias is not None:
        value = bound(relax.op.add(value, constant(product.bias)), product.members[1].value.span)
    for clamp in product.clamps:
        old = clamp.value
        value = bound(relax.Call(old.op, [value, *old.args[1:]], old.attrs, old.ty_args, old.span), old.span)
    last = with_span(infer(_turned_rows(value)), call.span)
    return [*steps, relax.VarBinding(result.var, last)]


def _exchanged(rank: int) -> list[int]:
    return [*range(rank - 2), rank - 1, rank - 2]


def _turned_rows(value: relax.Expr) -> relax.Call:
    """Return a tensor with its last two axes exchanged, by a reshape where one of them has one element."""
    *stacks, rows, columns = static_shape(value)
    if min(rows, columns) == 1:
        return relax.op.reshape(value, [*stacks, columns, rows])
    return relax.op.permute_dims(value, _exchanged(len(stacks) + 2))
