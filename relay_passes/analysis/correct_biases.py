"""Quantize the weights of a linear unit: rounding, and biases that remove the mean error.

Unit by unit in order: a unit sees what the quantized units before it give on the calibration samples, its mean output
(before relu and clip) is compared with the float network's, channel by channel, and the difference goes into the bias
(Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.2, measured).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


_PARTS = (1.0, 0.85, 0.92, 1.1, 1.2)
"""Parts of a scale that are tried, the first one where others come no nearer."""
MOST_DEPTH = 2048
"""Weights of a channel beyond which they are rounded one by one: products of all pairs of inputs are held."""
_DAMPING = 0.01
"""Part of the mean square of an input that is added to each, so that inputs never seen decide nothing."""


def rounded_weights(
    unit: Unit, inputs: Iterable[Array], scale: Array, limits: tuple[int, int]
) -> tuple[Array, Array] | None:
    """The unit's weights as integers of `limits`, and scales float32[K] by which their products come near.

    scale: float32[K], some parts of which are tried. None for a channel of more than MOST_DEPTH weights.
    """
    matrix, groups = _rows(unit)
    depth = matrix.shape[1]
    if depth > MOST_DEPTH:
        return None
    moments = np.zeros((groups, depth, depth))
    for array in inputs:
        for group, columns in enumerate(_columns(unit, array, groups)):
            moments[group] += columns.T @ columns
    parts, scales = matrix.reshape(groups, -1, depth), scale.astype("float64").reshape(groups, -1)
    found = [_nearest(*part, limits) for part in zip(parts, scales, moments, strict=True)]
    integers, chosen = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return _shaped(unit, integers), chosen


def _nearest(weight: Array, scale: Array, moment: Array, limits: tuple[int, int]) -> tuple[Array, Array]:
    """int8[K, depth] and scales float32[K] of weights float64[K, depth], those of the least error in products.

    moment: products of pairs of inputs, float64[depth, depth].
    """
    damped = moment + np.eye(len(moment)) * max(_DAMPING * float(np.trace(moment)) / len(moment), 1e-12)
    upper = np.linalg.cholesky(np.linalg.inv(damped)).T
    tried = [(scale * part).astype("float32") for part in _PARTS]
    integers = [_compensated(weight.copy(), one.astype("float64"), upper, limits) for one in tried]
    wrong = [found * one[:, np.newaxis].astype("float64") - weight for found, one in zip(integers, tried, strict=True)]
    best = np.argmin([np.einsum("kd,de,ke->k", error, damped, error) for error in wrong], axis=0)
    rows = np.arange(len(weight))
    return np.stack(integers)[best, rows], np.stack(tried)[best, rows]


def _compensated(weight: Array, scale: Array, upper: Array, limits: tuple[int, int]) -> Array:
    """int8[K, depth] of weights float64[K, depth], which are changed. upper: factor of the moments' inverse."""
    result = np.zeros(weight.shape, "int8")
    for i in range(weight.shape[1]):
        result[:, i] = np.clip(np.rint(weight[:, i] / scale), *limits)
        error = (weight[:, i] - result[:, i] * scale) / upper[i, i]
        weight[:, i + 1 :] -= np.outer(error, upper[i, i + 1 :])
    return result


def _rows(unit: Unit) -> tuple[Array, int]:
    """Weights float64[K, depth], depth as `_columns` orders it, and the number of groups."""
    assert unit.weight is not None, "linear units have weights"
    if unit.operator == "relax.matmul":
        return unit.weight.T.astype("float64"), 1
    attrs = unit.members[0].value.attrs
    weight = unit.weight.transpose([str(attrs.kernel_layout).index(axis) for axis in "OIHW"])
    return weight.reshape(len(weight), -1).astype("float64"), int(attrs.groups)


def _shaped(unit: Unit, rows: Array) -> Array:
    """`_rows` taken back."""
    assert unit.weight is not None, "linear units have weights"
    if unit.operator == "relax.matmul":
        return np.ascontiguousarray(rows.T)
    layout = str(unit.members[0].value.attrs.kernel_layout)
    shape = [unit.weight.shape[layout.index(axis)] for axis in "OIHW"]
    return np.ascontiguousarray(rows.reshape(shape).transpose(["OIHW".index(axis) for axis in layout]))


def _columns(unit: Unit, array: Array, groups: int) -> Iterable[Array]:
    """Inputs that the weights of a channel are multiplied with, float64[places, depth], for each group."""
    call = unit.members[0].value
    if unit.operator == "relax.matmul":
        yield array.reshape(-1, array.shape[-1]).astype("float64")
        return
    windows = _windows(call, array)  # [N, C, P, Q, R, S]
    depth = windows.shape[1] // groups
    for group in range(groups):
        part = windows[:, group * depth : (group + 1) * depth]
        yield part.transpose(0, 2, 3, 1, 4, 5).reshape(-1, depth * part.shape[4] * part.shape[5]).astype("float64")


def _windows(call: relax.Call, array: Array) -> Array:
    """Windows of a convolution over its input, a view."""
    attrs, weight = call.attrs, call.args[1]
    image = array.transpose([str(attrs.data_layout).index(axis) for axis in "NCHW"])
    top, left, bottom, right = (int(extent) for extent in attrs.padding)
    image = np.pad(image, ((0, 0), (0, 0), (top, bottom), (left, right)))
    (down, across), (rows, columns) = map(int, attrs.strides), map(int, attrs.dilation)
    extents = [int(extent) for extent in weight.ty.shape]
    taps = [extents[str(attrs.kernel_layout).index(axis)] for axis in "HW"]
    spans = ((taps[0] - 1) * rows + 1, (taps[1] - 1) * columns + 1)
    every = np.lib.stride_tricks.sliding_window_view(image, spans, axis=(2, 3))
    return every[:, :, ::down, ::across, ::rows, ::columns]
