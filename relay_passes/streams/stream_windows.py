"""A model over a window of time becomes one that takes what is new of it, and gives the same answers.

Rewrite: with a hop of 1 of the 30 frames of x
    main(x[1, 30, 1, 40]): y = conv(x, 3 taps); z = conv(y, 5 taps); return dense(z)
      ->  main(x[1, 1, 1, 40], x.kept[1, 2, 1, 40], y.kept[1, 4, 1, 128], z.kept[1, 23, 1, 128]):
          wx = concat(x.kept, x); y = conv(wx); wy = concat(y.kept, y); z = conv(wy); wz = concat(z.kept, z)
          return dense(wz), wx[1:], wy[1:], wz[1:]
    A value's rows do not differ from run to run but for their place, so only the last ones are computed and those that
    are read again are kept. Where padding is in time, rows that it touches are computed in each run, from rows that are
    kept. Strides that the hop does not divide: rows are computed for every place at which a window can begin, and what
    follows reads every other one (as much dilation as there are places). Operators that mix time with other axes are
    computed for the whole window, from rows that are kept.
Leaves alone: what is not over time; a model of which nothing is over time is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import gcd

import numpy as np
import tvm
from tvm import relax

from relay_passes.dataflow import bindings, build, constant, infer, live, operands, outputs, static_shape
from relay_passes.streams.hop_costs import cost_of_window, label, reached, remarks, total
from relay_passes.streams.time_rules import Known, Rule, Slide, Unruly, rule_of
from tvm_ext.core.decisions.composites import InputCount
from tvm_ext.core.decisions.models import HopCost, KeptStates, WarmUp
from tvm_ext.core.errors import BadOptions, UnsupportedModel
from tvm_ext.core.model_states import ModelState


@tvm.transform.module_pass(opt_level=0, name="StreamWindows")
class StreamWindows:
    """Takes `hop` new frames in each run, along one axis of an input; its name stays. Runs on one dataflow block.

    Attributes of the result: the states, and how many runs are needed before the first answer is that of a window.
    count: multiply-accumulates of a TIR function.
    """

    def __init__(
        self, name: str, hop: int, axis: int | None = None, count: Callable[[tvm.tirx.PrimFunc], int] = lambda _: 0
    ) -> None:
        self.name, self.hop, self.axis, self.count = name, hop, axis, count

    def transform_module(self, mod: tvm.IRModule, _ctx: tvm.transform.PassContext) -> tvm.IRModule:
        main = mod["main"]
        param = _input(main, self.name, len(KeptStates.read(mod).states))
        times = _times(main, param, self.hop, self.axis)
        frames = static_shape(param)[times.over[param].axis]
        draft = _Rewriter(main, times, self.hop, {})
        draft.run()
        written = _Rewriter(main, times, self.hop, draft.needed)
        func, kept = written.run()
        of_tir = {var.name_hint: self.count(f) for var, f in mod.functions.items() if isinstance(f, tvm.tirx.PrimFunc)}
        cost = HopCost(
            macs=total(written.sequence, of_tir), window_macs=total(reached(main), of_tir),
            remarks=remarks(written.sequence, times.whole, written.whole, written.borders, of_tir),
        )  # fmt: skip
        changed = mod.clone()
        changed.update_func(changed.get_global_var("main"), func)
        states = (*KeptStates.read(mod).states, *kept)
        warm_up = WarmUp(runs=-(-frames // self.hop) - 1)
        return cost.write(warm_up.write(KeptStates(states=states).write(changed)))


def _input(main: relax.Function, name: str, num_states: int) -> relax.Var:
    inputs = main.params[: len(main.params) - num_states]
    found = next((param for param in inputs if param.name == name), None)
    if found is None:
        raise BadOptions(f"hop: {name!r} is no input; there are {', '.join(param.name for param in inputs)}.")
    return found


def _times(main: relax.Function, param: relax.Var, hop: int, axis: int | None) -> Times:
    """Times of the values along the axis that is given, or the only one along which the model can go.

    Raises BadOptions where there are several or none, UnsupportedModel where the given one cannot be.
    """
    shape = static_shape(param)
    if axis is not None and not -len(shape) <= axis < len(shape):
        raise BadOptions(f"hop: {param.name!r} has the shape {list(shape)}; there is no axis {axis}.")
    tried = range(len(shape)) if axis is None else [axis % len(shape)]
    found = {one: times_of(main, param, one) for one in tried if shape[one] > 1 or axis is not None}
    possible = {one: times for one, times in found.items() if len(times.over) > 1}
    if len(possible) > 1:
        named = ", ".join(f"{one} ({shape[one]})" for one in possible)
        raise BadOptions(f"hop: {param.name!r}, {list(shape)}, may go over axes {named}; say which one is time.")
    if not possible:
        reasons = {f"{name} {reason}" for times in found.values() for name, reason in times.whole.items()}
        raise UnsupportedModel(
            f"input {param.name!r} cannot be turned into a stream: {'; '.join(sorted(reasons))[:600]}. Leave the hop "
            f"out for the model to take the window whole: {cost_of_window(main, param)}."
        )
    ((chosen, times),) = possible.items()
    if not 0 < hop <= shape[chosen]:
        raise BadOptions(f"hop {param.name}={hop}: the window has {shape[chosen]} frames; 1 to as many can be new.")
    return times


@dataclass(frozen=True, kw_only=True)
class OverTime:
    """A value over time, as the window has it.

    axis: of time. rows: along it. step: frames from one row to the next. top, bottom: rows at its begin and end that
    are others in each run, since padding touches what they are computed from.
    """

    axis: int
    rows: int
    step: int
    top: int = 0
    bottom: int = 0

    @property
    def middle(self) -> int:
        """Rows that are the same in each run but for their place."""
        return self.rows - self.top - self.bottom


@dataclass(frozen=True, kw_only=True, eq=False)
class Times:
    """over: values over time. rules: of those that operators make. whole: reasons why others that read them are not."""

    over: Mapping[relax.Var, OverTime]
    rules: Mapping[relax.Var, Rule]
    whole: Mapping[str, str]


def times_of(main: relax.Function, param: relax.Var, axis: int) -> Times:
    """Which values are over time, and how."""
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


def _arguments(value: relax.Expr) -> list[relax.Expr]:
    """The places that `Rule.operands` counts: the fields of a tuple where that is all there is."""
    if isinstance(value, relax.Call) and len(value.args) >= 1 and isinstance(value.args[0], relax.Tuple):
        return list(value.args[0].fields)
    return list(value.args)


def _over_time(value: relax.Expr, rule: Rule, over: Mapping[relax.Var, OverTime]) -> OverTime | Unruly:
    """The time of a result, of whose rows those are borders that read padding or borders of an operand."""
    given = [over[_arguments(value)[place]] for place in rule.operands]
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


class _Rewriter:
    """Writes the new function. needed: rows of the middle that are read at once, as an earlier writing found.

    whole, borders: values it made of whole windows, and of rows that padding touches, with their operators.
    """

    def __init__(self, main: relax.Function, times: Times, hop: int, needed: Mapping[relax.Var, int]) -> None:
        self.main, self.times, self.hop, self.most = main, times, hop, needed
        self.input = next(iter(times.over))
        self.values = {binding.var: binding.value for binding in bindings(main)}
        self.needed: dict[relax.Var, int] = {}
        self.sequence: list[relax.VarBinding] = []
        self.params: dict[relax.Var, relax.Var] = {}
        self.states: list[tuple[relax.Var, relax.Var, relax.Var]] = []  # of what, as found, as left
        self.made: dict[object, relax.Var] = {}
        self.whole: set[relax.Var] = set()
        self.borders: dict[relax.Var, str] = {}
        self.labels = {binding.var: label(binding) for binding in bindings(main)}
        self.taken = {param.name for param in main.params} | {binding.var.name for binding in bindings(main)}

    def run(self) -> tuple[relax.Function, list[ModelState]]:
        for param in self.main.params:
            time = self.times.over.get(param)
            if time:
                shape = list(static_shape(param))
                shape[time.axis] = self.hop
                self.params[param] = relax.Var(param.name, relax.TensorType(shape, str(param.ty.dtype)))
            else:
                self.params[param] = self.made[param] = param
        for binding in bindings(self.main):
            if binding.var not in self.times.over:
                self.made[binding.var] = self._whole(binding)
        results = [self._in_whole(result) for result in outputs(self.main)]
        old = len(self.states)
        returned = [*results, *(left for _, _, left in self.states[:old])]
        params = [self.params[param] for param in self.main.params] + [found for _, found, _ in self.states]
        counted = InputCount.read(self.main)
        self.sequence = live(self.sequence, returned)
        func = build(params, self.sequence, returned, attrs=self.main.attrs, as_tuple=True)
        if counted.count is not None:
            func = InputCount(count=len(params)).write(func)
        kept = [
            ModelState(name=found.name, initial=np.zeros(static_shape(found), str(found.ty.dtype)))
            for _, found, _ in self.states
        ]
        return func, kept

    def _whole(self, binding: relax.VarBinding) -> relax.Var:
        """A value that is not over time, computed as it is, of whole windows where it reads what is over time."""
        value = binding.value
        if self.times.over.keys().isdisjoint(operands(value)) and all(
            self.made.get(leaf) is leaf for leaf in operands(value) if isinstance(leaf, relax.Var)
        ):
            self.sequence.append(binding)
            return binding.var
        replaced = {leaf: self._in_whole(leaf) for leaf in operands(value) if isinstance(leaf, relax.Var)}
        made = self._bind(binding.var.name, _with(value, replaced), keep_name=True)
        self.whole.add(made)
        return made

    def _in_whole(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Var):
            return expr
        time = self.times.over.get(expr)
        return self.made[expr] if time is None else self._rows(expr, 0, time.rows)

    def _new_rows(self, var: relax.Var) -> int:
        return self.hop // self._grain(var)

    def _grain(self, var: relax.Var) -> int:
        """Frames from one row that is computed to the next: of every place at which a window may begin."""
        return gcd(self.hop, self.times.over[var].step)

    def _spacing(self, var: relax.Var) -> int:
        """Computed rows from one row of the window to the next."""
        return self.times.over[var].step // self._grain(var)

    def _new(self, var: relax.Var) -> relax.Var:
        """The rows of the middle that this run brings, the last ones."""
        if var in self.params:
            return self.params[var]
        if ("new", var) not in self.made:
            rule, value, time = self.times.rules[var], self.values[var], self.times.over[var]
            if rule.is_view:
                source = _arguments(value)[rule.operands[0]]
                block = {source: self._new(source)}
                self.made["new", var] = self._apply(var, rule, block, rule.slide, (0, 0), keep_name=True)
            else:
                last = time.rows - time.bottom - 1
                blocks: dict[relax.Var, relax.Var] = {}
                slide = rule.slide
                for place in rule.operands:
                    source = _arguments(value)[place]
                    spacing, given = self._spacing(source), self.times.over[source]
                    slide = Slide(
                        stride=self._grain(var) // self._grain(source), taps=rule.slide.taps,
                        dilation=rule.slide.dilation * spacing,
                    )  # fmt: skip
                    behind = (given.rows - given.bottom - rule.slide.end(last)) * spacing
                    reach = (slide.taps - 1) * slide.dilation + 1
                    count = (self._new_rows(var) - 1) * slide.stride + reach
                    blocks[source] = self._last(source, behind + count, count)
                self.made["new", var] = self._apply(var, rule, blocks, slide, (0, 0), keep_name=True)
        return self.made["new", var]

    def _last(self, var: relax.Var, back: int, count: int) -> relax.Var:
        """`count` computed rows of the middle, from `back` before its end on."""
        if var not in self.params and self.times.rules[var].is_view:
            rule = self.times.rules[var]
            source = _arguments(self.values[var])[rule.operands[0]]
            return self._apply(var, rule, {source: self._last(source, back, count)}, rule.slide, (0, 0))
        if back == count == self._new_rows(var):
            return self._new(var)
        window, rows = self._window(var, back)
        return self._sliced(var, window, rows - back, rows - back + count, 1, rows)

    def _window(self, var: relax.Var, back: int) -> tuple[relax.Var, int]:
        """The last rows of the middle, at least `back`, and how many they are."""
        self.needed[var] = max(back, self.needed.get(var, 0))
        rows, new = max(back, self.most.get(var, 0)), self._new_rows(var)
        if rows <= new:
            return self._new(var), new
        key = ("window", var, rows)
        if key not in self.made:
            axis, shape = self.times.over[var].axis, list(static_shape(self._new(var)))
            shape[axis] = rows - new
            kept = relax.Var(self._free(f"{var.name}.kept"), relax.TensorType(shape, str(var.ty.dtype)))
            joined = self._bind(f"{var.name}.window", relax.op.concat([kept, self._new(var)], axis))
            self.made[key] = joined
            left = self._sliced(var, joined, new, rows, 1, rows, name=f"{kept.name}.next")
            self.states.append((var, kept, left))
        return self.made[key], rows

    def _rows(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        """Rows [begin, end) as the window of this run has them."""
        key = ("rows", var, begin, end)
        if key not in self.made:
            self.made[key] = self._rows_anew(var, begin, end)
        return self.made[key]

    def _rows_anew(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        time = self.times.over[var]
        if var not in self.params and self.times.rules[var].is_view:
            rule = self.times.rules[var]
            source = _arguments(self.values[var])[rule.operands[0]]
            return self._apply(var, rule, {source: self._rows(source, begin, end)}, rule.slide, (0, 0))
        low, high = time.top, time.rows - time.bottom
        parts: list[relax.Var] = []
        if begin < low:
            parts.append(self._sliced(var, self._border(var, 0, low), begin, min(end, low), 1, low))
        first, last = max(begin, low), min(end, high)
        if first < last:
            spacing = self._spacing(var)
            back = (high - 1 - first) * spacing + 1
            window, rows = self._window(var, back)
            parts.append(self._sliced(var, window, rows - back, rows - (high - last) * spacing, spacing, rows))
        if end > high:
            border = self._border(var, high, time.rows)
            parts.append(self._sliced(var, border, max(begin, high) - high, end - high, 1, time.bottom))
        return parts[0] if len(parts) == 1 else self._bind(f"{var.name}.rows", relax.op.concat(parts, time.axis))

    def _border(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        """Rows that padding touches, computed in each run."""
        key = ("border", var, begin, end)
        if key in self.made:
            return self.made[key]
        rule, value = self.times.rules[var], self.values[var]
        blocks: dict[relax.Var, relax.Var] = {}
        low, high = rule.slide.begin(begin), rule.slide.end(end - 1)
        padding = (0, 0)
        for place in rule.operands:
            source = _arguments(value)[place]
            rows = self.times.over[source].rows
            padding = (max(0, -low), max(0, high - rows))
            first, last = max(low, 0), min(high, rows)
            if first >= last:  # nothing but padding
                self.made[key] = self._filled(var, rule, end - begin)
                return self.made[key]
            blocks[source] = self._rows(source, first, last)
        self.made[key] = made = self._apply(var, rule, blocks, rule.slide, padding)
        self.borders[made] = self.labels[var]
        return made

    def _filled(self, var: relax.Var, rule: Rule, rows: int) -> relax.Var:
        if rule.fill is None:
            raise UnsupportedModel(
                f"{self.labels[var]}: {rows} of its rows in a window are computed from padding alone, which is "
                "possible in a stream for pads of a constant only. Leave the hop out for the model to take the window "
                f"whole: {cost_of_window(self.main, self.input)}."
            )
        shape = list(static_shape(var))
        shape[rule.axis] = rows
        array = np.full(shape, rule.fill, str(var.ty.dtype))
        return self._bind(f"{var.name}.padding", relax.op.add(constant(array), constant(np.zeros((), array.dtype))))

    def _apply(
        self,
        var: relax.Var,
        rule: Rule,
        blocks: Mapping[relax.Var, relax.Var],
        slide: Slide,
        padding: tuple[int, int],
        *,
        keep_name: bool = False,
    ) -> relax.Var:
        """The operator of a value on other rows of its operands."""
        arguments = [
            blocks[arg] if arg in blocks else self._in_whole(arg) if isinstance(arg, relax.Var) else arg
            for arg in _arguments(self.values[var])
        ]
        value = rule.make(arguments, slide, padding)
        return self._bind(var.name if keep_name else f"{var.name}.part", value, keep_name=keep_name, like=var)

    def _sliced(
        self, var: relax.Var, source: relax.Var, begin: int, end: int, step: int, rows: int, name: str = ""
    ) -> relax.Var:
        if (begin, end, step) == (0, rows, 1):
            return source
        axis = self.times.over[var].axis
        value = relax.op.strided_slice(source, [axis], [begin], [end], [step])
        return self._bind(name or f"{var.name}.part", value)

    def _bind(
        self, name: str, value: relax.Expr, *, keep_name: bool = False, like: relax.Var | None = None
    ) -> relax.Var:
        if isinstance(value, relax.Var):
            return value
        source = self.values.get(like) if like is not None else None
        call = infer(value) if isinstance(value, relax.Call) else value
        if source is not None and isinstance(call, relax.Call) and source.span is not None:
            call = relax.Call(call.op, call.args, call.attrs, call.ty_args, source.span, call.ty)
        typed = relax.BlockBuilder().normalize(call)
        var = relax.DataflowVar(name if keep_name else self._free(name), typed.ty)
        self.sequence.append(relax.VarBinding(var, typed))
        return var

    def _free(self, name: str) -> str:
        candidate, number = name, 0
        while candidate in self.taken:
            number += 1
            candidate = f"{name}.{number}"
        self.taken.add(candidate)
        return candidate


def _with(value: relax.Expr, replaced: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """The expression with other operands."""
    if isinstance(value, relax.Var):
        return replaced.get(value, value)
    if isinstance(value, relax.Tuple):
        return relax.Tuple([_with(field, replaced) for field in value.fields], value.span)
    if isinstance(value, relax.TupleGetItem):
        return relax.TupleGetItem(_with(value.tuple_value, replaced), value.index, value.span)
    if isinstance(value, relax.Call):
        arguments = [_with(arg, replaced) for arg in value.args]
        return relax.Call(value.op, arguments, value.attrs, value.ty_args, value.span)
    return value
