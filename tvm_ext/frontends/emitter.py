"""Relax operators as methods whose results are typed at once, for converters that build several calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.core.decisions.decision import Decision
from tvm_ext.frontends.refusals import Refused

_ELEMENT_WISE = frozenset(
    "add subtract multiply divide power maximum minimum greater greater_equal less less_equal equal not_equal".split()
)


class Emitter:
    """`emit.add(x, 1.0)` is `bb.normalize(relax.op.add(x, const))`, and `emit.nn.relu(x)` works alike.

    In arithmetic and comparisons, a number takes the type of the tensor beside it.
    """

    def __init__(self, bb: relax.BlockBuilder, namespace: Any = relax.op) -> None:
        self.builder, self._namespace = bb, namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._namespace, name)
        return self._method(name, found) if callable(found) else Emitter(self.builder, found)

    def _method(self, name: str, make: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
        def emitted(*operands: Any, **attributes: Any) -> relax.Expr:
            given = _typed(operands) if name in _ELEMENT_WISE else operands
            return self.builder.normalize(make(*given, **attributes))

        return emitted

    def te(self, compute: Callable[..., Any], *operands: Any, name: str, says: Decision | None = None) -> relax.Expr:
        """Call a loop nest of our own, written in TVM's tensor expressions.

        says: a decision that its function carries.
        """
        attrs = says.attributes() if says else None
        return self.builder.normalize(
            self.builder.call_te(compute, *operands, primfunc_name_hint=name, primfunc_attrs=attrs)
        )

    def slice(self, x: relax.Expr, axis: int, begin: int, end: int, step: int = 1) -> relax.Expr:
        """Return elements [begin, end) along an axis, or x itself where that is all of them. A step of -1 reverses."""
        if (begin, end, step) == (0, static_shape(x)[axis], 1):
            return x
        return self.builder.normalize(relax.op.strided_slice(x, [axis], [begin], [end], [step]))

    def reversed(self, x: relax.Expr, axis: int) -> relax.Expr:
        return self.builder.normalize(relax.op.flip(x, axis))

    def transposed(self, x: relax.Expr, axes: list[int]) -> relax.Expr:
        """Permute the axes of x, or return x itself where nothing moves."""
        return x if axes == sorted(axes) else self.builder.normalize(relax.op.permute_dims(x, axes))

    def reshaped(self, x: relax.Expr, shape: tuple[int, ...] | list[int]) -> relax.Expr:
        """Reshape x, or return x itself where it has the shape."""
        return x if static_shape(x) == tuple(shape) else self.builder.normalize(relax.op.reshape(x, list(shape)))

    def cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        return x if dtype_name(x) == dtype else self.builder.normalize(relax.op.astype(x, dtype))


def _typed(operands: tuple[Any, ...]) -> list[Any]:
    """Return numbers as constants of the tensor's type."""
    dtype = next(dtype_name(operand) for operand in operands if isinstance(operand, relax.Expr))
    return [number(operand, dtype) if isinstance(operand, int | float) else operand for operand in operands]


def number(value: float, dtype: str) -> relax.Expr:
    """Return a constant of rank 0."""
    return constant(np.array(value, dtype))


def padded(inputs: Sequence[relax.Expr | None], count: int) -> list[relax.Expr | None]:
    """Return the inputs, with None for inputs that are left out at the end."""
    return [*inputs, *[None] * (count - len(inputs))]


def dtype_name(x: relax.Expr) -> str:
    return str(x.ty.dtype)


def ints_of(x: relax.Expr | None) -> tuple[int, ...] | None:
    """Return the whole numbers of a constant, or None without an operand or where its numbers are unknown."""
    array = None if x is None else array_of(x)
    return None if array is None else tuple(int(value) for value in np.asarray(array).reshape(-1))


def known_ints(value: relax.Expr | None) -> tuple[int, ...]:
    """Return the numbers of an operand that determines the shape of a result.

    Raises Refused where they depend on data.
    """
    found = ints_of(value)
    if found is None:
        raise Refused("the shape of its output depends on data")
    return found
