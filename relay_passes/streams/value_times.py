"""Values of a model over time: where their rows come from, and which rows are the same in each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, operands, outputs, static_shape
from relay_passes.streams.hop_costs import label
from relay_passes.streams.recurrences import Carried, Recurrence, recurrence_of, repeated_by
from relay_passes.streams.time_rules import Known, Rule, Slide, Unruly, rule_of
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.decisions.models import KeptStates


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
    recurrences: recurrent layers whose states go on, by the tuple of their results. With them all rows go on: no row is
    computed again because padding would touch it in the window of a run.
    """

    over: Mapping[relax.Var, OverTime]
    rules: Mapping[relax.Var, Rule]
    whole: Mapping[str, str]
    recurrences: Mapping[relax.Var, Recurrence]


def times_of(mod: tvm.IRModule, param: relax.Var, axis: int) -> Times:
    """Return the times of the values that are computed from rows of `param` along that axis, as far as rules exist.

    The states of recurrent layers go on from run to run. If the state of one of them cannot, none does: all of them are
    then computed for the whole window.
    """
    ongoing = _Finder(mod, param, axis, refused=None)
    found = ongoing.run()
    if not ongoing.stuck and (found.recurrences or len(found.over) == 1):
        return found
    return _Finder(mod, param, axis, refused=ongoing.stuck).run()


class _Finder:
    """Finds times in the order of the bindings.

    refused: why recurrent layers cannot go on, by the tuples of their results; None where all of them do.
    stuck: the same reasons as this walk finds them.
    """

    def __init__(
        self, mod: tvm.IRModule, param: relax.Var, axis: int, *, refused: Mapping[relax.Var, Unruly] | None
    ) -> None:
        self.refused, self.stuck = refused, dict[relax.Var, Unruly]()
        self.goes_on = refused is None
        self.functions, self.main = dict(mod.functions_items()), mod["main"]
        self.over = {param: OverTime(axis=axis, rows=static_shape(param)[axis], step=1)}
        self.rules: dict[relax.Var, Rule] = {}
        self.whole: dict[str, str] = {}
        self.recurrences: dict[relax.Var, Recurrence] = {}
        self.constants: set[relax.Var] = set()
        values = {binding.var: binding.value for binding in bindings(self.main)}
        states, results = KeptStates.read(mod).states[::-1], outputs(self.main)[::-1]
        self.carried = {
            param: Carried(left=values.get(result), initial=state.initial)
            for param, result, state in zip(self.main.params[::-1], results, states, strict=False)
        }

    def run(self) -> Times:
        for binding in bindings(self.main):
            read = [leaf for leaf in operands(binding.value) if isinstance(leaf, relax.Var)]
            if all(leaf in self.constants for leaf in read):
                self.constants.add(binding.var)
            if isinstance(binding.value, relax.TupleGetItem) and binding.value.tuple_value in self.recurrences:
                self._element(binding)
            elif not self.over.keys().isdisjoint(read):
                reason = self._add(binding)
                if reason is not None:
                    self.whole[label(binding)] = reason.reason
        return Times(over=self.over, rules=self.rules, whole=self.whole, recurrences=self.recurrences)

    def _add(self, binding: relax.VarBinding) -> Unruly | None:
        """Add the result of an operator that reads rows of time, or return why it cannot be over time."""
        known = Known(axes={var: time.axis for var, time in self.over.items()}, constants=self.constants)
        repeated = repeated_by(binding.value, self.functions)
        if repeated.count and self.refused is not None:
            return self.refused.get(binding.var, Unruly(reason="cannot go on, as another recurrent layer cannot"))
        if repeated.count:
            recurrence = self._recurrence(binding, repeated, known)
            if isinstance(recurrence, Unruly):
                self.stuck[binding.var] = recurrence
                return recurrence
            self.recurrences[binding.var] = recurrence
            return None
        rule = rule_of(binding.value, known)
        time = rule if isinstance(rule, Unruly) else self._over_time(binding.value, rule)
        if isinstance(time, Unruly):
            return time
        assert isinstance(rule, Rule), "it has a time"
        self.over[binding.var], self.rules[binding.var] = time, rule
        return None

    def _recurrence(self, binding: relax.VarBinding, repeated: RepeatedStep, known: Known) -> Recurrence | Unruly:
        found = recurrence_of(binding, repeated, known, self.carried)
        if isinstance(found, Unruly):
            return found
        times = {self.over[found.given[place]] for place in found.sequences}
        if len(times) > 1:
            return Unruly(reason="reads sequences that do not go together")
        if any(time.bottom for time in times):
            return Unruly(reason="reads rows that padding at the end of the window touches")
        return found

    def _element(self, binding: relax.VarBinding) -> None:
        """Add a result of a recurrent layer that has a row for each step. The last states are values of each run."""
        value = binding.value
        recurrence = self.recurrences[value.tuple_value]
        if value.index < recurrence.num_states:
            return
        time = self.over[recurrence.given[recurrence.sequences.start]]

        def make(arguments: Sequence[relax.Expr], _slide: Slide, _padding: tuple[int, int]) -> relax.Expr:
            return relax.TupleGetItem(arguments[0], value.index)

        self.over[binding.var] = replace(time, axis=0)
        self.rules[binding.var] = Rule(operands=(), axis=0, rows=recurrence.steps, slide=Slide(), make=make)

    def _over_time(self, value: relax.Expr, rule: Rule) -> OverTime | Unruly:
        """Return the time of a result, whose border rows read padding or border rows of an operand."""
        given = [self.over[arguments_of(value)[place]] for place in rule.operands]
        steps = {time.step for time in given}
        if len(steps) > 1:
            return Unruly(reason="joins values of different rates")
        rows = range(rule.rows)
        is_middle = [
            all(
                (self.goes_on or time.top <= rule.slide.begin(row)) and rule.slide.end(row) <= time.rows - time.bottom
                for time in given
            )
            for row in rows
        ]
        if not any(is_middle):
            return Unruly(reason="reads padding, or what padding touches, in each of its rows")
        top, bottom = is_middle.index(True), is_middle[::-1].index(True)
        return OverTime(axis=rule.axis, rows=rule.rows, step=steps.pop() * rule.slide.stride, top=top, bottom=bottom)


def arguments_of(value: relax.Expr) -> list[relax.Expr]:
    """Return arguments by the positions that `Rule.operands` counts, which are fields where a tuple comes first."""
    if isinstance(value, relax.TupleGetItem):
        return [value.tuple_value]
    if isinstance(value, relax.Call) and len(value.args) >= 1 and isinstance(value.args[0], relax.Tuple):
        return list(value.args[0].fields)
    return list(value.args)
