"""Choose the precision of each unit by its measured cost in accuracy: float, 16, 8 or 4 bits.

Errors are signal-to-noise ratios over all samples: 10 log10(sum of squares / sum of squared errors), in dB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from tvm import relax

from relay_passes.analysis.correct_biases import spread
from relay_passes.analysis.int8_parameters import LinearInt8
from relay_passes.analysis.quantization_units import Unit, is_float_tensor
from relay_passes.analysis.run_units import Array, IntegerChoice, Sample, UnitRunner
from relay_passes.dataflow import array_of, num_elements, operands, static_shape

# Limit in both directions: beyond it no error is visible in a report, or no signal is left.
_MAX_DB = 120.0
NUM_TRIAL_SAMPLES = 32
"""Number of evenly spread samples on which candidates are measured."""


@dataclass(frozen=True, kw_only=True)
class UnitReason:
    """The reason why a unit has its type, in words for the user."""

    name: str
    reason: str


class Ratio:
    """Signal-to-noise ratio of a tensor, accumulated array by array."""

    def __init__(self) -> None:
        self.signal = self.noise = 0.0

    def add(self, exact: Array, rounded: Array) -> None:
        self.signal += float(np.square(exact, dtype="float64").sum())
        self.noise += float(np.square(exact.astype("float64") - rounded).sum())

    @property
    def db(self) -> float:
        """The ratio in dB, rounded to 1/100, from -120 to 120."""
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
    """Return `everything` without the units that must stay float for every output to reach `min_snr_db`.

    Where the whole is below, each unit is quantized alone. The units that do the most harm at the outputs are then left
    in float one after another, until the ratio is reached. Moves follow their neighbours.
    """
    samples = spread(samples, NUM_TRIAL_SAMPLES)
    choice, left = follow_neighbours(runner, everything, params), []
    reached = output_db(runner, samples, choice)
    if reached >= min_snr_db:
        return choice, []
    computing = [index for index in sorted(everything.units) if runner.units[index].computes]
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
    """Return the choice with integers for moves and inputs beside integer units, and float for all others.

    params: the parameters of the function that may become integers. An input has 16 bits where a unit of 16 bits reads
    it, even through moves. A move has 16 bits where one of its inputs does, or where it moves only floats for such a
    unit.
    """
    units = runner.units
    computing = {index for index in choice.units if units[index].computes}
    integer, asked = _asked(units, computing)
    inputs = frozenset(param for param in params if param in asked)
    integer -= _selecting(units, integer, inputs)
    given = {*inputs, *(units[index].result for index in integer)}
    for index, unit in enumerate(units):
        if unit.kind in ("move", "part") and all(var in given for var in unit.inputs):
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


def _selecting(units: Sequence[Unit], integer: Set[int], inputs: Set[relax.Var]) -> set[int]:
    """Return the moves of `integer` that select from floats, or move floats for such moves only.

    integer: the units that might be integers. inputs: the parameters of the function that arrive as integers.
    """
    readers: dict[relax.Var, list[int]] = {}
    for index in integer:
        for var in units[index].inputs:
            readers.setdefault(var, []).append(index)
    late: set[int] = set()
    for index in sorted(integer, reverse=True):
        unit, reading = units[index], readers.get(units[index].result, [])
        if unit.kind != "move":
            continue
        selects = all(_select(var, [units[reader] for reader in readers[var]]) for var in unit.inputs)
        if selects or (reading and late.issuperset(reading)):
            late.add(index)
    integers = {*inputs, *(units[index].result for index in integer - late)}
    for index in sorted(late):
        if not integers.isdisjoint(units[index].inputs):
            late.remove(index)
            integers.add(units[index].result)
    return late


def _select(var: relax.Var, readers: Sequence[Unit]) -> bool:
    """Return True if moves read a value, and all of their results together have fewer elements."""
    elements = sum(num_elements(unit.result) for unit in readers)
    return all(unit.kind == "move" for unit in readers) and elements < num_elements(var)


def _asked(units: Sequence[Unit], computing: Set[int]) -> tuple[set[int], set[relax.Var]]:
    """Return some units with the moves ahead of them, and the values that all of these read."""
    found = set(computing)
    asked = {var for index in computing for var in units[index].inputs}
    for index in reversed(range(len(units))):
        if units[index].kind == "move" and units[index].result in asked:
            found.add(index)
            asked.update(units[index].inputs)
    return found, asked


def output_db(runner: UnitRunner, samples: Sequence[Sample], choice: IntegerChoice) -> float:
    """Return the lowest signal-to-noise ratio over the float outputs."""
    floats = [is_float_tensor(var) for var in runner.results if isinstance(var, relax.Var)]
    ratios = [Ratio() for _ in floats]
    for sample in samples:
        for ratio, exact, rounded in zip(ratios, runner.outputs(sample), runner.outputs(sample, choice), strict=True):
            ratio.add(exact, rounded)
    return min((ratio.db for ratio, is_float in zip(ratios, floats, strict=True) if is_float), default=_MAX_DB)


@dataclass(frozen=True, kw_only=True, eq=False)
class Measured:
    """Measurements over all samples.

    db: the ratio of each unit that computes floats.
    float_guesses, int8_guesses: for each sample, the index of the first output's largest element.
    """

    db: Mapping[int, float]
    float_guesses: list[int]
    int8_guesses: list[int]


def measure(runner: UnitRunner, samples: Sequence[Sample], choice: IntegerChoice) -> Measured:
    """Compare the quantized network with the float network."""
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
    """Return the units that compute floats and have no int8 form."""
    return [
        UnitReason(name=unit.name, reason=f"{unit.operator.removeprefix('relax.')} has no int8 form here")
        for unit in units
        if unit.kind == "float" and _touches_floats(unit) and isinstance(unit.members[0].value, relax.Call)
    ]


def _touches_floats(unit: Unit) -> bool:
    return any(is_float_tensor(var) for var in (*unit.inputs, unit.result))


Activations = Literal["int8", "mixed", "int16"]
Widened = Callable[[frozenset[int]], IntegerChoice]
"""Returns all units as integers with corrected biases, given the units whose activations have 16 bits."""

_OF_ONE = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.mean", "relax.sum"})
_PLACES = frozenset({"relax.nn.pad", "relax.image.resize2d"})
_OF_TWO = frozenset({"relax.add", "relax.subtract", "relax.multiply"})
_LINEAR_AROUND_ZERO = frozenset({"relax.nn.relu", "relax.nn.leakyrelu"})


def has_wide_form(unit: Unit) -> bool:
    """Return True for units that have integer kernels of 16 bits."""
    if unit.kind != "compute":
        return unit.kind == "linear"
    if unit.operator in _LINEAR_AROUND_ZERO or (unit.operator == "relax.multiply" and len(unit.inputs) == 1):
        return len(unit.members) == 1 and _factor(unit) >= 0
    is_place = unit.keeps_parameters and unit.operator in _PLACES
    return is_place or unit.operator in _OF_ONE or (unit.operator in _OF_TWO and len(unit.inputs) == 2)


def _factor(unit: Unit) -> float:
    """Return the number by which a unit multiplies, or 1 where there is none."""
    arrays = [array for leaf in operands(unit.members[0].value) if (array := array_of(leaf)) is not None]
    return float(arrays[0].reshape(-1)[0]) if arrays else 1.0


@dataclass(frozen=True, kw_only=True)
class ChosenWidth:
    """Units whose activations have 16 bits.

    reasons: why these units have 16 bits, or others 8 bits, in words for the user.
    """

    wide: frozenset[int] = frozenset()
    reasons: tuple[UnitReason, ...] = ()


def choose_width(
    runner: UnitRunner,
    activations: Activations,
    widened: Widened,
    reached_db: Callable[[IntegerChoice], float],
    params: Sequence[relax.Var],
    *,
    units: Set[int],
    min_snr_db: float,
) -> ChosenWidth:
    """Choose the units with activations of 16 bits: none, all possible, or as many as bring every output to
    `min_snr_db`.

    reached_db: returns the ratio that the outputs reach.
    params: the parameters of the function that may be integers. units: the units that may be integers. Where even all
    units do not reach the ratio, all of them get 16 bits.
    """
    integer = {index: runner.units[index] for index in sorted(units)}
    found = [index for index, unit in integer.items() if has_wide_form(unit)]
    if activations == "int16":
        others = [unit for unit in integer.values() if unit.computes and not has_wide_form(unit)]
        reason = "has no integer kernel of 16 bits"
        names = [(unit.name, f"{unit.operator.removeprefix('relax.')} {reason}") for unit in others]
        return ChosenWidth(wide=frozenset(found), reasons=tuple(UnitReason(name=n, reason=r) for n, r in names))

    def reached(wide: frozenset[int]) -> float:
        return reached_db(widened(wide))

    if activations == "int8" or reached(frozenset()) >= min_snr_db:
        return ChosenWidth()
    every = frozenset(found)
    whole, narrow = widened(every), widened(frozenset())

    def without(index: int) -> float:
        linear = {key: (narrow if key == index else whole).linear[key] for key in whole.linear}
        alone = follow_neighbours(runner, replace(whole, wide=every - {index}, linear=linear), params)
        return reached_db(alone)

    alone = {index: without(index) for index in found}
    least = _noise(reached_db(whole))
    noise = {index: _noise(db) - least for index, db in alone.items()}
    left, narrowed = _noise(min_snr_db) - least, list[int]()
    for index in sorted(found, key=lambda index: (noise[index] / saved_work(integer[index]), index)):
        if noise[index] <= left:
            left -= max(0.0, noise[index])
            narrowed.append(index)
    count = most(len(narrowed), lambda count: reached(every - set(narrowed[:count])) >= min_snr_db)
    chosen = every - set(narrowed[:count])
    return ChosenWidth(wide=chosen, reasons=tuple(
        UnitReason(name=integer[index].name, reason=(
            f"in 8 bits it alone leaves {alone[index]:g} dB at the outputs, and {min_snr_db:g} dB are asked for"
        ))
        for index in sorted(chosen)
    ))  # fmt: skip


def _noise(db: float) -> float:
    """Return the noise as a fraction of the signal."""
    return 10 ** (-db / 10)


def saved_work(unit: Unit) -> int:
    """Return the multiply-accumulates of a unit, or the elements it reads: the savings of 8 bits grow with them."""
    if unit.weight is None:
        return max(1, sum(int(np.prod(static_shape(var))) for var in unit.inputs))
    return max(1, int(np.prod(static_shape(unit.result))) * unit.weight.size // len(unit.bias))


Weights = Literal["int8", "mixed", "int4"]
Corrected = Callable[[frozenset[int]], Mapping[int, LinearInt8]]
"""Returns the linear units as integers with corrected biases, given the units whose weights have 4 bits."""


@dataclass(frozen=True, kw_only=True)
class WeightBits:
    """The layers that get weights of 4 bits.

    weights: "int8" for none, "mixed" for as many as leave every output at `min_snr_db`, "int4" for all candidates.
    saved_bytes: the bytes that further layers have to save, whatever their cost in accuracy.
    packs_depthwise: whether depthwise convolutions are candidates.
    """

    weights: Weights = "int8"
    saved_bytes: int = 0
    packs_depthwise: bool = False

    def candidates(self, units: Sequence[Unit]) -> list[int]:
        """Return the units that may have weights of 4 bits."""
        return [index for index, unit in enumerate(units) if self._is_candidate(unit)]

    def _is_candidate(self, unit: Unit) -> bool:
        if unit.kind != "linear" or unit.operator == "relax.nn.conv2d_transpose":
            return False
        is_plain = unit.operator == "relax.matmul" or int(unit.members[0].value.attrs.groups) == 1
        return is_plain or self.packs_depthwise


def choose_bits(
    runner: UnitRunner,
    samples: Sequence[Sample],
    choice: IntegerChoice,
    corrected: Corrected,
    wanted: WeightBits,
    *,
    min_snr_db: float,
) -> frozenset[int]:
    """Return the units of `choice` whose weights get 4 bits; all weights of `choice` have 8 bits.

    Units with activations of 16 bits are left out, because their kernels take only weights of 8 bits.
    """
    found = [index for index in wanted.candidates(runner.units) if index in choice.units - choice.wide]
    if wanted.weights == "int4":
        return frozenset(found)
    if wanted.weights == "int8" and not wanted.saved_bytes:
        return frozenset()
    samples, narrow = spread(samples, NUM_TRIAL_SAMPLES), corrected(frozenset(found))

    def cost(index: int) -> float:
        alone = replace(choice, linear={**choice.linear, index: narrow[index]})
        return 10 ** (-output_db(runner, samples, alone) / 10) / saved_bytes(runner.units[index])

    order = sorted(found, key=lambda index: (cost(index), index))

    def reaches(count: int) -> bool:
        tried = replace(choice, linear=corrected(frozenset(order[:count])))
        return output_db(runner, samples, tried) >= min_snr_db

    count = most(len(order), reaches) if wanted.weights == "mixed" else 0
    saved = 0
    while saved < wanted.saved_bytes and count < len(order):
        saved += saved_bytes(runner.units[order[count]])
        count += 1
    return frozenset(order[:count])


def most(limit: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to the limit for which `holds` returns True, by bisection.

    `holds` is assumed to be True for 0.
    """
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def saved_bytes(unit: Unit) -> int:
    """Return the bytes that weights of 4 bits save."""
    assert unit.weight is not None, "linear units have weights"
    return max(1, unit.weight.size // 2)
