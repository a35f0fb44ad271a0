"""Scales and zero points: real = scale * (integer - zero point), with TVM's arithmetic.

Activations of 8 bits have a scale and any zero point per tensor. Activations of 16 bits have zero point 0, as in
TensorFlow Lite, so that accumulators stay small. Weights of 8 or 4 bits have a scale per output channel and zero point
0. Biases are int32 in units of activation scale * weight scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Array = np.ndarray

INT8 = np.iinfo("int8")
INT16 = np.iinfo("int16")
_LARGEST_WEIGHT = 127
# Range of 4-bit weights, and the fractions of a channel's largest weight that are tried as the largest representable
# number.
NIBBLES = (-8, 7)
_SHRINKS = np.linspace(1.0, 0.4, 31)
# The bias and the products share an int32 accumulator, so the bias gets at most a quarter of its range.
_LARGEST_BIAS = 1 << 29


@dataclass(frozen=True, kw_only=True)
class AffineQuantization:
    """Parameters of one activation tensor, int8 or int16; `scale` is a float32 number."""

    scale: float
    zero_point: int
    dtype: str = "int8"

    def quantize(self, real: Array) -> Array:
        """Convert float32 to integers by a division, rounded half to even."""
        limits = np.iinfo(self.dtype)
        steps = np.rint(real.astype("float32", copy=False) / np.float32(self.scale)) + np.float32(self.zero_point)
        return np.clip(steps, limits.min, limits.max).astype(self.dtype)

    def dequantize(self, integers: Array) -> Array:
        """Convert integers to float32."""
        return (integers.astype("int32") - self.zero_point).astype("float32") * np.float32(self.scale)

    def rounded(self, real: Array) -> Array:
        """Round float32 numbers to the nearest values that the integers represent, as float32."""
        return self.dequantize(self.quantize(real))


# Results of softmax lie in [0, 1), so a step is 1/256.
PROBABILITY = AffineQuantization(scale=1 / 256, zero_point=INT8.min)


def affine_of_range(low: float, high: float) -> AffineQuantization:
    """Return parameters that cover [low, high] and zero, which must be exact for padding and relu."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = float(np.float32((high - low) / (INT8.max - INT8.min)))
    if scale < np.finfo("float32").tiny:  # a tensor that is always zero
        return AffineQuantization(scale=1.0, zero_point=0)
    return AffineQuantization(scale=scale, zero_point=int(np.clip(round(INT8.min - low / scale), INT8.min, INT8.max)))


def wide_of_range(low: float, high: float) -> AffineQuantization:
    """Return parameters of 16 bits that cover [low, high], with zero point 0."""
    scale = float(np.float32(max(-low, high, 0.0) / INT16.max))
    return AffineQuantization(scale=1.0 if scale < np.finfo("float32").tiny else scale, zero_point=0, dtype="int16")


@dataclass(frozen=True, kw_only=True, eq=False)
class LinearInt8:
    """int8 weights with a scale for each index of `axis`, and the bias int32[K] in units of `bias_scale`."""

    weight: Array
    weight_scale: Array
    axis: int
    bias: Array
    bias_scale: Array

    @property
    def real_weight(self) -> Array:
        """The weights as float32, as dequantize computes them."""
        shape = [-1 if axis == self.axis else 1 for axis in range(self.weight.ndim)]
        return self.weight.astype("float32") * self.weight_scale.reshape(shape)

    @property
    def real_bias(self) -> Array:
        """The bias as float32[K]."""
        return self.bias.astype("float32") * self.bias_scale


def quantize_linear(
    weight: Array, axis: int, bias: Array, input_scale: float, given: tuple[Array, Array] | None = None
) -> LinearInt8:
    """Quantize weights float32[..., K, ...] (K at `axis`) and a bias float32[K] to integers.

    A channel's scale follows from its largest weight, or is larger where the bias would otherwise not fit its integer.
    given: integers and scales of the weights, where they are already chosen, with scales large enough for the bias.
    """
    if given is None:
        scale = _scales(_largest(weight, axis) / _LARGEST_WEIGHT, bias, input_scale)
        given = round_by(weight, axis, scale, (-_LARGEST_WEIGHT, _LARGEST_WEIGHT)), scale
    integers, scale = given
    bias_scale = (np.float32(input_scale) * scale).astype("float32")
    bias_scale = np.maximum(bias_scale, np.finfo("float32").tiny)
    steps = np.rint(bias.astype("float64") / bias_scale.astype("float64"))
    return LinearInt8(weight=integers, weight_scale=scale, axis=axis, bias=steps.astype("int32"), bias_scale=bias_scale)


def nibble_scales(weight: Array, axis: int, bias: Array, input_scale: float) -> Array:
    """Return scales float32[K] for 4-bit weights, with the least squared error, or large enough for the bias.

    The bias counts four times, so that it may double later, and a scale may shrink by a quarter, without overflow.
    """
    nearest = _nearest_scale(np.moveaxis(weight, axis, 0), _largest(weight, axis))
    return _scales(nearest, 4 * bias, input_scale)


def round_by(weight: Array, axis: int, scale: Array, limits: tuple[int, int]) -> Array:
    """Round weights float32[..., K, ...] by scale[K] to the nearest int8 numbers within `limits`."""
    shape = [-1 if index == axis else 1 for index in range(weight.ndim)]
    return np.clip(np.rint(weight / scale.reshape(shape)), *limits).astype("int8")


def _largest(weight: Array, axis: int) -> Array:
    """Return the largest magnitude of each channel, float64[K]."""
    others = tuple(index for index in range(weight.ndim) if index != axis)
    return np.abs(weight).max(axis=others, initial=0.0).astype("float64")


def _scales(wanted: Array, bias: Array, input_scale: float) -> Array:
    """Return scales float32[K], larger than wanted where the bias would otherwise not fit its integer."""
    needed = np.abs(bias.astype("float64")) / (input_scale * _LARGEST_BIAS)
    scale = np.maximum(wanted, needed).astype("float32")
    return np.where(scale < np.finfo("float32").tiny, np.float32(1), scale)


def _nearest_scale(weight: Array, largest: Array) -> Array:
    """Return the tried scales float64[K] with which 4 bits come nearest to the weights float32[K, ...]."""
    rows = weight.reshape(len(weight), -1).astype("float64")
    tried = np.maximum(np.outer(_SHRINKS, largest / NIBBLES[1]), np.finfo("float32").tiny)[:, :, np.newaxis]
    errors = [np.square(np.clip(np.rint(rows / scale), *NIBBLES) * scale - rows).sum(axis=1) for scale in tried]
    return np.take_along_axis(tried[:, :, 0], np.argmin(errors, axis=0)[np.newaxis], axis=0)[0]
