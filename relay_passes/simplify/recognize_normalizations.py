"""Recognize LayerNorm and RMSNorm that exporters without these operators write out, as single operators."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import (
    array_of,
    constant,
    infer,
    map_dataflow,
    op_name,
    operands,
    static_shape,
    with_span,
    with_values,
)  # fmt: skip
from relay_passes.patterns import Dataflow, Match, Pattern, any_value, either, number, op


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


def _is_over_last(mean: relax.Call) -> bool:
    rank = len(static_shape(mean.args[0]))
    axes = [int(axis) % rank for axis in mean.attrs.axis or range(rank)]
    return axes == [rank - 1] and bool(mean.attrs.keepdims)


def _is_vectors(expr: relax.Expr) -> bool:
    """Return True for float32 variables of several axes: TVM's loops need an axis besides the normalized axis."""
    return isinstance(expr, relax.Var) and str(expr.ty.dtype) == "float32" and expr.ty.ndim > 1


_SOURCE, _EPSILON = any_value(_is_vectors), number()


def _mean(of: Pattern) -> Pattern:
    return op("relax.mean", of, where=_is_over_last)


def _centered() -> Pattern:
    return op("relax.subtract", _SOURCE, _mean(_SOURCE))


def _quotient(dividend: Pattern, squared: Pattern) -> Pattern:
    """Match the quotient of `dividend` and the root of the mean of squares of `squared` plus a constant."""
    squares = either(op("relax.multiply", squared, squared), op("relax.power", squared, number(2)))
    total = op("relax.add", _mean(squares), _EPSILON, any_order=True)
    root = op("relax.sqrt", total)
    inverse = either(op("relax.rsqrt", total), op("relax.divide", number(1), root))
    product = op("relax.multiply", dividend, inverse, any_order=True)
    return either(op("relax.divide", dividend, root), product)


# Exporters compute the centered value once or twice, so these are two patterns of the same form.
_LAYER_NORM, _RMS_NORM = _quotient(_centered(), _centered()), _quotient(_SOURCE, _SOURCE)
_NORM = either(_LAYER_NORM, _RMS_NORM)


def _recognized(func: relax.Function) -> relax.Function:
    flow = Dataflow(func)
    replaced: dict[relax.Var, relax.Call] = {}
    for binding in flow.sequence:
        match = flow.match(_NORM, binding.var)
        if match is not None:
            weight, bias, last = _affine(binding, flow, has_bias=_LAYER_NORM in match)
            replaced[last.var] = with_span(_call(match, weight, bias), binding.value.span)
    return with_values(func, replaced)


def _call(match: Match, weight: np.ndarray, bias: np.ndarray) -> relax.Call:
    source, epsilon, operator = match[_SOURCE], match.number(_EPSILON), relax.op.nn
    if _LAYER_NORM in match:
        return infer(operator.layer_norm(source, constant(weight), constant(bias), axes=[-1], epsilon=epsilon))
    return infer(operator.rms_norm(source, constant(weight), axes=[-1], epsilon=epsilon))


def _affine(
    core: relax.VarBinding, flow: Dataflow, *, has_bias: bool
) -> tuple[np.ndarray, np.ndarray, relax.VarBinding]:
    """Return weight and bias, float32[C], that follow the quotient, and the last of their bindings."""
    length, last = static_shape(core.var)[-1], core
    weight, bias = np.ones(length, np.float32), np.zeros(length, np.float32)
    for name in ("relax.multiply", *(["relax.add"] if has_bias else [])):
        following = flow.sole_reader(last.var)
        if following is None or op_name(following.value) != name:
            continue
        array = _per_element(following, last.var, length)
        if array is not None:
            weight, bias = (array, bias) if name == "relax.multiply" else (weight, array)
            last = following
    return weight, bias, last


def _per_element(binding: relax.VarBinding, var: relax.Var, length: int) -> np.ndarray | None:
    """Return the constant operand with one number for each element of a vector, or None for any other operand."""
    arrays = [array for leaf in operands(binding.value) if (array := array_of(leaf)) is not None]
    if len(arrays) != 1 or static_shape(binding.var) != static_shape(var) or arrays[0].size not in (1, length):
        return None
    if arrays[0].size == length != 1 and arrays[0].shape[-1] != length:
        return None
    return np.broadcast_to(arrays[0].reshape(-1), length).astype(np.float32)
