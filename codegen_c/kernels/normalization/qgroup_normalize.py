"""Kernel for GroupNorm and InstanceNorm of a quantized tensor, integers only.

int8 or uint8[N, C, ...] or [N, ..., C] -> the same; up to 65,536 elements in a group. Sums are exact, and each channel
of a group has one multiplier and one addend.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.c_text.text import Value, structure
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.normalization.qnormalize import MOST_FRACTION, ROOT_BITS, c_function, inverse_root
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, scale_of
from codegen_c.operators.kinds import Array, QGroupNormalize

# A group has n elements x, S = sum(x) and Q = sum(x^2). The zero point does not count, because x - S / n does not
# depend on it. With the spread V = n Q - S^2, an element becomes (x - S / n) A + bias in steps of the output, where
# A = n weight / sqrt(V + n^2 epsilon / scale^2) of its channel. Two bounds give `rest`, the fractional bits of a
# result: V is 0 or at least n - 1, so A is at most weight n / sqrt(n - 1); and |x - S / n| A is at most
# weight sqrt(n - 1). Both are at most 2^20 steps. The mean has 22 fractional bits and an error of at most 1.5 of its
# last bit, so a result is within 1 step of the real result. Where V is 0, all elements equal the mean, and A is 0.

MOST_ELEMENTS = 65536
LEAST_REST, MOST_REST = 10, 16
MEAN_BITS = 22
MOST_SHIFT = 62
ELEMENT_INSTRUCTIONS, CHANNEL_INSTRUCTIONS, GROUP_INSTRUCTIONS = 14, 45, 150
INCLUDES = ("tvm_ext_group_normalize.h", "tvm_ext_normalize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")


@dataclass(frozen=True, kw_only=True, eq=False)
class GroupNormalizer:
    """Constants of a layer; the fields are those of `tvm_ext_group_normalize_layer`.

    weight, bias: int32[C] each.
    """

    images: int
    groups: int
    depth: int
    pixels: int
    is_last: bool
    is_unsigned: bool
    fraction: int
    epsilon: int
    reciprocal: int
    mean_shift: int
    weight_fraction: int
    rest: int
    weight: Array
    bias: Array
    low: int
    high: int

    @classmethod
    def of(cls, operator: QGroupNormalize) -> Self | None:
        """Return the layer's constants; None if results do not fit."""
        source, output = operator.inputs[0], operator.output
        length, step = elements_of_group(operator), np.float64(scale_of(output))
        channels = source.shape[operator.channel_axis]
        weight, bias = operator.weight / step, operator.bias / step + quantization(output).zero_point
        epsilon = length**2 * operator.epsilon / scale_of(source) ** 2
        largest = np.abs(weight).max() * length / math.sqrt(length - 1) + np.abs(bias).max() + 1
        if not math.isfinite(largest) or not 0 <= epsilon < 2.0**60:
            return None
        rest = min(MOST_REST, 30 - math.frexp(largest)[1])
        if rest < LEAST_REST:
            return None
        weight = weight * length
        weight_fraction = min(MOST_SHIFT, 30 - math.frexp(np.abs(weight).max())[1])
        fraction = min(MOST_FRACTION, 61 - math.frexp(length**2 * 2.0**16 + epsilon)[1]) // 2 * 2
        mean_shift = 7 + length.bit_length()
        return cls(
            images=source.shape[0], groups=operator.groups, depth=channels // operator.groups,
            pixels=source.num_elements // (source.shape[0] * channels), is_last=operator.channel_axis > 1,
            is_unsigned=source.dtype == "uint8",
            fraction=fraction, epsilon=round(epsilon * 2.0**fraction),
            reciprocal=round(2.0 ** (MEAN_BITS + mean_shift) / length), mean_shift=mean_shift,
            weight_fraction=weight_fraction, rest=rest,
            weight=np.rint(weight * 2.0**weight_fraction).astype(np.int32),
            bias=(np.rint(bias * 2.0**rest) + (1 << (rest - 1))).astype(np.int32), low=operator.low, high=operator.high,
        )  # fmt: skip

    def run(self, images: Array) -> Array:
        """Return int64 results of integers[images, groups, depth, pixels]."""
        x = images.astype(np.int64)
        length = self.depth * self.pixels
        total = x.sum(axis=(2, 3), keepdims=True)
        spread = length * (x * x).sum(axis=(2, 3), keepdims=True) - total**2
        root, shift = inverse_root((spread << self.fraction) + self.epsilon)
        shift = np.minimum(
            MOST_SHIFT, ROOT_BITS + ((shift - self.fraction) >> 1) + self.weight_fraction - self.rest
        )  # fmt: skip
        mean = (total * self.reciprocal + (1 << (self.mean_shift - 1))) >> self.mean_shift
        weight, bias = (
            values.astype(np.int64).reshape(self.groups, self.depth, 1) for values in (self.weight, self.bias)
        )
        factor = (weight * np.where(spread > 0, root, 0) + (np.int64(1) << (shift - 1))) >> shift
        addend = bias - ((factor * mean + (1 << (MEAN_BITS - 1))) >> MEAN_BITS)
        return np.clip((x * factor + addend) >> self.rest, self.low, self.high)

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_group_normalize_layer`."""
        channels = self.groups * self.depth
        return {
            "images": self.images, "groups": self.groups, "depth": self.depth, "pixels": self.pixels,
            "channel_stride": 1 if self.is_last else self.pixels, "pixel_stride": channels if self.is_last else 1,
            "is_unsigned": self.is_unsigned, "fraction": self.fraction, "epsilon": f"INT64_C({self.epsilon})",
            "reciprocal": self.reciprocal, "mean_shift": self.mean_shift, "weight_fraction": self.weight_fraction,
            "rest": self.rest, "low": self.low, "high": self.high,
        }  # fmt: skip


def elements_of_group(operator: QGroupNormalize) -> int:
    source = operator.inputs[0]
    return source.num_elements // (source.shape[0] * operator.groups)


def reference(operator: QGroupNormalize, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    made = normalizer(operator)
    shape = (made.images, made.groups, made.depth, made.pixels)
    x = np.moveaxis(inputs[0], operator.channel_axis, 1)
    y = made.run(x.reshape(shape)).reshape(x.shape).astype(operator.output.dtype)
    return [np.ascontiguousarray(np.moveaxis(y, 1, operator.channel_axis))]


def normalizer(operator: QGroupNormalize) -> GroupNormalizer:
    made = GroupNormalizer.of(operator)
    assert made is not None, "what does not fit is refused"
    return made


def groups_are_small(operator: QGroupNormalize, target: Target) -> bool:
    """a group must have 2 to 65536 elements"""
    return 2 <= elements_of_group(operator) <= MOST_ELEMENTS


def results_fit(operator: QGroupNormalize, target: Target) -> bool:
    """weights and biases must be finite, and results at most 2^20 steps of the output before they are clamped"""
    return GroupNormalizer.of(operator) is not None


def implement(operator: QGroupNormalize, target: Target, stored: StoredRows) -> Implementation:
    source, output, made = operator.inputs[0], operator.output, normalizer(operator)
    layer = structure("tvm_ext_group_normalize_layer", "layer", made.members())
    groups = made.images * made.groups
    return Implementation(
        kernel=KERNEL.name,
        function=c_function("tvm_ext_group_normalize", layer, source, output, INCLUDES),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weight", made.weight), ("bias", made.bias)),
        instructions=source.num_elements * ELEMENT_INSTRUCTIONS + groups * (
            made.depth * CHANNEL_INSTRUCTIONS + GROUP_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,), ascends=not made.is_last,
        exact=True,
    )  # fmt: skip


KERNEL = Kernel(
    name="qgroup_normalize_i8",
    title="GroupNorm and InstanceNorm of a quantized tensor",
    operator=QGroupNormalize,
    implement=implement,
    constraints=(quantized_bytes, groups_are_small, results_fit),
)
