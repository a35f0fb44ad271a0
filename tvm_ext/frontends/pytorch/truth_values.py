"""Products of truth values, comparisons of a tensor with itself, scaled sums and rounded quotients, which programs are
decomposed to.

TVM multiplies bools as numbers, which LLVM does not take and compilers of C warn of, and takes `x == x` for true,
which it is not where x is NaN: torch finds infinities by both. It leaves out the alpha of sums,
and takes a number that divides for an int32.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tvm import relax

from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused

Converter = Callable[[Any, Any], relax.Expr]


def _arithmetic(
    make: Callable[..., relax.Expr], plain: Callable[..., Any], logic: Callable[..., relax.Expr]
) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """torch's node, TVM's importer -> both operands by logic where they are bools."""
        operands = [importer.env.get(arg) if hasattr(arg, "op") else None for arg in node.args[:2]]
        if all(value is not None and str(value.ty.dtype) == "bool" for value in operands):
            return importer.block_builder.emit(logic(*operands))
        return importer._binary_op(make, plain)(node)

    return convert


def _comparison(make: Callable[..., relax.Expr], plain: Callable[..., Any], *, of_nan: bool) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """torch's node, TVM's importer -> where a tensor is NaN, or is not, where it is compared with itself."""
        left, right = node.args[:2]
        if left is not right or not str(importer.env[left].ty.dtype).startswith("float"):
            return importer._binary_op(make, plain)(node)
        is_nan = importer.block_builder.emit(relax.op.isnan(importer.env[left]))
        return is_nan if of_nan else importer.block_builder.emit(relax.op.logical_not(is_nan))

    return convert


def _scaled(make: Callable[..., relax.Expr], plain: Callable[..., Any], *, is_reversed: bool = False) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """torch's node, TVM's importer -> a sum or difference of one operand and alpha times the other."""
        given, emit = arguments_of(node), importer.block_builder.emit
        alpha, first, second = given.get("alpha", 1), given["self"], given["other"]
        if alpha == 1 and not is_reversed:
            return importer._binary_op(make, plain)(node)
        if is_reversed:
            first, second = second, first
        types = {str(importer.env[operand].ty.dtype) for operand in (first, second) if hasattr(operand, "op")}
        dtype, numbers = min(types), [value for value in (alpha, first, second) if not hasattr(value, "op")]
        if len(types) > 1 or (not dtype.startswith("float") and any(isinstance(value, float) for value in numbers)):
            raise Refused(f"{node.target.__name__} of {', '.join(sorted(types))} and {numbers}; give all one type")
        x, y = (
            importer.env[operand] if hasattr(operand, "op") else relax.const(operand, dtype)
            for operand in (first, second)
        )
        return emit(make(x, y if alpha == 1 else emit(relax.op.multiply(y, relax.const(alpha, dtype)))))

    return convert


def _rounded_quotient(node: Any, importer: Any) -> relax.Expr:
    """torch's node, TVM's importer -> the quotient, towards zero or down, in the type that both operands have."""
    given, emit = arguments_of(node), importer.block_builder.emit
    x, divisor, mode = importer.env[given["self"]], given["other"], given.get("rounding_mode")
    if isinstance(divisor, float) and not str(x.ty.dtype).startswith("float"):
        x = emit(relax.op.astype(x, "float32"))
    y = relax.const(divisor, x.ty.dtype) if isinstance(divisor, int | float) else importer.env[divisor]
    if mode not in ("floor", "trunc") or str(x.ty.dtype) != str(y.ty.dtype):
        raise Refused(f"division of {x.ty.dtype} by {y.ty.dtype}, rounding_mode {mode}; divide equal types")
    if mode == "floor":
        return emit(relax.op.floor_divide(x, y))
    quotient = emit(relax.op.divide(x, y))
    return emit(relax.op.trunc(quotient)) if str(x.ty.dtype).startswith("float") else quotient


CONVERTERS: dict[str, Converter] = {
    "mul.Tensor": _arithmetic(relax.op.multiply, operator.mul, relax.op.logical_and),
    **{f"add.{kind}": _scaled(relax.op.add, operator.add) for kind in ("Tensor", "Scalar")},
    **{f"sub.{kind}": _scaled(relax.op.subtract, operator.sub) for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": _scaled(relax.op.subtract, operator.sub, is_reversed=True) for kind in ("Tensor", "Scalar")},
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "eq.Tensor": _comparison(relax.op.equal, operator.eq, of_nan=False),
    "ne.Tensor": _comparison(relax.op.not_equal, operator.ne, of_nan=True),
}
"""Converters for TVM's importer by operator; what is neither is TVM's own."""
