"""Rows of values over time ahead of the first run of a stream whose rows go on, such as those of padding.

A window begins with row 0 of each value. Row 0 is computed in the first run, unless padding makes a value longer: then
it begins with rows that are the same for every input, and its state holds these rows after a reset. Rows before row 0
are never computed; where an operator pads, it reads them as padding, and they are in its operand's state after a reset.
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from relay_passes.analysis.constant_value import evaluate, evaluate_by_tvm
from relay_passes.dataflow import array_of, bindings, constant, infer, number_of, op_name, static_shape
from relay_passes.streams.hop_costs import label
from relay_passes.streams.time_rules import Rule, Slide
from relay_passes.streams.value_times import Times
from tvm_ext.core.errors import BadOptions, UnsupportedModel

Array = np.ndarray
_WHOLE = "Leave new_frames out for the model to take the window whole."


class FirstRows:
    """The rows that a stream needs ahead of its first run, where recurrent layers make all rows go on.

    Raises BadOptions for a number of new frames with which no run ends at the end of a row, and UnsupportedModel for
    padding that a stream cannot have.
    """

    def __init__(self, main: relax.Function, times: Times, hop: int) -> None:
        self._times, self._hop = times, hop
        self._bindings = {binding.var: binding for binding in bindings(main)}
        self._input = next(iter(times.over))
        self._check_frames()
        self._padding: dict[relax.Var, float] = {}
        self._known: dict[relax.Var, Array | None] = {}
        for var, rule in times.rules.items():
            if rule.slide.begin(0) < 0:
                self._note_padding(var, rule)

    def begin(self, var: relax.Var) -> int:
        """Return the index of the first row that the first run computes; it is negative where no window has it."""
        time, window = self._times.over[var], self._times.over[self._input]
        return time.rows - time.bottom - window.rows // self._hop * time.new_rows(self._hop)

    def rows(self, var: relax.Var, count: int) -> Array:
        """Return the last `count` rows ahead of the first run, which a state has after a reset."""
        shape, axis, end = list(static_shape(var)), self._times.over[var].axis, self.begin(var)
        num_padding = max(min(count, count - end), 0)
        shape[axis] = num_padding
        before = np.full(shape, self._padding.get(var, 0), str(var.ty.dtype))
        if num_padding == count:
            return before
        known = self._constant_rows(var)
        if known is None:
            raise self._unsupported(var, f"computes its first {end} rows from padding alone")
        return np.concatenate([before, np.take(known, range(end - count + num_padding, end), axis)], axis)

    def runs_to_wait(self, sequence: relax.Var, layer: relax.Var) -> int:
        """Return the number of runs after a reset in which a recurrent layer has no complete row to process."""
        num_rows, new = -self.begin(sequence), self._times.over[sequence].new_rows(self._hop)
        if num_rows < 0 or num_rows % new:
            what = f"{num_rows} rows that are not complete" if num_rows > 0 else f"{-num_rows} rows of padding"
            raise BadOptions(
                f"new_frames {self._input.name}={self._hop}: {label(self._bindings[layer])} would begin with {what}, "
                f"in runs of {new} rows. {'Give 1 new frame per run.' if num_rows > 0 and self._hop > 1 else _WHOLE}"
            )
        return num_rows // new

    def presence(self, result: relax.Var, rule: Rule, new: int) -> Array | None:
        """Return what masks the rows of keys ahead of the first run, of `new` rows of an attention.

        It is the state after a reset of a vector that each run moves on by `new` zeros. Return None where no row of the
        window reads rows ahead of row 0.
        """
        assert rule.reach is not None, "it is an attention"
        keys = rule.arguments[1]
        if rule.slide_over(1).begin(0) >= 0 or rule.reach.is_last_only:
            return None
        if self.begin(keys) > 0:
            raise self._unsupported(result, f"computes its first {self.begin(keys)} rows of keys from padding alone")
        return np.full(rule.reach.count - 1 - self.begin(keys), rule.reach.outside, np.float32)

    def _check_frames(self) -> None:
        frames = self._times.over[self._input].rows
        steps = {time.step for time in self._times.over.values()}
        possible = [hop for hop in range(1, frames + 1) if not frames % hop and not any(hop % step for step in steps)]
        if self._hop not in possible:
            step = math.lcm(*steps)
            numbers = ", ".join(map(str, possible)) or (
                f"none is. Export the model with a window of a multiple of {step} frames, such as "
                f"{-(-frames // step) * step}, or leave new_frames out for the model to take the window whole"
            )
            raise BadOptions(
                f"new_frames {self._input.name}={self._hop}: the states of recurrent layers go on from run to run, so "
                f"the number of new frames divides the window of {frames} frames and is a multiple of all strides over "
                f"time: {numbers}."
            )

    def _note_padding(self, var: relax.Var, rule: Rule) -> None:
        """Note the value that rows ahead of row 0 have for an operator that pads."""
        for place in rule.operands:
            source = rule.arguments[place]
            if rule.fill is not None and self.begin(source) == 0:
                continue  # its first rows are constant, and no run computes them
            value = rule.pads_with if rule.fill is None else rule.fill
            if value is None:
                raise self._unsupported(var, "pads in time with rows that it leaves out of its result")
            self._require(var, source, value)

    def _require(self, reader: relax.Var, source: relax.Var, value: float) -> None:
        """Note that a reader reads rows ahead of row 0 as a value."""
        source, stored = self._stored(source, value)
        if stored is None or self._padding.setdefault(source, stored) != stored:
            raise self._unsupported(reader, "pads in time with a value that the rows ahead of a stream cannot have")
        if self.begin(source) < 0:  # a run computes some of these rows
            call, rule = self._bindings[source].value, self._times.rules[source]
            if op_name(call) != "relax.strided_slice" or rule.slide != Slide():
                raise self._unsupported(reader, "pads rows that are complete only after the first runs")
            self._require(reader, call.args[0], stored)

    def _stored(self, var: relax.Var, value: float) -> tuple[relax.Var, float | None]:
        """Return the value that is kept of the rows of `var`, and the padding in its numbers; None if it has none."""
        while var in self._times.rules and self._times.rules[var].is_view:
            call = self._bindings[var].value
            if op_name(call) == "relax.dequantize":
                zero_point = number_of(call.args[2])
                if value or zero_point is None:
                    return var, None
                value = float(zero_point)
            (var,) = self._times.rules[var].sources
        return var, value

    def _constant_rows(self, var: relax.Var) -> Array | None:
        """Return the rows from row 0 to the first run, if they are computed from padding alone, or None."""
        if var not in self._known:
            self._known[var] = self._evaluate(var, self.begin(var))
        return self._known[var]

    def _evaluate(self, var: relax.Var, end: int) -> Array | None:
        rule, blocks = self._times.rules[var], dict[relax.Var, relax.Expr]()
        if rule.attention is not None:
            return None
        low, high = rule.slide.begin(0), rule.slide.end(end - 1)
        padding = (0, 0)
        for place in rule.operands:
            source = rule.arguments[place]
            time = self._times.over[source]
            first, last = max(low, 0), min(high, time.rows)
            if first >= last and rule.fill is not None:
                shape = list(static_shape(var))
                shape[rule.axis] = end
                return np.full(shape, rule.fill, str(var.ty.dtype))
            rows = self._constant_rows(source) if first < last <= self.begin(source) else None
            if rows is None:
                return None
            blocks[source] = constant(np.take(rows, range(first, last), time.axis))
            padding = (max(0, -low), max(0, high - time.rows))
        arguments = [blocks.get(arg, arg) for arg in rule.arguments]
        made = rule.make(arguments, rule.slide, padding)
        if isinstance(made, relax.Call):
            made = infer(made)
            made = evaluate(made) or evaluate_by_tvm(made)
        return None if made is None else array_of(made)

    def _unsupported(self, var: relax.Var, reason: str) -> UnsupportedModel:
        return UnsupportedModel(
            f"{label(self._bindings[var])}: {reason}, which is not possible in a stream with recurrent layers. {_WHOLE}"
        )
