"""Choice of the units that compute in int8, by its cost in accuracy, measured on calibration samples.

Errors are ratios of signal to noise: 10 log10(sum of squares / sum of squared errors) in dB, over all samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from relay_passes.analysis.correct_biases import spread
from relay_passes.analysis.quantization_units import Unit, is_float_tensor
from relay_passes.analysis.run_units import Array, IntegerChoice, Sample, UnitRunner
from relay_passes.dataflow import operands

# Limit in both directions: no error that a report could show, and nothing but error.
_MAX_DB = 120.0
NUM_TRIAL_SAMPLES = 32
"""Samples, spread evenly, on which what is tried is measured."""


@dataclass(frozen=True, kw_only=True)
class UnitReason:
    """Why a unit has the type that it has, in words for the user."""

    name: str
    reason: str


class Ratio:
    """Signal to noise of one tensor, summed up array by array."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, exact: Array, rounded: Array) -> None:
        self.signal += float(np.square(exact, dtype="float64").sum())
        self.noise += float(np.square(exact.astype("float64") - rounded).sum())

    @property
    def db(self) -> float:
        """Ratio in dB, rounded to 1/100, between -120 and 120."""
        if self.noise <= 0 or self.signal <= 0:
            return _MAX_DB if self.noise <= 0 else -_MAX_DB
        return round(float(np.clip(10 * np.log10(self.signal / self.noise), -_MAX_DB, _MAX_DB)), 2)


def choose(
    runner: UnitRunner,
    samples: Sequence[Sample],
    everything: IntegerChoice,
    params: Sequence[relax.Var],
    *,
    min_snr_db: float,
) -> tuple[IntegerChoice, list[UnitReason]]:
    """`everything`, less the units that have to stay float for every output to reach `min_snr_db`.

    Where the whole is too far off, each unit is quantized alone; those that do the most harm at the outputs are left
    float one after the other, until it is reached. Moves follow their neighbours.
    """
    samples = spread(samples, NUM_TRIAL_SAMPLES)
    choice, left = follow_neighbours(runner, everything, params), []
    reached = output_db(runner, samples, choice)
    if reached >= min_snr_db:
        return choice, []
    computing = [index for index in sorted(everything.units) if runner.units[index].kind != "move"]
    alone = {
        index: output_db(
            runner, samples, follow_neighbours(runner, replace(everything, units=frozenset({index})), params)
        )
        for index in computing
    }
    for index in sorted(computing, key=lambda index: (alone[index], index)):
        before = reached
        choice = follow_neighbours(runner, replace(everything, units=choice.units - {index}), params)
        reached = output_db(runner, samples, choice)
        dtype = "int16" if index in everything.wide else "int8"
        left.append(UnitReason(name=runner.units[index].name, reason=(
            f"in {dtype} it alone leaves {alone[index]:g} dB at the outputs; without it they rise from {before:g} dB "
            f"to {reached:g} dB, and {min_snr_db:g} dB are asked for"
        )))  # fmt: skip
        if reached >= min_snr_db:
            break
    return choice, left


def follow_neighbours(runner: UnitRunner, choice: IntegerChoice, params: Sequence[relax.Var]) -> IntegerChoice:
    """The choice with integers for the moves and inputs beside what computes in integers, float for all others.

    params: those of the function's parameters that may become integers. An input has 16 bits where a unit of 16 bits
    reads it, be it moved; a move has them where something that it moves does, or only float is moved for such a unit.
    """
    units = runner.units
    computing = {index for index in choice.units if units[index].kind != "move"}
    integer, asked = _asked(units, computing)
    inputs = frozenset(param for param in params if param in asked)
    given = {*inputs, *(units[index].result for index in integer)}
    for index, unit in enumerate(units):
        if unit.kind == "move" and all(var in given for var in unit.inputs):
            integer.add(index)
            given.add(unit.result)
    wide = set(choice.wide & computing)
    asking, asked_wide = _asked(units, wide)
    wide_inputs = inputs & asked_wide
    wide_values = {*wide_inputs, *(units[index].result for index in wide)}
    for index, unit in enumerate(units):
        of_floats = index in asking and given.isdisjoint(unit.inputs)
        if unit.kind == "move" and index in integer and (of_floats or not wide_values.isdisjoint(unit.inputs)):
            wide.add(index)
            wide_values.add(unit.result)
    return replace(choice, units=frozenset(integer), inputs=inputs, wide=frozenset(wide), wide_inputs=wide_inputs)


def _asked(units: Sequence[Unit], computing: Set[int]) -> tuple[set[int], set[relax.Var]]:
    """Some units and the moves before them, and the values that all of these read."""
    found = set(computing)
    asked = {var for index in computing for var in units[index].inputs}
    for index in reversed(range(len(units))):
        if units[index].kind == "move" and units[index].result in asked:
            found.add(index)
            asked.update(units[index].inputs)
    return found, asked


def output_db(runner: UnitRunner, samples: Sequence[Sample], choice: IntegerChoice) -> float:
    """The worst of the float outputs."""
    floats = [is_float_tensor(var) for var in runner.results if isinstance(var, relax.Var)]
    ratios = [Ratio() for _ in floats]
    for sample in samples:
        for ratio, exact, rounded in zip(ratios, runner.outputs(sample), runner.outputs(sample, choice), strict=True):
            ratio.add(exact, rounded)
    return min((ratio.db for ratio, is_float in zip(ratios, floats, strict=True) if is_float), default=_MAX_DB)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Over all samples: dB per unit that computes floats; per sample what the first output's largest element is."""

    db: Mapping[int, float]
    float_guesses: list[int]
    int8_guesses: list[int]


def measure(runner: UnitRunner, samples: Sequence[Sample], choice: IntegerChoice) -> Measured:
    """The quantized network beside the float one."""
    ratios = {i: Ratio() for i, unit in enumerate(runner.units) if is_float_tensor(unit.result)}
    first = next((leaf for leaf in operands(runner.results[0]) if isinstance(leaf, relax.Var)), None)
    guesses: tuple[list[int], list[int]] = ([], [])
    for sample in samples:
        pairs = zip(runner.units, runner.walk(sample), runner.walk(sample, choice), strict=True)
        for index, (unit, exact, rounded) in enumerate(pairs):
            if index in ratios:
                ratios[index].add(exact, rounded)
            if first is not None and unit.result.same_as(first):
                guesses[0].append(int(np.argmax(exact)))
                guesses[1].append(int(np.argmax(rounded)))
    return Measured(
        db={index: ratio.db for index, ratio in ratios.items()}, float_guesses=guesses[0], int8_guesses=guesses[1]
    )


def impossible(units: Sequence[Unit]) -> list[UnitReason]:
    """Units that compute floats and have no int8 form."""
    return [
        UnitReason(name=unit.name, reason=f"{unit.operator.removeprefix('relax.')} has no int8 form here")
        for unit in units
        if unit.kind == "float" and _touches_floats(unit) and isinstance(unit.members[0].value, relax.Call)
    ]


def _touches_floats(unit: Unit) -> bool:
    return any(is_float_tensor(var) for var in (*unit.inputs, unit.result))
