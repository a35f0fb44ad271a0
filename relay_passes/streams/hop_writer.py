"""Write the function of a streaming step, which computes new rows and reads older rows from states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
import tvm
from tvm import relax, tirx

from relay_passes.dataflow import (
    bindings,
    build,
    constant,
    infer,
    live,
    operands,
    outputs,
    static_shape,
    substitute,
    with_span,
)
from relay_passes.streams.first_rows import FirstRows
from relay_passes.streams.hop_costs import cost_of_window, label
from relay_passes.streams.time_rules import Rule, Slide
from relay_passes.streams.value_times import Times
from tvm_ext.core.decisions.composites import InputCount
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.model_nodes import ModelState


@dataclass(frozen=True, kw_only=True, eq=False)
class HopFunction:
    """The function of a streaming step.

    func: takes new frames and states, and returns results and states.
    states: its last parameters, in order.
    sequence: its bindings.
    whole: bindings that are computed for the whole window.
    borders: bindings that are rows touched by padding, with their operators.
    functions: functions that the bindings call and the model does not have: recurrent layers of fewer steps.
    """

    func: relax.Function
    states: Sequence[ModelState]
    sequence: Sequence[relax.VarBinding]
    whole: Set[relax.Var]
    borders: Mapping[relax.Var, str]
    functions: Mapping[tvm.ir.GlobalVar, tirx.PrimFunc]


Shorten = Callable[[tvm.ir.GlobalVar, Sequence[int], int], tirx.PrimFunc]
"""Function from a loop over time, its parameters with an element for each step, and a number of steps to that loop."""


def write_hop(main: relax.Function, times: Times, hop: int, shorten: Shorten) -> HopFunction:
    """Return the function that takes `hop` new frames.

    It is written twice: the first draft only counts how many rows of each value are read at once. Raises
    UnsupportedModel for rows that an operator would compute from padding alone, where it cannot, and as `FirstRows`.
    """
    first_rows = FirstRows(main, times, hop) if times.goes_on else None
    draft = _HopWriter(main, times, hop, {}, first_rows, shorten)
    draft.run()
    return _HopWriter(main, times, hop, draft.needed, first_rows, shorten).run()


class _HopWriter:
    """Writes the function of a streaming step.

    most: rows of a value's middle that are read at once, from an earlier draft.
    needed: the same number of rows, as this draft needs them.
    first_rows: rows ahead of the first run, which states have after a reset; None where no result ever reads them.
    """

    def __init__(
        self,
        main: relax.Function,
        times: Times,
        hop: int,
        most: Mapping[relax.Var, int],
        first_rows: FirstRows | None,
        shorten: Shorten,
    ) -> None:
        self.main, self.times, self.hop, self.most = main, times, hop, most
        self.first_rows, self.shorten = first_rows, shorten
        self.input = next(iter(times.over))
        self.values = {binding.var: binding.value for binding in bindings(main)}
        self.labels = {binding.var: label(binding) for binding in bindings(main)}
        self.written = NamedBindings({param.name for param in main.params} | {var.name for var in self.values})
        self.needed: dict[relax.Var, int] = {}
        self.params: dict[relax.Var, relax.Var] = {}
        self.states: list[tuple[relax.Var, relax.Var, np.ndarray]] = []  # at the start and the end of a run, at reset
        self.functions: dict[tvm.ir.GlobalVar, tirx.PrimFunc] = {}
        self.made: dict[object, relax.Var] = {}
        self.whole: set[relax.Var] = set()
        self.borders: dict[relax.Var, str] = {}

    def run(self) -> HopFunction:
        for param in self.main.params:
            time = self.times.over.get(param)
            if time:
                shape = list(static_shape(param))
                shape[time.axis] = self.hop
                self.params[param] = relax.Var(param.name, relax.TensorType(shape, str(param.ty.dtype)))
            else:
                self.params[param] = self.made[param] = param
        for binding in bindings(self.main):
            if binding.var in self.times.recurrences:
                self.made[binding.var] = self._steps(binding.var)
            elif binding.var not in self.times.over and binding.var not in self.times.inner:
                self.made[binding.var] = self._whole(binding)
        results = [self._in_whole(result) for result in outputs(self.main)]
        returned = [*results, *(left for _, left, _ in self.states)]
        params = [self.params[param] for param in self.main.params] + [found for found, _, _ in self.states]
        counted = InputCount.read(self.main)
        sequence = live(self.written.sequence, returned)
        func = build(params, sequence, returned, attrs=self.main.attrs, as_tuple=True)
        if counted.count is not None:
            func = InputCount(count=len(params)).write(func)
        kept = [ModelState(name=found.name, initial=initial) for found, _, initial in self.states]
        return HopFunction(
            func=func, states=kept, sequence=sequence, whole=self.whole, borders=self.borders,
            functions=self.functions,
        )  # fmt: skip

    def _whole(self, binding: relax.VarBinding) -> relax.Var:
        """Write a value that is not over time. It reads whole windows of the values that are over time."""
        value = binding.value
        if self.times.over.keys().isdisjoint(operands(value)) and all(
            self.made.get(leaf) is leaf for leaf in operands(value) if isinstance(leaf, relax.Var)
        ):
            return self.written.keep(binding)
        replaced = {leaf: self._in_whole(leaf) for leaf in operands(value) if isinstance(leaf, relax.Var)}
        made = self.written.bind(binding.var.name, substitute(value, replaced), keep_name=True)
        self.whole.add(made)
        return made

    def _steps(self, var: relax.Var) -> relax.Var:
        """Write the steps of a recurrent layer for the new rows of its sequences."""
        layer, call = self.times.recurrences[var], self.values[var]
        sequence = layer.given[layer.sequences.start]
        steps = self.times.over[sequence].new_rows(self.hop)
        wait = self.first_rows.runs_to_wait(sequence, var) if self.first_rows else 0
        given, kept = list(layer.given), dict[int, relax.Var]()
        for place, operand in enumerate(given):
            if place in layer.sequences:
                given[place] = self._new(operand)
            elif place < layer.num_states and place not in layer.carried:
                given[place] = kept[place] = relax.Var(self.written.free(f"{var.name}.state{place}"), operand.ty)
            else:
                given[place] = self._in_whole(operand)
        for place, initial in enumerate(layer.initial):
            if wait:
                given[place] = self.written.bind(
                    f"{var.name}.before{place}", relax.op.where(self._started(wait), given[place], constant(initial))
                )
        function = layer.function
        if steps != layer.steps:
            shorter = self.shorten(layer.function, layer.stacked, steps)
            function = relax.BlockBuilder().add_func(shorter, f"{layer.function.name_hint}_{steps}_steps")
            self.functions[function] = shorter
        types = [
            relax.TensorType([steps, *ty.shape.values[1:]], ty.dtype) if place >= layer.num_states else ty
            for place, ty in enumerate(call.ty.fields)
        ]
        made = self.written.bind(var.name, relax.call_tir(function, relax.Tuple(given), types), keep_name=True,
                                 span=call.span)  # fmt: skip
        for place, state in kept.items():
            left = self.written.bind(f"{state.name}.next", relax.TupleGetItem(made, place))
            self.states.append((state, left, layer.initial[place]))
        return made

    def _started(self, wait: int) -> relax.Var:
        """Return whether more than `wait` runs have passed since the reset, bool[1]: the state has a step behind it."""
        if ("started", wait) not in self.made:
            count = wait + 1
            marks = relax.Var(self.written.free("runs.kept"), relax.TensorType((count,), "int8"))
            more = self.written.bind("runs", relax.op.concat([marks, constant(np.ones(1, np.int8))], 0))
            first = self.written.slice_rows("runs.first", more, 0, 0, 1, rows=count + 1)
            left = self.written.slice_rows("runs.kept.next", more, 0, 1, count + 1, rows=count + 1)
            self.states.append((marks, left, np.zeros(count, np.int8)))
            started = relax.op.greater(first, constant(np.zeros((), np.int8)))
            self.made["started", wait] = self.written.bind("started", started)
        return self.made["started", wait]

    def _in_whole(self, expr: relax.Expr) -> relax.Expr:
        if not isinstance(expr, relax.Var):
            return expr
        time = self.times.over.get(expr)
        return self.made[expr] if time is None else self._rows(expr, 0, time.rows)

    def _new(self, var: relax.Var) -> relax.Var:
        """Return the new rows of a value's middle in this run, which are its last rows."""
        if var in self.params:
            return self.params[var]
        if ("new", var) not in self.made:
            rule, time = self.times.rules[var], self.times.over[var]
            if rule.is_view:
                (place,), (source,) = rule.operands, rule.sources
                block = {place: self._new(source)}
                self.made["new", var] = self._apply(var, rule, block, rule.slide, (0, 0), keep_name=True)
            else:
                last = time.rows - time.bottom - 1
                blocks: dict[int, relax.Var] = {}
                slide = rule.slide
                for place, source in zip(rule.operands, rule.sources, strict=True):
                    given, over = self.times.over[source], rule.slide_over(place)
                    spacing = given.spacing(self.hop)
                    slide = Slide(
                        stride=time.grain(self.hop) // given.grain(self.hop), taps=over.taps,
                        dilation=over.dilation * spacing,
                    )  # fmt: skip
                    behind = (given.rows - given.bottom - over.end(last)) * spacing
                    reach = (slide.taps - 1) * slide.dilation + 1
                    count = (time.new_rows(self.hop) - 1) * slide.stride + reach
                    blocks[place] = self._last(source, behind + count, count)
                self.made["new", var] = self._apply(var, rule, blocks, slide, (0, 0), keep_name=True)
        return self.made["new", var]

    def _last(self, var: relax.Var, back: int, count: int) -> relax.Var:
        """Return `count` computed rows of the middle, starting `back` rows ahead of its end."""
        if var not in self.params and self.times.rules[var].is_view:
            rule = self.times.rules[var]
            (place,), (source,) = rule.operands, rule.sources
            return self._apply(var, rule, {place: self._last(source, back, count)}, rule.slide, (0, 0))
        if back == count == self.times.over[var].new_rows(self.hop):
            return self._new(var)
        window, rows = self._window(var, back)
        return self._part(var, window, rows - back, rows - back + count, rows=rows)

    def _window(self, var: relax.Var, back: int) -> tuple[relax.Var, int]:
        """Return the last rows of the middle, at least `back` of them, and their number."""
        self.needed[var] = max(back, self.needed.get(var, 0))
        rows, new = max(back, self.most.get(var, 0)), self.times.over[var].new_rows(self.hop)
        if rows <= new:
            return self._new(var), new
        key = ("window", var, rows)
        if key not in self.made:
            axis, shape = self.times.over[var].axis, list(static_shape(self._new(var)))
            shape[axis] = rows - new
            kept = relax.Var(self.written.free(f"{var.name}.kept"), relax.TensorType(shape, str(var.ty.dtype)))
            joined = self.written.bind(f"{var.name}.window", relax.op.concat([kept, self._new(var)], axis))
            self.made[key] = joined
            left = self.written.slice_rows(f"{kept.name}.next", joined, axis, new, rows, rows=rows)
            zeros = np.zeros(shape, str(var.ty.dtype))
            initial = self.first_rows.rows(var, rows - new) if self.first_rows else zeros
            self.states.append((kept, left, initial))
        return self.made[key], rows

    def _rows(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        """Return rows [begin, end) of the window of this run."""
        key = ("rows", var, begin, end)
        if key not in self.made:
            self.made[key] = self._rows_anew(var, begin, end)
        return self.made[key]

    def _rows_anew(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        time = self.times.over[var]
        if var not in self.params and self.times.rules[var].is_view:
            rule = self.times.rules[var]
            (place,), (source,) = rule.operands, rule.sources
            return self._apply(var, rule, {place: self._rows(source, begin, end)}, rule.slide, (0, 0))
        low, high = time.top, time.rows - time.bottom
        parts: list[relax.Var] = []
        if begin < low:
            parts.append(self._part(var, self._border(var, 0, low), begin, min(end, low), rows=low))
        first, last = max(begin, low), min(end, high)
        if first < last:
            spacing = time.spacing(self.hop)
            back = (high - 1 - first) * spacing + 1
            window, rows = self._window(var, back)
            behind = (high - last) * spacing
            parts.append(self._part(var, window, rows - back, rows - behind, step=spacing, rows=rows))
        if end > high:
            border = self._border(var, high, time.rows)
            parts.append(self._part(var, border, max(begin, high) - high, end - high, rows=time.bottom))
        return parts[0] if len(parts) == 1 else self.written.bind(f"{var.name}.rows", relax.op.concat(parts, time.axis))

    def _border(self, var: relax.Var, begin: int, end: int) -> relax.Var:
        """Return rows that padding touches, which are computed in each run."""
        key = ("border", var, begin, end)
        if key in self.made:
            return self.made[key]
        rule = self.times.rules[var]
        blocks: dict[int, relax.Var] = {}
        padding = (0, 0)
        for place, source in zip(rule.operands, rule.sources, strict=True):
            slide, rows = rule.slide_over(place), self.times.over[source].rows
            low, high = slide.begin(begin), slide.end(end - 1)
            padding = (max(0, -low), max(0, high - rows))
            first, last = max(low, 0), min(high, rows)
            if first >= last:  # only padding is read
                self.made[key] = self._filled(var, rule, end - begin)
                return self.made[key]
            blocks[place] = self._rows(source, first, last)
        self.made[key] = made = self._apply(var, rule, blocks, rule.slide, padding)
        self.borders[made] = self.labels[var]
        return made

    def _filled(self, var: relax.Var, rule: Rule, rows: int) -> relax.Var:
        if rule.fill is None:
            raise UnsupportedModel(
                f"{self.labels[var]}: {rows} of its rows in a window are computed from padding alone, which is "
                "possible in a stream for pads of a constant only. Leave new_frames out for the model to take the "
                f"window whole: {cost_of_window(self.main, self.input)}."
            )
        shape = list(static_shape(var))
        shape[rule.axis] = rows
        array = np.full(shape, rule.fill, str(var.ty.dtype))
        computed = relax.op.add(constant(array), constant(np.zeros((), array.dtype)))
        return self.written.bind(f"{var.name}.padding", computed)

    def _apply(
        self,
        var: relax.Var,
        rule: Rule,
        blocks: Mapping[int, relax.Var],
        slide: Slide,
        padding: tuple[int, int],
        *,
        keep_name: bool = False,
    ) -> relax.Var:
        """Apply the operator of a value to other rows of its operands."""
        if rule.attention is not None:
            return self._attend(var, rule, blocks, padding, keep_name=keep_name)
        arguments = [
            blocks[place] if place in blocks else self._in_whole(arg) if isinstance(arg, relax.Var) else arg
            for place, arg in enumerate(rule.arguments)
        ]
        value = rule.make(arguments, slide, padding)
        name = var.name if keep_name else f"{var.name}.part"
        return self.written.bind(name, value, keep_name=keep_name, span=self.values[var].span)

    def _attend(
        self,
        var: relax.Var,
        rule: Rule,
        blocks: Mapping[int, relax.Var],
        padding: tuple[int, int],
        *,
        keep_name: bool,
    ) -> relax.Var:
        """Write an attention for other rows. keep_name: whether these are the new rows of a run."""
        attention, reach = rule.attention, rule.reach
        assert attention is not None and reach is not None, "it is an attention"

        def bind(binding: relax.VarBinding, value: relax.Expr) -> relax.Var:
            is_own = keep_name and binding.var == var
            name = binding.var.name if is_own else f"{binding.var.name}.part"
            return self.written.bind(name, value, keep_name=is_own, span=binding.value.span)

        operands = (blocks[0], blocks[1], blocks[2])
        count = static_shape(blocks[0])[self.times.over[attention.queries].axis]
        presence = self._presence(var, rule, count) if keep_name and self.first_rows else None
        return attention.write(operands, reach.mask(count, *padding), presence, bind)

    def _presence(self, var: relax.Var, rule: Rule, new: int) -> relax.Var | None:
        """Return what masks the keys that do not exist yet in the first runs after a reset, float32[keys]."""
        assert self.first_rows is not None and rule.reach is not None, "asked by the caller"
        initial = self.first_rows.presence(var, rule, new)
        if initial is None:
            return None
        key = ("presence", initial.size, rule.reach.outside, new)
        if key not in self.made:
            kept = relax.Var(self.written.free("present.kept"), relax.TensorType(initial.shape, "float32"))
            joined = self.written.bind("present", relax.op.concat([kept, constant(np.zeros(new, np.float32))], 0))
            rows = initial.size + new
            left = self.written.slice_rows("present.kept.next", joined, 0, new, rows, rows=rows)
            self.states.append((kept, left, initial))
            self.made[key] = joined
        keys = rule.reach.count - 1 + new
        return self.written.slice_rows("present.part", self.made[key], 0, 0, keys, rows=initial.size + new)

    def _part(self, var: relax.Var, source: relax.Var, begin: int, end: int, *, step: int = 1, rows: int) -> relax.Var:
        """Return some of the `rows` of a value that the source holds."""
        axis = self.times.over[var].axis
        return self.written.slice_rows(f"{var.name}.part", source, axis, begin, end, step=step, rows=rows)


class NamedBindings:
    """A growing sequence of bindings.

    sequence: the bindings so far.
    taken: names that are already in use.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.sequence: list[relax.VarBinding] = []
        self._taken = set(taken)

    def keep(self, binding: relax.VarBinding) -> relax.Var:
        """Append a binding of the old function without changes."""
        self.sequence.append(binding)
        return binding.var

    def bind(
        self, name: str, value: relax.Expr, *, keep_name: bool = False, span: tvm.ir.Span | None = None
    ) -> relax.Var:
        """Bind a value under a name, with a number appended where the name is taken. Variables are returned as they
        are.

        keep_name: whether the name is the value's own name from the old function.
        span: of the operator that the value belongs to.
        """
        if isinstance(value, relax.Var):
            return value
        typed = infer(value) if isinstance(value, relax.Call) else value
        if span is not None:
            typed = with_span(typed, span)
        typed = relax.BlockBuilder().normalize(typed)
        var = relax.DataflowVar(name if keep_name else self.free(name), typed.ty)
        return self.keep(relax.VarBinding(var, typed))

    def slice_rows(
        self, name: str, source: relax.Var, axis: int, begin: int, end: int, *, step: int = 1, rows: int
    ) -> relax.Var:
        """Return every `step`th of rows [begin, end) of the source's `rows`, or the source where these are all rows."""
        if (begin, end, step) == (0, rows, 1):
            return source
        return self.bind(name, relax.op.strided_slice(source, [axis], [begin], [end], [step]))

    def free(self, name: str) -> str:
        """Return the name, or the first unused name with a number appended, and reserve it."""
        candidate, number = name, 0
        while candidate in self._taken:
            number += 1
            candidate = f"{name}.{number}"
        self._taken.add(candidate)
        return candidate
