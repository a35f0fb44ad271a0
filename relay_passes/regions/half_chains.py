"""Operators of float16: a float32 operator between casts, with what follows it element by element, as one chain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tvm import relax

from relay_passes.dataflow import array_of, op_name, operands, static_shape

MOST_MEMBERS = 36
_HALF = "float16"


@dataclass(frozen=True, kw_only=True)
class HalfChains:
    """Chains of a function: casts to float32, an anchor, operators element by element, a cast to float16.

    sequence: the function's bindings. producer, position: of each variable. elementwise: operators that may follow.
    """

    sequence: Sequence[relax.VarBinding]
    producer: Mapping[relax.Var, relax.VarBinding]
    position: Mapping[relax.Var, int]
    elementwise: AbstractSet[str]

    def of(self, anchor: relax.VarBinding) -> Iterator[list[relax.VarBinding]]:
        """Bindings of each chain on an anchor, in their order, the longest first. All its results but the last may be
        read outside; the caller looks."""
        chain = _Chain()
        if not isinstance(anchor.var.ty, relax.TensorType) or not self._take(chain, anchor):
            return
        ends: list[list[relax.VarBinding]] = []
        for candidate in self.sequence[self.position[anchor.var] + 1 :]:
            if len(chain.members) >= MOST_MEMBERS:
                break
            if candidate.var in chain.known or not chain.known & set(operands(candidate.value)):
                continue
            if not self._follows(candidate, anchor) or not self._take(chain, candidate):
                break
            if _is_cast(candidate, _HALF):
                ends.append(sorted(chain.members, key=lambda b: self.position[b.var]))
        yield from reversed(ends)

    def _take(self, chain: _Chain, binding: relax.VarBinding) -> bool:
        """Adds an operator and the casts that widen its other operands; False where one is no widened float16."""
        casts: list[relax.VarBinding] = []
        for leaf in operands(binding.value):
            if leaf in chain.known or not isinstance(leaf, relax.Var):
                continue
            producer = self.producer.get(leaf)
            if producer is None or not _is_widened(producer):
                return False
            casts.append(producer)
        added = [*{cast.var: cast for cast in casts}.values(), binding]
        chain.members.extend(added)
        chain.known.update(member.var for member in added)
        return True

    def _follows(self, candidate: relax.VarBinding, anchor: relax.VarBinding) -> bool:
        """True for a cast between the two types, or an operator on elements of the anchor's result."""
        is_cast = _is_cast(candidate, _HALF) or _is_cast(candidate, "float32")
        if not is_cast and op_name(candidate.value) not in self.elementwise:
            return False
        if static_shape(candidate.var) != static_shape(anchor.var):
            return False
        arrays = [array for leaf in operands(candidate.value) if (array := array_of(leaf)) is not None]
        vectors = all(sum(extent > 1 for extent in array.shape) <= 1 for array in arrays)
        others = [leaf for leaf in operands(candidate.value) if isinstance(leaf, relax.Var)]
        return vectors and all(static_shape(leaf) == static_shape(anchor.var) for leaf in others)


@dataclass(frozen=True, kw_only=True)
class _Chain:
    """Members so far, and their variables."""

    members: list[relax.VarBinding] = field(default_factory=list)
    known: set[relax.Var] = field(default_factory=set)


def _is_cast(binding: relax.VarBinding, dtype: str) -> bool:
    return op_name(binding.value) == "relax.astype" and str(binding.var.ty.dtype) == dtype


def _is_widened(binding: relax.VarBinding) -> bool:
    """True for a cast from float16 to float32."""
    if not _is_cast(binding, "float32"):
        return False
    source = binding.value.args[0]
    return isinstance(source, relax.Var) and str(source.ty.dtype) == _HALF
