"""Choice of the units that compute in int8, by its cost in accuracy, measured on calibration samples.

Errors are ratios of signal to noise: 10 log10(sum of squares / sum of squared errors) in dB, over all samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from relay_passes.analysis.correct_biases import spread
from relay_passes.analysis.quantization_units import Unit, is_float_tensor
from relay_passes.analysis.run_units import Array, Int8Choice, Sample, UnitRunner
from relay_passes.dataflow import operands

# Limit in both directions: no error that a report could show, and nothing but error.
_MAX_DB = 120.0
_NUM_TRIAL_SAMPLES = 32


@dataclass(frozen=True, kw_only=True)
class LeftFloat:
    """A unit that could be int8 but is not, or cannot be, with the reason in words for the user."""

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
    everything: Int8Choice,
    params: Sequence[relax.Var],
    *,
    min_snr_db: float,
) -> tuple[Int8Choice, list[LeftFloat]]:
    """`everything`, less the units that have to stay float for every output to reach `min_snr_db`.

    Where the whole is too far off, each unit is quantized alone; those that do the most harm at the outputs are left
    float one after the other, until it is reached. Moves follow their neighbours.
    """
    samples = spread(samples, _NUM_TRIAL_SAMPLES)
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
        name = runner.units[index].name
        left.append(LeftFloat(name=name, reason=(
            f"in int8 it alone leaves {alone[index]:g} dB at the outputs; without it they rise from {before:g} dB "
            f"to {reached:g} dB, and {min_snr_db:g} dB are asked for"
        )))  # fmt: skip
        if reached >= min_snr_db:
            break
    return choice, left


def follow_neighbours(runner: UnitRunner, choice: Int8Choice, params: Sequence[relax.Var]) -> Int8Choice:
    """The choice with int8 for the moves and inputs beside what computes in int8, float for all others.

    params: those of the function's parameters that may become int8.
    """
    units = runner.units
    int8 = {index for index in choice.units if units[index].kind != "move"}
    asked = {var for index in int8 for var in units[index].inputs}
    for index in reversed(range(len(units))):
        if units[index].kind == "move" and units[index].result in asked:
            int8.add(index)
            asked.update(units[index].inputs)
    inputs = frozenset(param for param in params if param in asked)
    given = {*inputs, *(units[index].result for index in int8)}
    for index, unit in enumerate(units):
        if unit.kind == "move" and all(var in given for var in unit.inputs):
            int8.add(index)
            given.add(unit.result)
    return replace(choice, units=frozenset(int8), inputs=inputs)


def output_db(runner: UnitRunner, samples: Sequence[Sample], choice: Int8Choice) -> float:
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


def measure(runner: UnitRunner, samples: Sequence[Sample], choice: Int8Choice) -> Measured:
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


def impossible(units: Sequence[Unit]) -> list[LeftFloat]:
    """Units that compute floats and have no int8 form."""
    return [
        LeftFloat(name=unit.name, reason=f"{unit.operator.removeprefix('relax.')} has no int8 form here")
        for unit in units
        if unit.kind == "float" and _touches_floats(unit) and isinstance(unit.members[0].value, relax.Call)
    ]


def _touches_floats(unit: Unit) -> bool:
    return any(is_float_tensor(var) for var in (*unit.inputs, unit.result))
