"""Quantize the weights of linear units, and correct their biases to remove the mean error.

The units are processed in order. Each unit reads what the quantized units ahead of it compute on the calibration
samples. Its mean output (ahead of relu and clip) is compared with the float network's, channel by channel, and the
difference is added to the bias (Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction,
2019, section 4.2, measured variant).
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
from relay_passes.dataflow import num_elements

# All samples pass a unit before the next unit runs, so the live values are held for each sample, in float and as
# integers.
_MAX_HELD_BYTES = 1 << 28


def correct_biases(
    runner: UnitRunner,
    samples: Sequence[Sample],
    choice: IntegerChoice,
    four_bits: frozenset[int] = frozenset(),
) -> dict[int, LinearInt8]:
    """Return the int8 form of each linear unit that computes in integers.

    choice: the units that do, and the parameters of the activations.
    four_bits: units whose weights have 4 bits.
    As many evenly spread samples are used as fit in 256 MiB.
    """
    choice = replace(choice, linear={})
    samples = spread(samples, _affordable(runner))
    exact: list[dict[relax.Var, Any]] = [runner.start(sample) for sample in samples]
    rounded: list[dict[relax.Var, Any]] = [runner.start(sample, choice) for sample in samples]
    found: dict[int, LinearInt8] = {}
    for index, unit in enumerate(runner.units):
        wanted = [runner.compute(index, values) for values in exact]
        if unit.kind == "linear" and index in choice.units:
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
    """Return the unit's weights in 4 bits and their scales, with the least error of products on the samples.

    parameters: of the unit's input.
    """
    (var,) = unit.inputs
    assert unit.weight is not None and unit.bias is not None, "linear units have both"
    nearest = nibble_scales(unit.weight, unit.axis, unit.bias, parameters.scale)
    inputs = (parameters.rounded(values[var]) for values in samples)
    found = rounded_weights(unit, inputs, nearest, NIBBLES)
    return found or (round_by(unit.weight, unit.axis, nearest, NIBBLES), nearest)


def spread(samples: Sequence[Sample], count: int) -> Sequence[Sample]:
    """Return at most `count` of the samples, evenly spread."""
    if count >= len(samples):
        return samples
    return [samples[index * len(samples) // count] for index in range(count)]


def _per_channel(unit: Unit, array: Array) -> Array:
    """Return the mean of each output channel, float64[K]."""
    others = tuple(axis for axis in range(array.ndim) if axis != unit.channel_axis)
    return array.mean(axis=others, dtype="float64")


def _affordable(runner: UnitRunner) -> int:
    """Return the number of samples whose values fit in memory at the widest point of the network."""
    live, widest = {param: 4 * num_elements(param) for param in runner.params}, 0
    for index, unit in enumerate(runner.units):
        live[unit.result] = 4 * num_elements(unit.result)
        widest = max(widest, sum(live.values()))
        for var in runner.dead_after.get(index, ()):
            live.pop(var, None)
    return max(1, _MAX_HELD_BYTES // max(1, 2 * widest))


_PARTS = (1.0, 0.85, 0.92, 1.1, 1.2)
"""Fractions of a scale that are tried. The first fraction wins a tie."""
MOST_DEPTH = 2048
"""Most weights of a channel that are rounded jointly. The products of all pairs of inputs are held in memory."""
_DAMPING = 0.01
"""Fraction of the mean square of the inputs that is added to each, so that inputs never seen do not decide."""


def rounded_weights(
    unit: Unit, inputs: Iterable[Array], scale: Array, limits: tuple[int, int]
) -> tuple[Array, Array] | None:
    """Return the unit's weights as integers within `limits`, and scales float32[K], with the least error of products.

    scale: float32[K], of which some fractions are tried. None for a channel of more than MOST_DEPTH weights.
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
    """Return int8[K, depth] and scales float32[K] for weights float64[K, depth], with the least error of products.

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
    """Round weights float64[K, depth] to int8[K, depth], moving the error of each column into later columns.

    The weights are modified. upper: factor of the moments' inverse. The method is that of GPTQ (Frantar et al., 2022).
    """
    result = np.zeros(weight.shape, "int8")
    for i in range(weight.shape[1]):
        result[:, i] = np.clip(np.rint(weight[:, i] / scale), *limits)
        error = (weight[:, i] - result[:, i] * scale) / upper[i, i]
        weight[:, i + 1 :] -= np.outer(error, upper[i, i + 1 :])
    return result


def _rows(unit: Unit) -> tuple[Array, int]:
    """Return weights float64[K, depth], in the order of depth of `_columns`, and the number of groups."""
    assert unit.weight is not None, "linear units have weights"
    if unit.operator == "relax.matmul":
        return unit.weight.T.astype("float64"), 1
    attrs = unit.members[0].value.attrs
    weight = unit.weight.transpose([str(attrs.kernel_layout).index(axis) for axis in "OIHW"])
    return weight.reshape(len(weight), -1).astype("float64"), int(attrs.groups)


def _shaped(unit: Unit, rows: Array) -> Array:
    """Return rows of `_rows` in the shape of the unit's weights."""
    assert unit.weight is not None, "linear units have weights"
    if unit.operator == "relax.matmul":
        return np.ascontiguousarray(rows.T)
    layout = str(unit.members[0].value.attrs.kernel_layout)
    shape = [unit.weight.shape[layout.index(axis)] for axis in "OIHW"]
    return np.ascontiguousarray(rows.reshape(shape).transpose(["OIHW".index(axis) for axis in layout]))


def _columns(unit: Unit, array: Array, groups: int) -> Iterable[Array]:
    """Yield the inputs that the weights of a channel are multiplied with, float64[positions, depth], for each group."""
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
    """Return the windows of a convolution over its input, as a view."""
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
