"""Sizes of a model's tensors, which follow from types and are compared with the limits before anything is computed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, op_name, operands
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.limits import Limits, text_of


class ImportSizes:
    """The sizes that an import has reached so far. An instance lives for a single model.

    weights_bytes: of the file's weights.
    longest_vector: elements of the longest tensor of rank 1 so far.
    Methods `refuses...` return why a limit is exceeded, or None.
    """

    def __init__(self, limits: Limits, weights_bytes: int = 0) -> None:
        self.limits = limits
        self.longest_vector = 0
        self._beside_bytes = 3 * weights_bytes  # the weights, and each of them in two other forms
        self._constants: set[relax.Expr] = set()
        self._constants_bytes = 0
        self._num_nodes = 0

    def refuses(self, value: relax.Expr) -> str | None:
        """Check a value before it is computed or bound: its size, its new constants, and itself if it is a constant."""
        reason = refusal_of(value.ty, self.limits)
        if reason:
            return f"its result {reason}"
        shape = _static_shape(value.ty)
        self.longest_vector = max(self.longest_vector, shape[0] if shape and len(shape) == 1 else 0)
        leaves = [leaf for leaf in operands(value) if isinstance(leaf, relax.Var | tvm.ir.GenericConst)]
        constants = [leaf for leaf in leaves if isinstance(leaf, tvm.ir.GenericConst)]
        new = [leaf for leaf in dict.fromkeys(constants) if leaf not in self._constants]
        self._constants.update(new)
        # A dequantized weight is not folded, because kernels use its integers.
        folds = isinstance(value, relax.Call) and len(constants) == len(leaves) and op_name(value) != "relax.dequantize"
        return self.refuses_constant(sum(bytes_of(leaf.ty) for leaf in new) + (bytes_of(value.ty) if folds else 0))

    def computed(self, value: relax.Expr) -> relax.Expr:
        """Return a constant that was counted before it was computed."""
        self._constants.add(value)
        return value

    def refuses_constant(self, num_bytes: int) -> str | None:
        """Count one more constant."""
        self._constants_bytes += num_bytes
        reason = self.limits.excess("folded_bytes", self._constants_bytes - self._beside_bytes)
        return reason and f"constants computed at import, this one the last: {reason}"

    @property
    def is_full(self) -> bool:
        """True where the constants so far exceed their limit."""
        return self._constants_bytes - self._beside_bytes > self.limits.folded_bytes

    def refuses_nodes(self, count: int) -> str | None:
        """Count more nodes."""
        self._num_nodes += count
        return self.limits.excess("nodes", self._num_nodes)


def bytes_of(ty: relax.Type) -> int:
    """Return the bytes of a tensor, or of all fields of a tuple, or 0 for a type without static shape."""
    if isinstance(ty, relax.TupleType):
        return sum(bytes_of(field) for field in ty.fields)
    shape = _static_shape(ty)
    return 0 if shape is None else math.prod(shape) * _element_bytes(ty)


def refusal_of(ty: relax.Type, limits: Limits) -> str | None:
    """Return why a tensor, or field of a tuple, is too large, as a clause, or None where no size is known."""
    for field in ty.fields if isinstance(ty, relax.TupleType) else [ty]:
        shape = _static_shape(field) or []
        if min(shape, default=0) < 0:
            return f"has the shape {text_of(shape)}: less than nothing along an axis"
        reason = limits.excess_of_tensor(shape, _element_bytes(field)) if shape else None
        if reason:
            return f"is too large: {reason}"
    return None


def check_inputs(
    where: Path,
    fixed: Mapping[str, tuple[int, ...]],
    element_bytes: Mapping[str, int],
    given: Mapping[str, Sequence[int]] | None,
    limits: Limits,
) -> None:
    """Check inputs by their final shapes.

    given: the shapes that the user requested.
    Raises BadOptions for such a shape, UnsupportedModel for a shape of the model.
    """
    for name, shape in fixed.items():
        reason = limits.excess_of_tensor(shape, element_bytes.get(name, 1))
        if reason and name in (given or {}):
            raise BadOptions(f"shape of {name} = {text_of(shape)}: {reason}.")
        if reason:
            raise UnsupportedModel(f"{where}: input {name!r} is too large: {reason}.")


def check_results(func: relax.Function, limits: Limits) -> None:
    """Check the parameters and bindings of a function. Raises UnsupportedModel."""
    for var in [*func.params, *(binding.var for binding in bindings(func))]:
        reason = refusal_of(var.ty, limits)
        if reason:
            raise UnsupportedModel(f"{var.name!r} {reason}.")


def check_folding(func: relax.Function, limits: Limits) -> None:
    """Check the number of bindings, and what they compute from constants alone. Raises UnsupportedModel."""
    sequence, sizes = bindings(func), ImportSizes(limits)
    _check("the number of operators", sizes.refuses_nodes(len(sequence)))
    known: set[relax.Var] = set()
    for binding in sequence:
        leaves = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        if known.issuperset(leaves):
            known.add(binding.var)
            _check(f"{binding.var.name!r}", sizes.refuses_constant(bytes_of(binding.var.ty)))


def _check(what: str, reason: str | None) -> None:
    if reason:
        raise UnsupportedModel(f"{what}: {reason}.")


def _static_shape(ty: relax.Type) -> list[int] | None:
    if not isinstance(ty, relax.TensorType) or not isinstance(ty.shape, relax.ShapeExpr):
        return None
    dims = ty.shape.values[:]
    return [int(dim) for dim in dims] if all(isinstance(dim, tvm.tirx.IntImm) for dim in dims) else None


def _element_bytes(ty: relax.TensorType) -> int:
    """Return the bytes of an element. Types of less than a byte take one byte."""
    return max(1, -(-tvm.DataType(str(ty.dtype)).bits // 8))
