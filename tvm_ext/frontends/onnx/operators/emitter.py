"""Relax operators as methods, each result typed at once, for converters that build more than one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape


class Emitter:
    """`emit.add(x, 1.0)` is `bb.normalize(relax.op.add(x, const))`; `emit.nn.relu(x)` likewise.

    Numbers beside a tensor take the type of the first tensor among the operands.
    """

    def __init__(self, bb: relax.BlockBuilder, namespace: Any = relax.op) -> None:
        self._bb, self._namespace = bb, namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._namespace, name)
        return self._method(found) if callable(found) else Emitter(self._bb, found)

    def _method(self, make: Callable[..., relax.Expr]) -> Callable[..., relax.Expr]:
        def emitted(*operands: Any, **attributes: Any) -> relax.Expr:
            return self._bb.normalize(make(*_typed(operands), **attributes))

        return emitted

    def te(self, compute: Callable[..., Any], *operands: Any, name: str) -> relax.Expr:
        """A loop nest of our own, written in TVM's tensor expressions."""
        return self._bb.normalize(self._bb.call_te(compute, *operands, primfunc_name_hint=name))

    def slice(self, x: relax.Expr, axis: int, begin: int, end: int, step: int = 1) -> relax.Expr:
        """Elements [begin, end) along one axis; x itself where that is all of it. A step of -1 reverses."""
        if (begin, end, step) == (0, static_shape(x)[axis], 1):
            return x
        return self._bb.normalize(relax.op.strided_slice(x, [axis], [begin], [end], [step]))

    def reversed(self, x: relax.Expr, axis: int) -> relax.Expr:
        return self._bb.normalize(relax.op.flip(x, axis))

    def transposed(self, x: relax.Expr, axes: list[int]) -> relax.Expr:
        """permute_dims; x itself where nothing moves."""
        return x if axes == sorted(axes) else self._bb.normalize(relax.op.permute_dims(x, axes))

    def reshaped(self, x: relax.Expr, shape: tuple[int, ...] | list[int]) -> relax.Expr:
        """reshape; x itself where it has the shape."""
        return x if static_shape(x) == tuple(shape) else self._bb.normalize(relax.op.reshape(x, list(shape)))

    def cast(self, x: relax.Expr, dtype: str) -> relax.Expr:
        return x if dtype_name(x) == dtype else self._bb.normalize(relax.op.astype(x, dtype))


def _typed(operands: tuple[Any, ...]) -> list[Any]:
    """Numbers in element-wise calls as constants of the tensors' type."""
    is_number = [isinstance(operand, int | float) and not isinstance(operand, bool) for operand in operands]
    tensor = next((o for o in operands if isinstance(o, relax.Expr) and isinstance(o.ty, relax.TensorType)), None)
    both = len(operands) in (2, 3) and any(is_number) and tensor is not None and is_number != [False, True, True]
    if not both:
        return list(operands)
    dtype = dtype_name(tensor)
    return [number(o, dtype) if plain else o for o, plain in zip(operands, is_number, strict=True)]


def number(value: float, dtype: str) -> relax.Expr:
    """A constant of rank 0."""
    return constant(np.array(value, dtype))


def dtype_name(x: relax.Expr) -> str:
    return str(x.ty.dtype)


def ints_of(x: relax.Expr | None) -> tuple[int, ...] | None:
    """The whole numbers of a constant; None where there is no operand or its numbers are not known."""
    array = None if x is None else array_of(x)
    return None if array is None else tuple(int(value) for value in np.asarray(array).reshape(-1))
