"""Weights of few bits rounded one after the other, each error taken up by those that follow.

What is kept small is not the error of the weights but that of the products with the inputs seen in calibration
(Frantar et al., GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers, 2023, algorithm 1;
after Hassibi and Stork's Optimal Brain Surgeon, 1993).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tvm import relax

from relay_passes.analysis.quantization_units import Unit

Array = np.ndarray

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
