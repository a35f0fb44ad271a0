"""Values of a model over time: where their rows come from, and which rows are the same in each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from math import gcd

import tvm
from tvm import relax

from relay_passes.dataflow import bindings, operands, outputs, static_shape
from relay_passes.streams.attentions import TimeAttention, attentions_of
from relay_passes.streams.hop_costs import label
from relay_passes.streams.recurrences import Carried, Recurrence, recurrence_of, repeated_by
from relay_passes.streams.time_rules import Known, Rule, Slide, Unruly, rule_of, same_call
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.core.decisions.models import KeptStates

_NOT_OVER_TIME = Unruly(reason="is a product of values that the model computes")


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
    recurrences: recurrent layers whose states go on, by the tuple of their results.
    inner: values inside of attentions.
    goes_on: whether all rows go on, as they do with recurrent layers: no row is computed again because padding would
    touch it in the window of a run.
    """

    over: Mapping[relax.Var, OverTime]
    rules: Mapping[relax.Var, Rule]
    whole: Mapping[str, str]
    recurrences: Mapping[relax.Var, Recurrence]
    inner: Set[relax.Var]
    goes_on: bool

    @property
    def attentions(self) -> dict[relax.Var, Rule]:
        """The rules of attentions by their results."""
        return {var: rule for var, rule in self.rules.items() if rule.attention is not None}


def times_of(mod: tvm.IRModule, param: relax.Var, axis: int, hop: int, *, goes_on: bool = False) -> Times:
    """Return the times of the values that are computed from rows of `param` along that axis, as far as rules exist.

    The states of recurrent layers go on from run to run. If the state of one of them cannot, none does: all of them are
    then computed for the whole window.
    hop: number of new rows per run. goes_on: whether all rows go on also without recurrent layers, so that padding is
    that of the first window only.
    """
    refused: dict[relax.Var, Unruly] = {}
    while True:
        finder = _Finder(mod, param, axis, hop, refused, goes_on=goes_on)
        found = finder.run()
        if not finder.stuck:
            return found
        refused |= finder.stuck


class _Finder:
    """Finds times in the order of the bindings.

    refused: why recurrent layers cannot go on, and why attentions are not over time, by their results.
    stuck: more such reasons, as this walk finds them.
    """

    def __init__(
        self,
        mod: tvm.IRModule,
        param: relax.Var,
        axis: int,
        hop: int,
        refused: Mapping[relax.Var, Unruly],
        *,
        goes_on: bool,
    ) -> None:
        self.refused, self.stuck = refused, dict[relax.Var, Unruly]()
        self.functions, self.main, self.hop = dict(mod.functions_items()), mod["main"], hop
        loops = {b.var for b in bindings(self.main) if repeated_by(b.value, self.functions).count}
        self.has_recurrences = bool(loops) and loops.isdisjoint(refused)
        self.goes_on = goes_on or self.has_recurrences
        self.attentions = {var: attention for var, attention in attentions_of(self.main).items() if var not in refused}
        self.inner = {var for attention in self.attentions.values() for var in attention.inner}
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
            if binding.var in self.inner:
                continue
            if isinstance(binding.value, relax.TupleGetItem) and binding.value.tuple_value in self.recurrences:
                self._element(binding)
            elif not self.over.keys().isdisjoint(read):
                reason = self._add(binding)
                if reason is not None:
                    self.whole[label(binding)] = reason.reason
        times = Times(
            over=self.over, rules=self.rules, whole=self.whole, recurrences=self.recurrences, inner=self.inner,
            goes_on=self.goes_on,
        )  # fmt: skip
        needed = needed_rows(self.main, times)
        for var, rule in times.attentions.items():
            if rule.reach is not None and rule.reach.is_last_only and needed.get(var, rule.rows) < rule.rows - 1:
                self.stuck[var] = Unruly(reason="reads all rows of the window for each row")
        self.stuck |= {
            var: _NOT_OVER_TIME for var in self.attentions if var not in self.rules and var not in self.stuck
        }
        return times

    def _add(self, binding: relax.VarBinding) -> Unruly | None:
        """Add the result of an operator that reads rows of time, or return why it cannot be over time."""
        known = Known(axes={var: time.axis for var, time in self.over.items()}, constants=self.constants)
        repeated = repeated_by(binding.value, self.functions)
        if binding.var in self.attentions:
            return self._add_attention(binding, self.attentions[binding.var], known)
        if repeated.count and not self.has_recurrences:
            return self.refused.get(binding.var, Unruly(reason="cannot go on, as another recurrent layer cannot"))
        if repeated.count:
            recurrence = self._recurrence(binding, repeated, known)
            if isinstance(recurrence, Unruly):
                self.stuck[binding.var] = recurrence
                return recurrence
            self.recurrences[binding.var] = recurrence
            return None
        if binding.var in self.refused:
            return self.refused[binding.var]
        rule = rule_of(binding.value, known)
        if isinstance(rule, Unruly):
            return rule
        return self._add_rule(binding, replace(rule, arguments=arguments_of(binding.value)))

    def _add_rule(self, binding: relax.VarBinding, rule: Rule) -> Unruly | None:
        time = self._over_time(rule)
        if isinstance(time, Unruly):
            return time
        self.over[binding.var], self.rules[binding.var] = time, rule
        return None

    def _add_attention(self, binding: relax.VarBinding, attention: TimeAttention, known: Known) -> Unruly | None:
        """Add the result of an attention. If it cannot be over time, its operators are looked at one by one."""
        arguments = (attention.queries, attention.keys, attention.values)
        ranks = [len(static_shape(argument)) for argument in arguments]
        rule: Rule | Unruly
        if isinstance(attention.reach, str):
            rule = Unruly(reason=attention.reach)
        elif [known.axes.get(one) for one in arguments] != [ranks[0] - 2, ranks[1] - 1, ranks[2] - 2]:
            rule = _NOT_OVER_TIME
        elif any(self.hop % self.over[argument].step for argument in arguments):
            rule = Unruly(reason="reads rows at the end of strides: give a multiple of the strides as new_frames")
        else:
            rule = Rule(
                operands=(0, 1, 2), arguments=arguments, axis=len(static_shape(binding.var)) - 2,
                rows=static_shape(binding.var)[-2], slide=Slide(), make=same_call(binding.value), attention=attention,
                reach=attention.reach,
            )  # fmt: skip
        reason = rule if isinstance(rule, Unruly) else self._add_rule(binding, rule)
        if reason is not None:
            self.stuck[binding.var] = reason
        return reason

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
        self.rules[binding.var] = Rule(
            operands=(), arguments=arguments_of(value), axis=0, rows=recurrence.steps, slide=Slide(), make=make
        )

    def _over_time(self, rule: Rule) -> OverTime | Unruly:
        """Return the time of a result, whose border rows read padding or border rows of an operand."""
        places = zip(rule.operands, rule.sources, strict=True)
        given = [(self.over[source], rule.slide_over(place)) for place, source in places]
        steps = {time.step for time, _ in given}
        if len(steps) > 1:
            return Unruly(reason="joins values of different rates")
        rows = range(rule.rows)
        is_middle = [
            all(
                (self.goes_on or time.top <= slide.begin(row)) and slide.end(row) <= time.rows - time.bottom
                for time, slide in given
            )
            for row in rows
        ]
        if not any(is_middle):
            return Unruly(reason="reads padding, or what padding touches, in each of its rows")
        top, bottom = is_middle.index(True), is_middle[::-1].index(True)
        return OverTime(axis=rule.axis, rows=rule.rows, step=steps.pop() * rule.slide.stride, top=top, bottom=bottom)


def needed_rows(main: relax.Function, times: Times) -> dict[relax.Var, int]:
    """Return the first row of the window that the results read of each value over time."""
    needed: dict[relax.Var, int] = {}

    def read(leaf: relax.Expr, row: int) -> None:
        if isinstance(leaf, relax.Var) and leaf in times.over:
            needed[leaf] = max(min(row, needed.get(leaf, row)), 0)

    for result in outputs(main):
        read(result, 0)
    for binding in reversed(bindings(main)):
        rule = times.rules.get(binding.var)
        if rule is None and binding.var not in times.inner:
            for leaf in operands(binding.value):
                read(leaf, 0)
        elif rule is not None and binding.var in needed:
            for place, source in zip(rule.operands, rule.sources, strict=True):
                read(source, rule.slide_over(place).begin(needed[binding.var]))
    return needed


def arguments_of(value: relax.Expr) -> list[relax.Expr]:
    """Return arguments by the positions that `Rule.operands` counts, which are fields where a tuple comes first."""
    if isinstance(value, relax.TupleGetItem):
        return [value.tuple_value]
    if isinstance(value, relax.Call) and len(value.args) >= 1 and isinstance(value.args[0], relax.Tuple):
        return list(value.args[0].fields)
    return list(value.args)
