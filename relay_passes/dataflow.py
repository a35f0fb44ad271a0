"""Read a function of one dataflow block as a list of bindings, and write such a list back.

Passes here are plain functions over that list. A rebuilt function keeps every name and every span: the
names are the model's own tensor names (any characters), the span of a call names the operator it came from.
TVM's BlockBuilder would rename both, so functions are put together from their constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from tvm_ext.core.decisions.decision import Decision
from tvm_ext.core.errors import UnsupportedModel

Replacements = Mapping[relax.Var, relax.Expr]

# Arrays of TVM are read as slices here, and leaves known by their exact type first: each element of an iteration, and
# each isinstance that is no exact match, is a call of Python code. These functions see every operand in every pass.
_LEAVES = frozenset((relax.Var, relax.DataflowVar, tvm.ir.GenericConst))


def is_dataflow(func: object) -> bool:
    """True if `func` is a Relax function that is one dataflow block of plain bindings (or no block at all)."""
    return _plain_bindings(func) is not None


def bindings(func: relax.Function) -> list[relax.VarBinding]:
    """The bindings of `func` in order. Raises UnsupportedModel unless `is_dataflow(func)`."""
    found = _plain_bindings(func)
    if found is None:
        raise UnsupportedModel(
            "a function of the module is not one dataflow block of plain bindings; control flow, impure calls and "
            "match_cast cannot be compiled. Try relax.transform.ConvertToDataflow() first."
        )
    return found


def _plain_bindings(func: object) -> list[relax.VarBinding] | None:
    """The bindings of a function that is one dataflow block of plain ones, or no block at all; None for any other."""
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
    """Results of `func`: the fields of the tuple it returns, or the one value."""
    body = func.body.body
    return body.fields[:] if isinstance(body, relax.Tuple) else [body]


def operands(expr: relax.Expr) -> Iterator[relax.Expr]:
    """The leaves an expression reads, tuples opened: variables, constants, shapes."""
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
    """Per variable, the bindings that read it, in order; one that reads it twice stands there twice."""
    found: dict[relax.Var, list[relax.VarBinding]] = {}
    for binding in sequence:
        for leaf in operands(binding.value):
            if isinstance(leaf, relax.Var):
                found.setdefault(leaf, []).append(binding)
    return found


def live(sequence: Sequence[relax.VarBinding], results: Iterable[relax.Expr]) -> list[relax.VarBinding]:
    """The bindings `results` depend on, in order; the rest is dead."""
    needed = {leaf for result in results for leaf in operands(result)}
    kept = []
    for binding in reversed(sequence):
        if binding.var in needed:
            kept.append(binding)
            needed.update(operands(binding.value))
    return kept[::-1]


def op_name(expr: relax.Expr) -> str | None:
    """`relax.add` for a call of that operator, None for everything else."""
    is_operator = isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op)
    return expr.op.name if is_operator else None


def is_quantized(func: object) -> bool:
    """True if a function that `is_dataflow` has integers that stand for real numbers."""
    return is_dataflow(func) and any(op_name(binding.value) == "relax.dequantize" for binding in bindings(func))


def array_of(expr: relax.Expr) -> np.ndarray | None:
    """The numbers of a constant, None for everything else."""
    return expr.value.numpy() if isinstance(expr, tvm.ir.GenericConst) else None


def constant(array: np.ndarray) -> relax.Expr:
    """A constant of exactly that type; relax.const alone narrows 64-bit arrays to 32 bits."""
    return relax.const(np.ascontiguousarray(array).reshape(array.shape), str(array.dtype))


def static_shape(expr: relax.Expr) -> tuple[int, ...]:
    """Shape of a tensor whose dimensions are all known."""
    return tuple(int(dim) for dim in expr.ty.shape.values[:])


def permuted_axes(permute: relax.Call) -> tuple[int, ...]:
    """Axes of a permutation's operand in the order that its result has."""
    rank, axes = len(static_shape(permute.args[0])), permute.attrs.axes
    return tuple(int(axis) % rank for axis in axes) if axes is not None else tuple(reversed(range(rank)))


def dict_attrs(*decisions: Decision) -> tvm.ir.DictAttrs:
    """Attributes of a new function, or call, that carries some decisions."""
    entries = {name: value for decision in decisions for name, value in decision.attributes().items()}
    return tvm.ir.make_node("ir.DictAttrs", **entries)


def infer(call: relax.Call) -> relax.Call:
    """The call with the type its operands give it; its span stays."""
    return relax.BlockBuilder().normalize(relax.Call(call.op, call.args, call.attrs, call.ty_args, call.span))


def with_span(expr: relax.Expr, span: tvm.ir.Span | None) -> relax.Expr:
    """The same call or tuple element at another span; leaves are returned as they are."""
    if isinstance(expr, relax.Call):
        return relax.Call(expr.op, expr.args, expr.attrs, expr.ty_args, span, expr.ty)
    if isinstance(expr, relax.TupleGetItem):
        return relax.TupleGetItem(expr.tuple_value, expr.index, span)
    return expr


def substitute(expr: relax.Expr, replace: Replacements) -> relax.Expr:
    """`expr` with variables replaced; the type is inferred anew only where an operand's type changed."""
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
    """A pure function of one dataflow block.

    Variables in `results` become plain Vars, the others DataflowVars, with the names they have.
    replace: expressions that stand for variables no longer bound, applied to bindings and results.
    as_tuple: whether a tuple is returned; None means only for several results.
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
    """`func` with other bindings, and other results where given; parameters and attributes stay."""
    as_tuple = isinstance(func.body.body, relax.Tuple) if as_tuple is None else as_tuple
    results = outputs(func) if results is None else results
    return build(func.params, sequence, results, attrs=func.attrs, as_tuple=as_tuple, replace=replace)


def with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """The module with another `main`."""
    changed = mod.clone()
    changed.update_func(changed.get_global_var("main"), main)
    return changed


def map_dataflow(mod: tvm.IRModule, rewrite: Callable[[relax.Function], relax.Function]) -> tvm.IRModule:
    """The module with `rewrite` applied to every function that `is_dataflow`; the others stay."""
    changed = mod.clone()
    for global_var, func in mod.functions_items():
        if is_dataflow(func):
            changed.update_func(global_var, rewrite(func))
    return changed
