"""Int8 weights of every linear unit, with biases that take back the mean error quantization leaves in each channel.

Unit by unit in order: a unit sees what the quantized units before it give on the calibration samples, its mean output
(before relu and clip) is compared with the float network's, channel by channel, and the difference goes into the bias
(Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.2, measured).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.analysis.int8_parameters import (
    NIBBLES,
    AffineQuantization,
    LinearInt8,
    nibble_scales,
    quantize_linear,
    round_by,
)
from relay_passes.analysis.quantization_units import Unit
from relay_passes.analysis.round_weights import rounded_weights
from relay_passes.analysis.run_units import Array, IntegerChoice, Sample, UnitRunner
from relay_passes.dataflow import static_shape

# All samples pass one unit before the next, so the values between units are held for each of them, twice.
_MAX_HELD_BYTES = 1 << 28


def correct_biases(
    runner: UnitRunner,
    samples: Sequence[Sample],
    choice: IntegerChoice,
    four_bits: frozenset[int] = frozenset(),
) -> dict[int, LinearInt8]:
    """Per linear unit its int8 form, all units that can be integers being so. choice: their activations.
    four_bits: units whose weights have so many.

    As many samples are used as 256 MiB hold, spread evenly.
    """
    integer = frozenset(index for index, unit in enumerate(runner.units) if unit.kind != "float")
    choice = replace(choice, units=integer, linear={})
    samples = spread(samples, _affordable(runner))
    exact: list[dict[relax.Var, Any]] = [runner.start(sample) for sample in samples]
    rounded: list[dict[relax.Var, Any]] = [runner.start(sample, choice) for sample in samples]
    found: dict[int, LinearInt8] = {}
    for index, unit in enumerate(runner.units):
        wanted = [runner.compute(index, values) for values in exact]
        if unit.kind == "linear":
            parameters = choice.parameters(index, unit.inputs[0])
            scale = parameters.scale
            given = _in_four_bits(unit, parameters, rounded) if index in four_bits else None
            found[index] = quantize_linear(unit.weight, unit.axis, unit.bias, scale, given)
            choice = replace(choice, linear=dict(found))
            got = (runner.compute(index, values, choice).before_clamps for values in rounded)
            error = np.mean(
                [_per_channel(unit, a.before_clamps) - _per_channel(unit, b) for a, b in zip(wanted, got, strict=True)],
                axis=0,
            )
            corrected = unit.bias + error.astype("float32")
            found[index] = quantize_linear(unit.weight, unit.axis, corrected, scale, given)
            choice = replace(choice, linear=dict(found))
        for values, result in zip(exact, wanted, strict=True):
            values[unit.result] = result.value
        for values in rounded:
            values[unit.result] = runner.compute(index, values, choice).value
        for values in (*exact, *rounded):
            for var in runner.dead_after.get(index, ()):
                del values[var]
    return found


def _in_four_bits(
    unit: Unit, parameters: AffineQuantization, samples: Sequence[Mapping[relax.Var, Any]]
) -> tuple[Array, Array]:
    """The unit's weights in 4 bits and their scales, by which products on the samples' values come nearest.

    parameters: of the unit's input.
    """
    (var,) = unit.inputs
    assert unit.weight is not None and unit.bias is not None, "linear units have both"
    nearest = nibble_scales(unit.weight, unit.axis, unit.bias, parameters.scale)
    inputs = (parameters.rounded(values[var]) for values in samples)
    found = rounded_weights(unit, inputs, nearest, NIBBLES)
    return found or (round_by(unit.weight, unit.axis, nearest, NIBBLES), nearest)


def spread(samples: Sequence[Sample], count: int) -> Sequence[Sample]:
    """At most `count` of the samples, at even distances."""
    if count >= len(samples):
        return samples
    return [samples[index * len(samples) // count] for index in range(count)]


def _per_channel(unit: Unit, array: Array) -> Array:
    """Mean of each output channel, float64[K]."""
    others = tuple(axis for axis in range(array.ndim) if axis != unit.channel_axis)
    return array.mean(axis=others, dtype="float64")


def _affordable(runner: UnitRunner) -> int:
    """Number of samples whose values fit, by the widest point of the network."""
    live, widest = {param: _bytes(param) for param in runner.params}, 0
    for index, unit in enumerate(runner.units):
        live[unit.result] = _bytes(unit.result)
        widest = max(widest, sum(live.values()))
        for var in runner.dead_after.get(index, ()):
            live.pop(var, None)
    return max(1, _MAX_HELD_BYTES // max(1, 2 * widest))


def _bytes(var: relax.Var) -> int:
    parts = var.ty.fields if isinstance(var.ty, relax.TupleType) else [var.ty]
    return sum(int(np.prod(static_shape(relax.Var("", part)), dtype=object)) * 4 for part in parts)
