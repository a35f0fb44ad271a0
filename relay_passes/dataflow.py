"""Read a function of one dataflow block as a list of bindings, and write the list back.

The passes are plain functions over that list. A rebuilt function keeps every name and every span: the names are the
model's own tensor names (with any characters), and the span of a call names the operator it came from. TVM's
BlockBuilder would rename both, so this file calls the constructors of functions directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvm_ext.core.decisions.decision import Decision
from tvm_ext.core.errors import UnsupportedModel

Replacements = Mapping[relax.Var, relax.Expr]

# These functions see every operand in every pass, so they avoid Python calls: they read TVM's arrays as slices, because
# each element of an iteration is a call, and they compare exact types first, because isinstance is a call unless the
# type matches exactly.
_LEAVES = frozenset((relax.Var, relax.DataflowVar, tvm.ir.GenericConst))


def is_dataflow(func: object) -> bool:
    """Return True if `func` is a Relax function of one dataflow block of plain bindings, or of no block at all."""
    return _plain_bindings(func) is not None


def bindings(func: relax.Function) -> list[relax.VarBinding]:
    """Return the bindings of `func` in order. Raises UnsupportedModel unless `is_dataflow(func)`."""
    found = _plain_bindings(func)
    if found is None:
        raise UnsupportedModel(
            "a function of the module is not a single dataflow block of plain bindings; control flow, impure calls and "
            "match_cast cannot be compiled. Try relax.transform.ConvertToDataflow() first."
        )
    return found


def _plain_bindings(func: object) -> list[relax.VarBinding] | None:
    """Return the bindings of a function with no block or one dataflow block of plain bindings, or None."""
    if not isinstance(func, relax.Function) or not isinstance(func.body, relax.SeqExpr):
        return None
    blocks = func.body.blocks[:]
    if not blocks:
        return []
    if len(blocks) > 1 or not isinstance(blocks[0], relax.DataflowBlock):
        return None
    found = blocks[0].bindings[:]
    return found if all(isinstance(binding, relax.VarBinding) for binding in found) else None


def outputs(func: relax.Function) -> list[relax.Expr]:
    """Return the results of `func`: the fields of the tuple it returns, or its single value."""
    body = func.body.body
    return body.fields[:] if isinstance(body, relax.Tuple) else [body]


def returned(func: relax.Function) -> frozenset[relax.Expr]:
    """Return the variables and constants that `func` returns, also inside tuples."""
    return frozenset(leaf for result in outputs(func) for leaf in operands(result))


def names_in(func: relax.Function) -> set[str]:
    """Return the names of the parameters and bindings of `func`, which a new variable cannot have."""
    return {binding.var.name for binding in bindings(func)} | {param.name for param in func.params}


def operands(expr: relax.Expr) -> Iterator[relax.Expr]:
    """Yield the variables, constants and shapes that an expression reads, also from inside tuples."""
    if type(expr) in _LEAVES:
        yield expr
        return
    if isinstance(expr, relax.Call):
        parts = expr.args[:]
    elif isinstance(expr, relax.Tuple):
        parts = expr.fields[:]
    elif isinstance(expr, relax.TupleGetItem):
        parts = [expr.tuple_value]
    else:
        yield expr
        return
    for part in parts:
        if type(part) in _LEAVES:
            yield part
        else:
            yield from operands(part)


def users(sequence: Iterable[relax.VarBinding]) -> dict[relax.Var, list[relax.VarBinding]]:
    """Return the readers of each variable in order. A binding that reads a variable twice appears twice."""
    found: dict[relax.Var, list[relax.VarBinding]] = {}
    for binding in sequence:
        for leaf in operands(binding.value):
            if isinstance(leaf, relax.Var):
                found.setdefault(leaf, []).append(binding)
    return found


def live(sequence: Sequence[relax.VarBinding], results: Iterable[relax.Expr]) -> list[relax.VarBinding]:
    """Return the bindings that `results` depend on, in order, without dead bindings."""
    needed = {leaf for result in results for leaf in operands(result)}
    kept = []
    for binding in reversed(sequence):
        if binding.var in needed:
            kept.append(binding)
            needed.update(operands(binding.value))
    return kept[::-1]


def op_name(expr: relax.Expr) -> str | None:
    """Return `relax.add` for a call of that operator, or None for everything else."""
    is_operator = isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)
    return expr.op.name if is_operator else None


def is_quantized(func: object) -> bool:
    """Return True for a dataflow function in which integers stand for real numbers."""
    return is_dataflow(func) and any(op_name(binding.value) == "relax.dequantize" for binding in bindings(func))


def array_of(expr: relax.Expr) -> np.ndarray | None:
    """Return the numbers of a constant, or None for everything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def number_of(expr: relax.Expr) -> np.generic | None:
    """Return the only number of a constant of one element, or None for everything else."""
    array = array_of(expr)
    return array.reshape(-1)[0] if array is not None and array.size == 1 else None


def constant(array: np.ndarray) -> relax.Expr:
    """Return a constant of exactly the array's type. relax.const alone would narrow 64-bit arrays to 32 bits."""
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), str(array.dtype))


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """Return the shape of a tensor whose dimensions are all known."""
    return tuple(int(dim) for dim in expr.ty.shape.values[:])


def num_elements(var: relax.Var) -> int:
    """Return the number of elements of a tensor, or of all tensors of a tuple."""
    kinds = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
    return sum(prod(int(dim) for dim in kind.shape.values[:]) for kind in kinds)


def permuted_axes(permute: relax.Call) -> tuple[int, ...]:
    """Return the axes of a permutation's operand in the order of its result."""
    rank, axes = len(static_shape(permute.args[0])), permute.attrs.axes
    return tuple(int(axis) % rank for axis in axes) if axes is not None else tuple(reversed(range(rank)))


def dict_attrs(*decisions: Decision) -> tvm.ir.DictAttrs:
    """Return the attributes of a new function or call that carries some decisions."""
    entries = {name: value for decision in decisions for name, value in decision.attributes().items()}
    return tvm.ir.make_node("ir.DictAttrs", **entries)


def infer(call: relax.Call) -> relax.Call:
    """Return the call with the type that follows from its operands. The span stays."""
    return relax.BlockBuilder().normalize(relax.Call(call.op, call.args, call.attrs, call.ty_args, call.span))


def with_span(expr: relax.Expr, span: tvm.ir.Span | None) -> relax.Expr:
    """Return the same call or tuple element at another span. Leaves are returned as they are."""
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span, expr.ty)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(expr.tuple_value, expr.index, span)
    return expr


def substitute(expr: relax.Expr, replace: Replacements) -> relax.Expr:
    """Return `expr` with variables replaced. The type is inferred again only where the type of an operand changed."""
    if type(expr) in _LEAVES or isinstance(expr, relax.Var):
        return replace.get(expr, expr)
    if isinstance(expr, relax.Tuple):
        return relax.Tuple([substitute(field, replace) for field in expr.fields[:]], expr.span)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(substitute(expr.tuple_value, replace), expr.index, expr.span)
    if not isinstance(expr, relax.Call):
        return expr
    given = expr.args[:]
    args = [replace.get(arg, arg) if type(arg) in _LEAVES else substitute(arg, replace) for arg in given]
    changed = [(new, old) for new, old in zip(args, given, strict=True) if new is not old and not new.same_as(old)]
    if not changed:
        return expr
    call = relax.Call(expr.op, args, expr.attrs, expr.ty_args, expr.span, expr.ty)
    return call if all(tvm_ffi.structural_equal(new.ty, old.ty) for new, old in changed) else infer(call)


def build(
    params: Sequence[relax.Var],
    sequence: Iterable[relax.VarBinding],
    results: Sequence[relax.Expr],
    *,
    attrs: tvm.ir.DictAttrs | None = None,
    as_tuple: bool | None = None,
    replace: Replacements | None = None,
) -> relax.Function:
    """Build a pure function of one dataflow block.

    Variables in `results` become plain Vars, all others DataflowVars, under their own names.
    replace: expressions for variables that are no longer bound, applied to bindings and results.
    as_tuple: whether to return a tuple; None returns a tuple only for several results.
    """
    env = dict(replace or {})
    returned = {substitute(result, env) for result in results}
    rebuilt = []
    for binding in sequence:
        value = substitute(binding.value, env)
        var = binding.var
        kind = relax.Var if var in returned else relax.DataflowVar
        if type(var) is not kind or not tvm_ffi.structural_equal(var.ty, value.ty):
            var = env[binding.var] = kind(var.name, value.ty, var.span)
        rebuilt.append(relax.VarBinding(var, value))
    final = [substitute(substitute(result, replace or {}), env) for result in results]
    tupled = len(final) != 1 if as_tuple is None else as_tuple
    body = relax.Tuple(final) if tupled else final[0]
    blocks = [relax.DataflowBlock(rebuilt)] if rebuilt else []
    func = relax.Function(params, relax.SeqExpr(blocks, body), body.ty, True, attrs)
    return relax.BlockBuilder().normalize(func)


def rebuild(
    func: relax.Function,
    sequence: Iterable[relax.VarBinding],
    results: Sequence[relax.Expr] | None = None,
    *,
    as_tuple: bool | None = None,
    replace: Replacements | None = None,
) -> relax.Function:
    """Return `func` with other bindings, and with other results where given. Parameters and attributes stay."""
    as_tuple = isinstance(func.body.body, relax.Tuple) if as_tuple is None else as_tuple
    results = outputs(func) if results is None else results
    return build(func.params, sequence, results, attrs=func.attrs, as_tuple=as_tuple, replace=replace)


def with_values(func: relax.Function, values: Mapping[relax.Var, relax.Expr]) -> relax.Function:
    """Return `func` with other values for some variables, and without bindings that nothing reads any more."""
    if not values:
        return func
    sequence = [relax.VarBinding(b.var, values.get(b.var, b.value)) for b in bindings(func)]
    return rebuild(func, live(sequence, outputs(func)))


def with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """Return the module with another `main`."""
    changed = mod.clone()
    changed.update_func(changed.get_global_var("main"), main)
    return changed


def map_dataflow(mod: tvm.IRModule, rewrite: Callable[[relax.Function], relax.Function]) -> tvm.IRModule:
    """Return the module with `rewrite` applied to every dataflow function. All others stay."""
    changed = mod.clone()
    for global_var, func in mod.functions_items():
        if is_dataflow(func):
            changed.update_func(global_var, rewrite(func))
    return changed
