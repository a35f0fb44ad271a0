"""Measure the ranges of activations on calibration samples.

Two runs over the samples keep memory independent of their number: the first run finds the smallest and the largest
number of each tensor, and the second counts a histogram between them. Among the ranges of some percentiles, the range
with the least mean squared error of its int8 steps is chosen. The whole range is a candidate too, and it is the range
for 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.analysis.int8_parameters import PROBABILITY, AffineQuantization, affine_of_range, wide_of_range
from relay_passes.analysis.quantization_units import Unit, is_float_tensor
from relay_passes.analysis.recurrent_int8 import state_of_range, wide_range
from relay_passes.analysis.run_units import Sample, UnitRunner
from relay_passes.dataflow import array_of
from tvm_ext.core.errors import UnsupportedModel

Array = np.ndarray

NUM_BINS = 4096
# Percentage of the numbers that stay inside the range. The rest is cut off in equal parts at both ends.
PERCENTILES = (100.0, 99.999, 99.99, 99.9, 99.5)


@dataclass(kw_only=True)
class _Range:
    """Measurements of a group of tensors that share their parameters."""

    low: float = 0.0
    high: float = 0.0
    counts: Array = field(default_factory=lambda: np.zeros(NUM_BINS, "int64"))

    def widen(self, array: Array) -> None:
        if array.size:
            self.low, self.high = min(self.low, float(array.min())), max(self.high, float(array.max()))

    def count(self, array: Array) -> None:
        if self.high > self.low:
            self.counts += np.histogram(array, NUM_BINS, (self.low, self.high))[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibrated:
    """Parameters of activations in 8 bits, and of the same activations in 16 bits.

    states: of the states of each recurrent unit, by its index.
    """

    narrow: Mapping[relax.Var, AffineQuantization]
    wide: Mapping[relax.Var, AffineQuantization]
    states: Mapping[int, tuple[AffineQuantization, ...]]


def calibrate(
    runner: UnitRunner, samples: Sequence[Sample], ties: Sequence[tuple[relax.Var, relax.Var]] = ()
) -> Calibrated:
    """Return the parameters of every activation that an integer unit might read or write, and of tied values.

    Values that are the same numbers in other positions share their parameters, and so do the two values of a tie.
    Raises UnsupportedModel for a value that is not finite on some sample.
    """
    groups = _groups(runner.units, ties)
    ranges: dict[relax.Var, _Range] = {group: _Range() for group in groups.values()}
    for var, array in _values(runner, samples, groups):
        if not np.isfinite(array).all():
            raise UnsupportedModel(
                f"{var.name!r} is not finite on a calibration sample, so it cannot be quantized; remove the sample."
            )
        ranges[groups[var]].widen(array)
    for var, array in _values(runner, samples, groups):
        ranges[groups[var]].count(array)
    fixed = {groups[unit.result] for unit in runner.units if _gives_probabilities(unit)}
    chosen = {group: choose_range(r.counts, r.low, r.high) for group, r in ranges.items()}
    narrow = {
        var: PROBABILITY if group in fixed and chosen[group].scale < PROBABILITY.scale * 1.01 else chosen[group]
        for var, group in groups.items()
    }
    wide = {group: wide_of_range(r.low, r.high) for group, r in ranges.items()}
    states = _states(runner, samples, narrow)
    return Calibrated(narrow=narrow, wide={var: wide[group] for var, group in groups.items()}, states=states)


def _states(
    runner: UnitRunner, samples: Sequence[Sample], narrow: Mapping[relax.Var, AffineQuantization]
) -> dict[int, tuple[AffineQuantization, ...]]:
    """Return the parameters of the states of each recurrent unit, in order."""
    layers = {index: unit.recurrent for index, unit in enumerate(runner.units) if unit.recurrent is not None}
    ranges = {index: _Range() for index in layers}
    for sample in samples if layers else ():
        values: dict[relax.Var, Any] = runner.start(sample)
        for index, unit in enumerate(runner.units):
            values[unit.result] = runner.compute(index, values).value
            if (own := layers.get(index)) is not None:
                arrays = (array_of(state) for state in own.states)
                states = [values[s] if a is None else a for s, a in zip(own.states, arrays, strict=True)]
                ends = wide_range(own, values[own.sequence], states, values[unit.result][-1])
                ranges[index].widen(np.array(ends))
            for var in runner.dead_after.get(index, ()):
                del values[var]
    return {
        index: tuple(
            state_of_range(ranges[index].low, ranges[index].high) if kind == "int16" else narrow[unit.result]
            for kind in own.cell.states
        )
        for index, own in layers.items()
        for unit in [runner.units[index]]
    }


def choose_range(counts: Array, low: float, high: float) -> AffineQuantization:
    """Return the parameters of least mean squared error for a histogram over [low, high], which includes zero."""
    total = int(counts.sum())
    if total == 0:
        return affine_of_range(low, high)
    edges = np.linspace(low, high, len(counts) + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    below = np.cumsum(counts)
    best, least = affine_of_range(low, high), np.inf
    for percentile in PERCENTILES:
        outside = total * (1 - percentile / 100) / 2
        first = int(np.searchsorted(below, outside, side="right"))
        last = int(np.searchsorted(below, total - outside, side="left"))
        candidate = affine_of_range(float(edges[first]), float(edges[min(last, len(counts) - 1) + 1]))
        error = float((counts * (candidate.rounded(centres.astype("float32")) - centres) ** 2).sum())
        if error < least * (1 - 1e-9):
            best, least = candidate, error
    return best


def _groups(units: Sequence[Unit], ties: Sequence[tuple[relax.Var, relax.Var]]) -> dict[relax.Var, relax.Var]:
    """Return the group of each value, named by a member.

    Moves, selections of numbers and ties connect values to a group.
    """
    parent: dict[relax.Var, relax.Var] = {}

    def root(var: relax.Var) -> relax.Var:
        while not (above := parent.setdefault(var, var)).same_as(var):
            var = above
        return var

    parts = {unit.inputs[0]: list[Unit]() for unit in units if unit.kind == "part"}
    for unit in units:
        if unit.kind == "part":
            parts[unit.inputs[0]].append(unit)
    for unit in units:
        if unit.kind == "float":
            continue
        for var in (*unit.inputs, unit.result):
            root(var)
        for var in _hidden_states(unit, parts):
            parent[root(var)] = root(unit.result)
        if unit.keeps_parameters:
            for var in unit.inputs:
                parent[root(var)] = root(unit.result)
    for one, other in ties:
        parent[root(one)] = root(other)
    return {var: root(var) for var in parent}


def _hidden_states(unit: Unit, parts: Mapping[relax.Var, Sequence[Unit]]) -> list[relax.Var]:
    """Return the values that are the int8 hidden state of a recurrent unit: its input, and parts of its result."""
    own = unit.recurrent
    if own is None:
        return []
    places = [k for k, kind in enumerate(own.cell.states) if kind == "int8"]
    given = [state for k in places if isinstance(state := own.states[k], relax.Var)]
    results = [part for part in parts.get(unit.result, ()) if part.members[0].value.index in (*places, len(own.states))]
    return [*given, *(part.result for part in results)]


def _values(
    runner: UnitRunner, samples: Sequence[Sample], wanted: Mapping[relax.Var, relax.Var]
) -> Iterable[tuple[relax.Var, Array]]:
    for sample in samples:
        yield from ((var, array) for var, array in runner.start(sample).items() if var in wanted)
        for unit, value in zip(runner.units, runner.walk(sample), strict=True):
            if unit.result in wanted and is_float_tensor(unit.result):
                yield unit.result, value
            if unit.kind == "recurrent":
                yield unit.result, value[-1]  # the hidden state of each step


def _gives_probabilities(unit: Unit) -> bool:
    return unit.kind == "compute" and unit.operator == "relax.nn.softmax"
