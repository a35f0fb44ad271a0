"""Values of a model over time: where their rows come from, and which rows are the same in each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from tvm import relax

from relay_passes.dataflow import bindings, operands, static_shape
from relay_passes.streams.hop_costs import label
from relay_passes.streams.time_rules import Known, Rule, Unruly, rule_of


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """A value over time, as the window has it.

    axis: the axis of time.
    rows: rows along that axis.
    step: frames from one row to the next.
    top, bottom: rows at both ends that differ in each run, because padding touches what they are computed from.
    """

    axis: int
    rows: int
    step: int
    top: int = 0
    bottom: int = 0

    def grain(self, hop: int) -> int:
        """Return the frames between computed rows, such that every position is covered at which a window may begin."""
        return gcd(hop, self.step)

    def spacing(self, hop: int) -> int:
        """Return the number of computed rows from one row of the window to the next."""
        return self.step // self.grain(hop)

    def new_rows(self, hop: int) -> int:
        """Return the number of computed rows that a run adds."""
        return hop // self.grain(hop)


@dataclass(frozen=True, kw_only=True, eq=False)
class Times:
    """The values over time of a function.

    rules: rules of the values that operators compute.
    whole: reasons why other readers of these values are not over time.
    """

    over: Mapping[relax.Var, OverTime]
    rules: Mapping[relax.Var, Rule]
    whole: Mapping[str, str]


def times_of(main: relax.Function, param: relax.Var, axis: int) -> Times:
    """Return the times of the values that are computed from rows of `param` along that axis, as far as rules exist."""
    over = {param: OverTime(axis=axis, rows=static_shape(param)[axis], step=1)}
    rules: dict[relax.Var, Rule] = {}
    whole: dict[str, str] = {}
    constants: set[relax.Var] = set()
    for binding in bindings(main):
        read = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
        if all(leaf in constants for leaf in read):
            constants.add(binding.var)
        if over.keys().isdisjoint(read):
            continue
        known = Known(axes={var: time.axis for var, time in over.items()}, constants=constants)
        rule = rule_of(binding.value, known)
        time = rule if isinstance(rule, Unruly) else _over_time(binding.value, rule, over)
        if isinstance(time, Unruly):
            whole[label(binding)] = time.reason
            continue
        assert isinstance(rule, Rule), "it has a time"
        over[binding.var], rules[binding.var] = time, rule
    return Times(over=over, rules=rules, whole=whole)


def arguments_of(value: relax.Expr) -> list[relax.Expr]:
    """Return arguments by the positions that `Rule.operands` counts, which are fields where a tuple comes first."""
    if isinstance(value, relax.Call) and len(value.args) >= 1 and isinstance(value.args[0], relax.Tuple):
        return list(value.args[0].fields)
    return list(value.args)


def _over_time(value: relax.Expr, rule: Rule, over: Mapping[relax.Var, OverTime]) -> OverTime | Unruly:
    """Return the time of a result, whose border rows read padding or border rows of an operand."""
    given = [over[arguments_of(value)[place]] for place in rule.operands]
    steps = {time.step for time in given}
    if len(steps) > 1:
        return Unruly(reason="joins values of different rates")
    rows = range(rule.rows)
    is_middle = [
        all(time.top <= rule.slide.begin(row) and rule.slide.end(row) <= time.rows - time.bottom for time in given)
        for row in rows
    ]
    if not any(is_middle):
        return Unruly(reason="reads padding, or what padding touches, in each of its rows")
    top, bottom = is_middle.index(True), is_middle[::-1].index(True)
    return OverTime(axis=rule.axis, rows=rule.rows, step=steps.pop() * rule.slide.stride, top=top, bottom=bottom)
