"""Match the calls that compute a value: their operators, their constants, and how often their results are read.

A pass describes what it looks for as a pattern, in the form of the expression, and asks a `Dataflow` to match it:

    X, SLOPE = any_value(), any_constant()
    SCALED = op("relax.multiply", X, SLOPE, any_order=True, read_once=True)
    LEAK = op("relax.maximum", X, SCALED)

    match = Dataflow(func).match(LEAK, binding.var)
    match[X], match.array(SLOPE), match.call(SCALED).span

A pattern is also the key of what it matched. A pattern that stands at several positions has to match the same value at
all of them: x in `maximum(x, x * 0.1)`. Matching only reads: the pass writes the new bindings, so that their names,
spans and order stay its own decision.

TVM's matcher, tvm.relax.dpl, is not used, for reasons observed in apache-tvm 0.27:
- `extract_matched_expr` returns the call that computes an operand instead of the variable. The rewritten call needs the
  variable, and only variables tell how many readers a value has.
- It swaps the operands of `add` and `multiply` whether or not the order matters, and never those of `maximum`.
- After an alternative of `|` has matched, it does not try the next alternative when a later operand fails.
- Conditions on numbers, attributes and readers would be a second check in Python after each match.
- Its rewriters rename variables and lose the spans that name the model's own operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from tvm import relax

from relay_passes.dataflow import array_of, bindings, number_of, op_name, operands, returned, users

Found = Mapping["Pattern", relax.Expr]


class Dataflow:
    """The bindings of a function, and what computes, reads and returns each variable."""

    def __init__(self, func: relax.Function) -> None:
        self.func, self.sequence = func, bindings(func)
        self.values: Mapping[relax.Var, relax.Expr] = {binding.var: binding.value for binding in self.sequence}

    @cached_property
    def made(self) -> Mapping[relax.Var, relax.VarBinding]:
        """The binding of each variable except parameters."""
        return {binding.var: binding for binding in self.sequence}

    @cached_property
    def readers(self) -> Mapping[relax.Var, Sequence[relax.VarBinding]]:
        """The bindings that read each variable, as `users` lists them."""
        return users(self.sequence)

    @cached_property
    def returned(self) -> frozenset[relax.Expr]:
        return returned(self.func)

    def sole_reader(self, var: relax.Var) -> relax.VarBinding | None:
        """Return the only reader of a variable, or None where there are others or the function returns the variable."""
        readers = self.readers.get(var, ())
        return readers[0] if len(readers) == 1 and var not in self.returned else None

    def is_inner(self, var: relax.Var, inside: Collection[relax.Var]) -> bool:
        """Return True where only the bindings of the variables `inside` read a variable."""
        return var not in self.returned and all(reader.var in inside for reader in self.readers.get(var, ()))

    def match(self, pattern: Pattern, value: relax.Expr) -> Match | None:
        """Return the first match of a pattern with a variable or with the call that is bound to a variable."""
        found = next(pattern.found(value, self, {}), None)
        return None if found is None else Match(flow=self, found=found)


@dataclass(frozen=True, kw_only=True)
class Match:
    """The value that each pattern of a tree matched. Alternatives that were not taken are not in the match."""

    flow: Dataflow
    found: Found

    def __getitem__(self, pattern: Pattern) -> relax.Expr:
        return self.found[pattern]

    def __contains__(self, pattern: Pattern) -> bool:
        return pattern in self.found

    def call(self, pattern: Pattern) -> relax.Expr:
        """Return the call that is bound to a variable, or a parameter or constant as it is."""
        return self.flow.values.get(self[pattern], self[pattern])

    def array(self, pattern: Pattern) -> np.ndarray:
        """Return the numbers of a constant."""
        return self[pattern].value.numpy()

    def number(self, pattern: Pattern) -> float:
        """Return the number of a constant of one element."""
        return float(self.array(pattern).reshape(-1)[0])


@dataclass(frozen=True, kw_only=True, eq=False)
class Pattern:
    """A condition on a value. This class itself accepts every value that satisfies `where`."""

    where: Callable[[relax.Expr], bool] | None = None

    def found(self, expr: relax.Expr, flow: Dataflow, known: Found) -> Iterator[Found]:
        """Yield each way to match `expr`: `known`, which was matched ahead of it, with this pattern and its parts."""
        if self not in known:
            yield from ({**found, self: expr} for found in self._parts(expr, flow, known))
        elif known[self].same_as(expr):
            yield known

    def _parts(self, expr: relax.Expr, flow: Dataflow, known: Found) -> Iterator[Found]:
        if self.where is None or self.where(expr):
            yield known


@dataclass(frozen=True, kw_only=True, eq=False)
class _Call(Pattern):
    names: frozenset[str]
    operands: tuple[Pattern, ...]
    any_order: bool
    read_once: bool

    def _parts(self, expr: relax.Expr, flow: Dataflow, known: Found) -> Iterator[Found]:
        call = flow.values.get(expr, expr)
        if op_name(call) not in self.names or (self.read_once and flow.sole_reader(expr) is None):
            return
        if self.where is None or self.where(call):
            given = list(operands(call))
            for patterns in (self.operands, self.operands[::-1])[: 1 + self.any_order]:
                yield from _all(patterns, given, flow, known)


def _all(patterns: Sequence[Pattern], given: Sequence[relax.Expr], flow: Dataflow, known: Found) -> Iterator[Found]:
    """Yield each way to match the first of the given values with the patterns, one by one."""
    if not patterns:
        yield known
    elif given:
        for found in patterns[0].found(given[0], flow, known):
            yield from _all(patterns[1:], given[1:], flow, found)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Either(Pattern):
    alternatives: tuple[Pattern, ...]

    def _parts(self, expr: relax.Expr, flow: Dataflow, known: Found) -> Iterator[Found]:
        for alternative in self.alternatives:
            yield from alternative.found(expr, flow, known)


def any_value(where: Callable[[relax.Expr], bool] | None = None) -> Pattern:
    """Match any value, or a value that satisfies `where`."""
    return Pattern(where=where)


def any_variable() -> Pattern:
    """Match a parameter or the variable of a binding, but no constant."""
    return any_value(lambda expr: isinstance(expr, relax.Var))


def any_constant(where: Callable[[np.ndarray], bool] | None = None) -> Pattern:
    """Match a constant, or a constant whose numbers satisfy `where`."""
    return any_value(lambda expr: (numbers := array_of(expr)) is not None and (where is None or where(numbers)))


def number(wanted: float | None = None) -> Pattern:
    """Match a constant of one element, or one that equals `wanted`."""
    return any_value(lambda expr: (found := number_of(expr)) is not None and (wanted is None or found == wanted))


def op(
    names: str | Collection[str],
    *operands: Pattern,
    where: Callable[[relax.Call], bool] | None = None,
    any_order: bool = False,
    read_once: bool = False,
) -> Pattern:
    """Match a call of an operator, such as `relax.add`, or of one of several operators.

    operands: patterns of the first operands, as `dataflow.operands` lists them; further operands may be anything.
    any_order: whether the operands may also stand in reverse order.
    read_once: whether the call's result must have a single reader and not be returned.
    """
    listed = frozenset((names,) if isinstance(names, str) else names)
    return _Call(names=listed, operands=operands, where=where, any_order=any_order, read_once=read_once)


def either(*alternatives: Pattern) -> Pattern:
    """Match the first of several patterns with which the rest of the tree matches too."""
    return _Either(alternatives=alternatives)
