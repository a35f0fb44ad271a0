"""Choice of the linear units whose weights get 4 bits, by what each costs in accuracy, measured on calibration samples.

Each candidate is tried alone, with the noise that it adds at the outputs for a byte that it saves; they follow one
another in this order, as in mixed-precision quantization by sensitivity (Dong et al., HAWQ, 2019, there by curvature).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from relay_passes.analysis.choose_float import NUM_TRIAL_SAMPLES, output_db
from relay_passes.analysis.correct_biases import spread
from relay_passes.analysis.int8_parameters import LinearInt8
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.run_units import IntegerChoice, Sample, UnitRunner

Weights = Literal["int8", "mixed", "int4"]
Corrected = Callable[[frozenset[int]], Mapping[int, LinearInt8]]
"""Linear units as integers, their biases corrected, by the units whose weights have 4 bits."""


@dataclass(frozen=True, kw_only=True)
class WeightBits:
    """Layers that are to have weights of 4 bits.

    weights: none, as many as leave every output at `min_snr_db`, or all candidates. saved_bytes: those that further
    layers have to save, whatever they cost. packs_depthwise: depthwise convolutions are candidates.
    """

    weights: Weights = "int8"
    saved_bytes: int = 0
    packs_depthwise: bool = False

    def candidates(self, units: Sequence[Unit]) -> list[int]:
        """Units that may have weights of 4 bits."""
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
    """Units of `choice` whose weights get 4 bits; `choice` has all of them in 8.

    No units with activations of 16 bits, whose kernels take weights of 8.
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
    """Largest number up to the limit for which it holds, by halving; it is taken to hold for 0."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def saved_bytes(unit: Unit) -> int:
    """Bytes that weights of 4 bits save."""
    assert unit.weight is not None, "linear units have weights"
    return max(1, unit.weight.size // 2)
