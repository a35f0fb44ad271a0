"""Loops of a model as one step that a function in C repeats: code and compile time do not depend on the iterations.

A frontend translates the body of a loop once, over variables for the values that change from iteration to iteration:

    body = LoopBody(statements, states, elements, stacked, condition)
    values = repeat(body, count, emit)                                  a call of the function that repeats the body
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tvm
from tvm import relax

from codegen_c.tir.plain_c import CannotLowerError
from codegen_c.tir.repeat import repeat_step
from relay_passes.dataflow import array_of, build, constant, live, op_name, operands, static_shape, substitute
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.limits import Limits
from tvm_ext.core.memory_exhausted import check_memory
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.frontends.statements import Statements

# Function that builds calls and returns the variables of their results.
Emit = Callable[[Callable[[relax.BlockBuilder], relax.Expr]], list[relax.Expr]]

DATA_DEPENDENT = "control flow that depends on data"

MOST_UNROLLED = 8
"""Iterations up to which a loop of known length is unrolled: kernels and quantization take its operators."""
MOST_UNROLLED_CALLS = 32
"""Operators in all iterations up to which a loop of known length is unrolled."""
MOST_ITERATIONS = 1_000_000
"""Largest number of iterations that counts as a bound; exporters write 2^63 - 1 for a loop without one."""

_LONGEST_INSIDE = 64
"""Elements of the largest constant that stays inside a step; larger ones become parameters, such as weights."""
_VIEWS = frozenset(f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten"))


class NotRepeated(Exception):
    """The reason why a loop cannot run a step in C, as a clause."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopState:
    """A value that an iteration passes to the next one.

    variable: its name inside the body. before: its value before the first iteration. after: its value after an
    iteration. is_wanted: whether anything after the loop reads it.
    """

    variable: relax.Var
    before: relax.Expr
    after: relax.Expr
    is_wanted: bool = True

    @property
    def is_same(self) -> bool:
        """True for a value that no iteration changes."""
        return self.after.same_as(self.variable)


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopCondition:
    """What ends a loop. first: bool scalar for the first iteration. again: bool scalar in the body, for the next."""

    first: relax.Expr
    again: relax.Expr


@dataclass(frozen=True, kw_only=True, eq=False)
class LoopBody:
    """A translated body, and everything that it changes, reads and gives in each iteration.

    elements: variable and sequence [count, ...] of each tensor that is read element by element. stacked: values that
    the loop collects as [count, ...]. condition: None for a loop of `count` iterations. index: the number of the
    iteration, an int64 scalar, if the body may read it.
    """

    statements: Statements
    states: tuple[LoopState, ...]
    elements: tuple[tuple[relax.Var, relax.Expr], ...] = ()
    stacked: tuple[relax.Expr, ...] = ()
    condition: LoopCondition | None = None
    index: relax.Var | None = None

    @property
    def changing(self) -> list[LoopState]:
        """The states that an iteration may change, without those that nothing reads."""
        moved = [state for state in self.states if not state.is_same]
        wanted = [state for state in moved if state.is_wanted]
        needed = set(self._needed([state.after for state in wanted]))
        return [state for state in moved if state.is_wanted or state.variable in needed]

    @property
    def num_calls(self) -> int:
        """Number of operators in the body that compute."""
        values = [binding.value for binding in self.sequence([state.after for state in self.changing])]
        return sum(isinstance(value, relax.Call) and op_name(value) not in _VIEWS for value in values)

    def sequence(self, after: Sequence[relax.Expr]) -> list[relax.VarBinding]:
        """Return the statements that the condition, the stacked values and `after` need."""
        bound = [relax.VarBinding(one.var, one.value) for one in self.statements.list]
        return live(bound, self.results(after))

    def results(self, after: Sequence[relax.Expr]) -> list[relax.Expr]:
        """Return the results of a step whose states become `after`."""
        return [*([self.condition.again] if self.condition else []), *after, *self.stacked]

    def _needed(self, after: Sequence[relax.Expr]) -> list[relax.Expr]:
        found = [leaf for binding in self.sequence(after) for leaf in operands(binding.value)]
        return [*found, *self.results(after)]


@dataclass(frozen=True, kw_only=True)
class LoopResults:
    """Values after a loop. states: in the order of the body's, None for those that nothing reads."""

    states: tuple[relax.Expr | None, ...]
    stacked: tuple[relax.Expr, ...]


def repeat(body: LoopBody, count: int, emit: Emit, *, is_backward: bool = False) -> LoopResults:
    """Write a call of a function that runs the body `count` times, or until its condition is false.

    is_backward: the iterations read and stack the last element first. Raises NotRepeated if the body cannot run in C
    as a step.
    """
    changing = body.changing
    same = {state.variable: state.before for state in body.states if state.is_same}
    indices = [body.index] if body.index is not None else []
    params = [*indices, *(state.variable for state in changing), *(variable for variable, _ in body.elements)]
    step, read = _step(body, params, [state.after for state in changing], same)
    loop = RepeatedStep(
        count=count, num_states=len(changing), num_sequences=len(body.elements), is_backward=is_backward,
        has_index=body.index is not None, is_open=body.condition is not None,
    )  # fmt: skip
    try:
        function = repeat_step(step["main"], loop, step)
    except CannotLowerError as error:
        raise NotRepeated(f"its body needs {error}") from error
    except Exception as error:  # TVM raises exceptions of many types for a body that it cannot lower
        check_memory(error)
        raise NotRepeated("TVM does not make loops of its body") from error
    types = _result_types(step["main"], loop)
    first = [body.condition.first] if body.condition else []
    given = [*first, *(state.before for state in changing), *(sequence for _, sequence in body.elements), *read]

    def call(builder: relax.BlockBuilder) -> relax.Expr:
        name = builder.add_func(function.function, "repeated_step")
        made = builder.emit(relax.call_tir(name, relax.Tuple([*given, *map(constant, function.constants)]), types))
        if len(types) == 1:
            return made
        return relax.Tuple([builder.emit(relax.TupleGetItem(made, index)) for index in range(len(types))])

    results = emit(call)[loop.is_open :]
    final = {state.variable: value for state, value in zip(changing, results, strict=False)}
    return LoopResults(
        states=tuple(final.get(state.variable, same.get(state.variable)) for state in body.states),
        stacked=tuple(results[len(changing) :]),
    )


def _step(
    body: LoopBody, params: Sequence[relax.Var], after: Sequence[relax.Expr], same: Mapping[relax.Expr, relax.Expr]
) -> tuple[tvm.IRModule, list[relax.Expr]]:
    """Return a module with `main` of the states and elements, and the outer values that are its further parameters.

    same: values of the states that no iteration changes.
    """
    sequence, results = body.sequence(after), body.results(after)
    inside = {*params, *(binding.var for binding in sequence)}
    leaves = [leaf for binding in sequence for leaf in operands(binding.value)] + results
    read = [leaf for leaf in dict.fromkeys(leaves) if _is_outside(leaf, inside)]
    renamed: dict[relax.Expr, relax.Expr] = {
        leaf: relax.Var(f"outer{index}", leaf.ty) for index, leaf in enumerate(read)
    }
    named: list[relax.VarBinding] = []
    for index, binding in enumerate(sequence):
        value = substitute(binding.value, renamed)
        renamed[binding.var] = relax.DataflowVar(f"value{index}", binding.var.ty)
        named.append(relax.VarBinding(renamed[binding.var], value))
    given = [*params, *(renamed[leaf] for leaf in read)]
    main = build(given, named, [substitute(result, renamed) for result in results], as_tuple=True)
    module = tvm.IRModule({tvm.ir.GlobalVar("main"): main, **body.statements.helpers(main)})
    return module, [same.get(leaf, leaf) for leaf in read]


def _is_outside(leaf: relax.Expr, inside: set[relax.Expr]) -> bool:
    if isinstance(leaf, tvm.ir.GenericConst):
        return math.prod(static_shape(leaf)) > _LONGEST_INSIDE and str(leaf.ty.dtype).startswith("float")
    return isinstance(leaf, relax.Var) and leaf not in inside


def _result_types(main: relax.Function, loop: RepeatedStep) -> list[relax.TensorType]:
    fields = list(main.ret_ty.fields)[loop.is_open :]
    passes = [relax.TensorType((), "int32")] * loop.is_open
    stacked = [
        relax.TensorType((loop.count, *(int(extent) for extent in field.shape.values)), str(field.dtype))
        for field in fields[loop.num_states :]
    ]
    return [*passes, *fields[: loop.num_states], *stacked]


def is_short(body: LoopBody, count: int) -> bool:
    """Return True if a loop of known length is unrolled."""
    return count <= MOST_UNROLLED or count * body.num_calls <= MOST_UNROLLED_CALLS


def bound_of(known: Sequence[int], limits: Limits, label: str, missing: str) -> int:
    """Return the largest number of iterations of a loop that data end, with a ModelNotice.

    known: bounds that follow from the model. missing: why there may be none, as a clause. Raises Refused without bound.
    """
    bounds = [number for number in known if number <= MOST_ITERATIONS] or [limits.iterations]
    if (bound := min(bounds)) == 0:
        raise Refused(
            f"{DATA_DEPENDENT}, and {missing}; give one with --limit iterations=..., in Python Limits(iterations=...)"
        )
    warnings.warn(
        f"{label}: data end the loop, after at most {bound:,} iterations; the worst case is that of all iterations.",
        ModelNotice, stacklevel=2,
    )  # fmt: skip
    return bound


@dataclass(frozen=True, kw_only=True)
class LoopEnding:
    """Number of iterations that follows from a counter in a loop's condition.

    most: iterations after which the condition is false. is_exact: True if nothing else is in the condition.
    """

    most: int
    is_exact: bool


_WIDE = frozenset({"int32", "int64", "float32", "float64"})
"""Types to which a counter may be cast ahead of its comparison."""
_LARGEST_EXACT = 1 << 24
"""Largest number up to which float32 holds all whole numbers."""
_COMPARISONS = {"relax.less": (False, 0), "relax.less_equal": (False, 1), "relax.greater": (True, 0),
                "relax.greater_equal": (True, 1)}  # fmt: skip
"""Comparisons: whether the counter stands on the right, and how much the bound is above the number beside it."""


def ending_of(body: LoopBody, condition: relax.Expr) -> LoopEnding | None:
    """Return the end of a loop whose condition compares a counter with a constant; None without such a comparison.

    condition: computed at the end of an iteration, for the next one.
    """
    counters = [state for state in body.states if whole_number(state.before) is not None]
    return _ending(condition, counters, {one.var: one.value for one in body.statements.list}, body.index)


def _ending(
    condition: relax.Expr,
    states: Sequence[LoopState],
    values: Mapping[relax.Var, relax.Expr],
    index: relax.Var | None,
) -> LoopEnding | None:
    condition = _seen_through(condition, values)
    value = values.get(condition)
    name = op_name(value)
    if name == "relax.logical_and":
        found = [_ending(operand, states, values, index) for operand in value.args[:]]
        known = [ending for ending in found if ending]
        if not known:
            return None
        is_exact = len(known) == len(found) and all(ending.is_exact for ending in known)
        return LoopEnding(most=min(ending.most for ending in known), is_exact=is_exact)
    if name not in _COMPARISONS:
        return None
    is_right, above = _COMPARISONS[name]
    operands = [_seen_through(operand, values) for operand in value.args[:]]
    counter, limit = reversed(operands) if is_right else operands
    number, counted = _limit(limit, states), _counted(counter, states, values, index)
    if number is None or counted is None:
        return None
    first, step = counted
    return LoopEnding(most=max(1, -(-(number + above - first) // step) + 1), is_exact=True)


def _limit(limit: relax.Expr, states: Sequence[LoopState]) -> int | None:
    """Return the whole number with which a counter is compared, also of a state that no iteration changes."""
    value = next((state.before for state in states if state.is_same and limit.same_as(state.variable)), limit)
    array = array_of(value)
    if array is None or array.size != 1 or array.dtype.kind not in "iuf":
        return None
    number = float(array.reshape(-1)[0])
    return int(number) if number.is_integer() and abs(number) <= _LARGEST_EXACT else None


def _counted(
    counter: relax.Expr, states: Sequence[LoopState], values: Mapping[relax.Var, relax.Expr], index: relax.Var | None
) -> tuple[int, int] | None:
    """Return a counter's value in the first iteration, and by how much each iteration increases it, or None."""
    if index is not None:
        if counter.same_as(index):
            return 0, 1
        if (step := _step_of(counter, index, values)) is not None:
            return step, 1
    for state in states:
        step = _step_of(_seen_through(state.after, values), state.variable, values)
        begin = whole_number(state.before)
        if step is None or begin is None:
            continue
        if counter.same_as(state.variable):
            return begin, step
        if (added := _step_of(counter, state.variable, values)) is not None:
            return begin + added, step
    return None


def whole_number(value: relax.Expr) -> int | None:
    """Return a constant of one integer as a number, or None for anything else."""
    array = array_of(value)
    is_one = array is not None and array.size == 1 and array.dtype.kind in "iu"
    return int(array.reshape(-1)[0]) if is_one and array is not None else None


def _step_of(after: relax.Expr, before: relax.Var, values: Mapping[relax.Var, relax.Expr]) -> int | None:
    """Return by how much an iteration increases a counter; None unless the value is such a sum."""
    value = values.get(after)
    if op_name(value) != "relax.add":
        return None
    first, second = (_seen_through(operand, values) for operand in value.args[:])
    for operand, step in ((first, whole_number(second)), (second, whole_number(first))):
        if step is not None and step > 0 and operand.same_as(before):
            return step
    return None


def _seen_through(value: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """Return the operand behind reshapes of whole numbers and truth values, and behind casts that keep them."""
    while op_name(call := values.get(value)) in (*_VIEWS, "relax.astype"):
        before, after = str(call.args[0].ty.dtype), str(call.ty.dtype)
        if not before.startswith(("int", "bool")) or after not in (before, *_WIDE):
            break
        value = call.args[0]
    return value
