"""Recognize LayerNorm and RMSNorm that exporters without these operators write out, as single operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    users,
    with_span,
)


@tvm.transform.module_pass(opt_level=0, name="RecognizeNormalizations")
class RecognizeNormalizations:
    """Find vectors that are divided by their root mean square along the last axis.

    Rewrite:
        d = x - mean(x); y = d / sqrt(mean(d * d) + e) * w + b   ->   y = layer_norm(x, w, b, epsilon=e)
        y = x / sqrt(mean(x * x) + e) * w                        ->   y = rms_norm(x, w, epsilon=e)
        Squares may be powers, quotients may be products with rsqrt or with 1 / sqrt, and w and b may be absent.
    Leaves alone: means over other axes; weights and biases other than a constant for each element of the vector;
    tensors of types other than float32. Intermediate results that other operators read are still computed for them.
    """

    def transform_module(self, mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        return map_dataflow(mod, _recognized)


@dataclass(frozen=True, kw_only=True)
class _Core:
    """The quotient of `source`, less its mean where it is centered, and its root mean square."""

    source: relax.Var
    epsilon: float
    is_centered: bool


def _recognized(func: relax.Function) -> relax.Function:
    sequence = bindings(func)
    values = {binding.var: binding.value for binding in sequence}
    readers, returned = users(sequence), {leaf for result in outputs(func) for leaf in operands(result)}
    replaced: dict[relax.Var, relax.Call] = {}
    for binding in sequence:
        core = _core(binding, values)
        if core is not None:
            weight, bias, last = _affine(binding, core, readers, returned)
            replaced[last.var] = with_span(_call(core, weight, bias), binding.value.span)
    if not replaced:
        return func
    rewritten = [relax.VarBinding(b.var, replaced.get(b.var, b.value)) for b in sequence]
    return rebuild(func, live(rewritten, outputs(func)))


def _call(core: _Core, weight: np.ndarray, bias: np.ndarray) -> relax.Call:
    operator = relax.op.nn
    if core.is_centered:
        call = operator.layer_norm(core.source, constant(weight), constant(bias), axes=[-1], epsilon=core.epsilon)
    else:
        call = operator.rms_norm(core.source, constant(weight), axes=[-1], epsilon=core.epsilon)
    return infer(call)


def _core(binding: relax.VarBinding, values: Mapping[relax.Var, relax.Expr]) -> _Core | None:
    """Return the quotient that a binding computes, or None."""
    args = list(operands(binding.value))
    pairs: list[tuple[relax.Expr, relax.Call]] = []
    if op_name(binding.value) == "relax.divide":
        pairs = [(args[0], root) for root in _calls(args[1], values, "relax.sqrt")]
    elif op_name(binding.value) == "relax.multiply":
        pairs = [
            (value, root) for value, other in (args, args[::-1]) for root in _inverse_roots(other, values)
        ]  # fmt: skip
    for value, root in pairs:
        found = _length(value, root, values)
        # TVM's own loops for both operators need at least one axis besides the normalized axis.
        if found is not None and str(found.source.ty.dtype) == "float32" and found.source.ty.ndim > 1:
            return found
    return None


def _inverse_roots(value: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> list[relax.Call]:
    """Return the rsqrt that computes a value, or the sqrt that 1 is divided by to compute it."""
    found = _calls(value, values, "relax.rsqrt")
    for quotient in _calls(value, values, "relax.divide"):
        if _number(quotient.args[0]) == 1:
            found += _calls(quotient.args[1], values, "relax.sqrt")
    return found


def _length(value: relax.Expr, root: relax.Call, values: Mapping[relax.Var, relax.Expr]) -> _Core | None:
    """Return the normalization whose divisor is `root`: the root of the mean of squares of `value` plus a constant."""
    for total in _calls(root.args[0], values, "relax.add"):
        for mean, number in (total.args[:], total.args[:][::-1]):
            epsilon = _number(number)
            for squares in _calls(mean, values, "relax.mean"):
                if epsilon is not None and _is_over_last(squares) and _is_square(squares.args[0], value, values):
                    source = _centered(value, values)
                    kept = source if source is not None else value
                    if isinstance(kept, relax.Var):
                        return _Core(source=kept, epsilon=epsilon, is_centered=source is not None)
    return None


def _is_square(value: relax.Expr, of: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> bool:
    """Return True where `value` is the square of `of`, or of a variable that is computed in the same manner."""
    for call in _calls(value, values, "relax.multiply", "relax.power"):
        first, second = call.args
        is_power = op_name(call) == "relax.power"
        if (_number(second) == 2 if is_power else first.same_as(second)) and _is_same(first, of, values):
            return True
    return False


def _is_same(one: relax.Expr, other: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> bool:
    """Return True for equal variables, and for two variables that subtract the mean from the same variable."""
    if one.same_as(other):
        return True
    first, second = _centered(one, values), _centered(other, values)
    return first is not None and second is not None and first.same_as(second)


def _centered(value: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Var | None:
    """Return the variable from which a value subtracts the mean."""
    for call in _calls(value, values, "relax.subtract"):
        source, other = call.args
        for mean in _calls(other, values, "relax.mean"):
            if isinstance(source, relax.Var) and mean.args[0].same_as(source) and _is_over_last(mean):
                return source
    return None


def _is_over_last(mean: relax.Call) -> bool:
    rank = len(static_shape(mean.args[0]))
    axes = [int(axis) % rank for axis in mean.attrs.axis or range(rank)]
    return axes == [rank - 1] and bool(mean.attrs.keepdims)


def _affine(
    core: relax.VarBinding, found: _Core, readers: Mapping[relax.Var, Sequence[relax.VarBinding]],
    returned: set[relax.Expr],
) -> tuple[np.ndarray, np.ndarray, relax.VarBinding]:  # fmt: skip
    """Return weight and bias, float32[C], that follow the quotient, and the last of their bindings."""
    length, last = static_shape(core.var)[-1], core
    weight, bias = np.ones(length, np.float32), np.zeros(length, np.float32)
    for name in ("relax.multiply", *(["relax.add"] if found.is_centered else [])):
        following = readers.get(last.var, [])
        if len(following) != 1 or last.var in returned or op_name(following[0].value) != name:
            continue
        array = _per_element(following[0], last.var, length)
        if array is not None:
            weight, bias = (array, bias) if name == "relax.multiply" else (weight, array)
            last = following[0]
    return weight, bias, last


def _per_element(binding: relax.VarBinding, var: relax.Var, length: int) -> np.ndarray | None:
    """Return the constant operand with one number for each element of a vector, or None for any other operand."""
    arrays = [array for leaf in operands(binding.value) if (array := array_of(leaf)) is not None]
    if len(arrays) != 1 or static_shape(binding.var) != static_shape(var) or arrays[0].size not in (1, length):
        return None
    if arrays[0].size == length != 1 and arrays[0].shape[-1] != length:
        return None
    return np.broadcast_to(arrays[0].reshape(-1), length).astype(np.float32)


def _calls(value: relax.Expr, values: Mapping[relax.Var, relax.Expr], *names: str) -> list[relax.Call]:
    """Return the call of one of these operators that computes a value, or an empty list."""
    call = values.get(value) if isinstance(value, relax.Var) else value
    return [call] if call is not None and op_name(call) in names else []


def _number(value: relax.Expr) -> float | None:
    array = array_of(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None
