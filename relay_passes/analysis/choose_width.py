"""Choice of the units whose activations get 16 bits, by what 8 bits cost in accuracy, measured on calibration samples.

Each candidate is tried in 8 bits alone, all others in 16, with the noise that it adds at the outputs for a
multiply-accumulate, or element, that it saves. In this order they go back to 8 bits, as long as noises add up to less
than what is asked for; then it is measured, and the last ones have 16 bits again where that says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from tvm import relax

from relay_passes.analysis.choose_bits import most
from relay_passes.analysis.choose_float import UnitReason, follow_neighbours
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.run_units import IntegerChoice, UnitRunner
from relay_passes.dataflow import array_of, operands, static_shape

Activations = Literal["int8", "mixed", "int16"]
Widened = Callable[[frozenset[int]], IntegerChoice]
"""All units in integers, their biases corrected, by those whose activations have 16 bits."""

_OF_ONE = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.mean", "relax.sum"})
_PLACES = frozenset({"relax.nn.pad", "relax.image.resize2d"})
_OF_TWO = frozenset({"relax.add", "relax.subtract", "relax.multiply"})
_LINEAR_AROUND_ZERO = frozenset({"relax.nn.relu", "relax.nn.leakyrelu"})


def has_wide_form(unit: Unit) -> bool:
    """True for what has integer kernels of 16 bits."""
    if unit.kind != "compute":
        return unit.kind == "linear"
    if unit.operator in _LINEAR_AROUND_ZERO or (unit.operator == "relax.multiply" and len(unit.inputs) == 1):
        return len(unit.members) == 1 and _factor(unit) >= 0
    is_place = unit.keeps_parameters and unit.operator in _PLACES
    return is_place or unit.operator in _OF_ONE or (unit.operator in _OF_TWO and len(unit.inputs) == 2)


def _factor(unit: Unit) -> float:
    """The number by which a unit multiplies; 1 where there is none."""
    arrays = [array for leaf in operands(unit.members[0].value) if (array := array_of(leaf)) is not None]
    return float(arrays[0].reshape(-1)[0]) if arrays else 1.0


@dataclass(frozen=True, kw_only=True)
class ChosenWidth:
    """Units that have activations of 16 bits. reasons: for those, or for others in 8, as users read them."""

    wide: frozenset[int] = frozenset()
    reasons: tuple[UnitReason, ...] = ()


def choose_width(
    runner: UnitRunner,
    activations: Activations,
    widened: Widened,
    reached_db: Callable[[IntegerChoice], float],
    params: Sequence[relax.Var],
    *,
    min_snr_db: float,
) -> ChosenWidth:
    """Units with activations of 16 bits: none, all that can, or as many as bring every output to `min_snr_db`.

    reached_db: how good outputs are. params: those of the function's parameters that may be integers. Where all of
    the units do not reach it, all have them.
    """
    units = runner.units
    found = [index for index, unit in enumerate(units) if has_wide_form(unit)]
    if activations == "int16":
        others = [unit for unit in units if unit.kind == "compute" and not has_wide_form(unit)]
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
    for index in sorted(found, key=lambda index: (noise[index] / saved_work(units[index]), index)):
        if noise[index] <= left:
            left -= max(0.0, noise[index])
            narrowed.append(index)
    count = most(len(narrowed), lambda count: reached(every - set(narrowed[:count])) >= min_snr_db)
    chosen = every - set(narrowed[:count])
    return ChosenWidth(wide=chosen, reasons=tuple(
        UnitReason(name=units[index].name, reason=(
            f"in 8 bits it alone leaves {alone[index]:g} dB at the outputs, and {min_snr_db:g} dB are asked for"
        ))
        for index in sorted(chosen)
    ))  # fmt: skip


def _noise(db: float) -> float:
    """Noise as a part of the signal."""
    return 10 ** (-db / 10)


def saved_work(unit: Unit) -> int:
    """Multiply-accumulates, or elements read, of a unit: what 8 bits save grows with them."""
    if unit.weight is None:
        return max(1, sum(int(np.prod(static_shape(var))) for var in unit.inputs))
    return max(1, int(np.prod(static_shape(unit.result))) * unit.weight.size // len(unit.bias))
