"""Kernel for LayerNorm and RMSNorm of a quantized tensor over its last axis, integers only."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, structure
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.shared.requantize import quantization, quantized_bytes, scale_of
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.operators.kinds import Array, QNormalize, TensorType

# Normalization of vectors in fixed point: the constants of a layer, and the computation in numpy, bit for bit.
#
# A vector x has n elements with zero point z. S is sum(x - z), or 0 without centering, and Q is sum((x - z)^2). Then
# element i of the result is d / sqrt(W) with d = n (x - z) - S and W = n Q - S^2 + n^2 epsilon / scale^2, whatever the
# scale. So sums are exact. 1 / sqrt(W) has 31 bits, and the quotient t has at least 15 fractional bits. A result is
# (t weight + bias) in steps of the output. It is rounded once, halves up, and is within 1 step of the real result.

MOST_ELEMENTS = 4096
MOST_FRACTION, LEAST_REST, MOST_REST = 30, 2, 16
GUESSES = (round(1.68 * (1 << 30)), round(1.19 * (1 << 30)))
"""First guesses of Newton's method, times 2^-46: of 1 / sqrt(m) for m from 2^30, and from 2^31 on."""
NEWTON_STEPS = 5
ROOT_BITS = 46


@dataclass(frozen=True, kw_only=True, eq=False)
class Normalizer:
    """Constants of a layer.

    fraction: fractional bits of W, even. epsilon: its part of W. quotient: fractional bits of a quotient. rest: final
    right shift of a result. weight, bias: int32[n] each.
    """

    length: int
    is_centered: bool
    zero_point: int
    fraction: int
    epsilon: int
    quotient: int
    rest: int
    weight: Array
    bias: Array
    low: int
    high: int

    @classmethod
    def of(cls, operator: QNormalize) -> Self | None:
        """Return the layer's constants; None if results or squares do not fit, or epsilon is far above the squares."""
        source, output = operator.inputs[0], operator.output
        length, step = source.shape[-1], scale_of(output)
        epsilon = length**2 * operator.epsilon / scale_of(source) ** 2
        fraction = min(MOST_FRACTION, 61 - math.frexp(length**2 * 2.0**16 + epsilon)[1]) // 2 * 2
        quotient = 28 - -(-(length - 1).bit_length() // 2)
        weight, bias = operator.weight / np.float64(step), operator.bias / np.float64(step)
        bias = bias + quantization(output).zero_point
        largest = math.sqrt(length) * np.abs(weight).max() + np.abs(bias).max() + 1
        if not math.isfinite(largest):
            return None
        rest = min(MOST_REST, 30 - math.frexp(largest)[1], 30 - math.frexp(np.abs(weight).max())[1] - 32 + quotient)
        if fraction < 0 or rest < LEAST_REST:
            return None
        half = 1 << (rest - 1)
        made = cls(
            length=length, is_centered=operator.is_centered, zero_point=quantization(source).zero_point,
            fraction=fraction, epsilon=round(epsilon * 2.0**fraction), quotient=quotient, rest=rest,
            weight=np.rint(weight * 2.0 ** (32 + rest - quotient)).astype(np.int32),
            bias=(np.rint(bias * 2.0**rest) + half).astype(np.int32), low=operator.low, high=operator.high,
        )  # fmt: skip
        _, shift = inverse_root(np.array([((255 * length) ** 2 << fraction) + made.epsilon]))
        return made if made.left_shift(shift).min() >= 0 else None

    def run(self, vectors: Array) -> Array:
        """Return int64 results of int64[..., n] elements."""
        x = vectors - self.zero_point
        total = x.sum(axis=-1, keepdims=True) * self.is_centered
        squares = (x * x).sum(axis=-1, keepdims=True)
        root, shift = inverse_root(((self.length * squares - total**2) << self.fraction) + self.epsilon)
        quotient = ((self.length * x - total) << self.left_shift(shift)) * root >> 32
        value = ((quotient * self.weight >> 32) + self.bias) >> self.rest
        return np.clip(value, self.low, self.high)

    def left_shift(self, shift: Array) -> Array:
        """Return the shift of elements before the product with an inverse root, from the root's own shift."""
        return np.minimum(31, 32 + self.quotient - ROOT_BITS - ((shift - self.fraction) >> 1))

    def members(self) -> dict[str, Value]:
        """Return the members of a `tvm_ext_normalizer` after the vectors."""
        return {
            "is_centered": self.is_centered, "zero_point": self.zero_point, "fraction": self.fraction,
            "epsilon": f"INT64_C({self.epsilon})", "quotient": self.quotient, "rest": self.rest, "low": self.low,
            "high": self.high,
        }  # fmt: skip


def inverse_root(value: Array) -> tuple[Array, Array]:
    """Return (root, shift): root is 2^46 / sqrt(value / 2^shift), value / 2^shift from 2^30 up to 2^32, shift even.

    value: int64; 0 counts as 1.
    """
    value = np.maximum(value, 1)
    bits = np.array([int(v).bit_length() for v in value.ravel()], np.int64).reshape(value.shape)
    shift = (bits - 31) >> 1 << 1
    mantissa = np.where(shift > 0, value >> np.maximum(shift, 0), value << np.maximum(-shift, 0))
    root = np.where(mantissa < 1 << 31, GUESSES[0], GUESSES[1]).astype(np.int64)
    for _ in range(NEWTON_STEPS):
        square = root * root >> 32
        error = (3 << 28) - (mantissa * square >> 32)
        root = np.minimum(root * error >> 29, (1 << 31) - 1)
    return root, shift


# LayerNorm and RMSNorm of a quantized tensor over its last axis, integers only.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], C up to 4096; exact sums, one inverse square root per vector.

ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 15, 120
INCLUDES = ("tvm_ext_normalize.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")


def reference(operator: QNormalize, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    return [normalizer(operator).run(inputs[0].astype(np.int64)).astype(operator.output.dtype)]


def normalizer(operator: QNormalize) -> Normalizer:
    made = Normalizer.of(operator)
    assert made is not None, "what does not fit is refused"
    return made


def vectors_are_short(operator: QNormalize, target: Target) -> bool:
    """the last axis must have 2 to 4096 elements"""
    return 2 <= operator.inputs[0].shape[-1] <= MOST_ELEMENTS


def results_fit(operator: QNormalize, target: Target) -> bool:
    """results must be finite and at most 2^28 steps of the output, and epsilon not far above the largest variance"""
    return Normalizer.of(operator) is not None


def implement(operator: QNormalize, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return of_vectors(operator, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def c_function(
    name: str, layer: list[str], source: TensorType, output: TensorType, includes: tuple[str, ...]
) -> CFunction:
    """Return the C that calls a function of a header for a layer with integer weights. layer: defines `layer`."""
    return CFunction(
        parameters=(
            Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
            Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
            Parameter(name="weight", ctype="int32_t", role="constant"),
            Parameter(name="bias", ctype="int32_t", role="constant"),
        ),
        body="\n".join([*layer, f"{name}(&layer, input, output, weight, bias);"]),
        includes=includes,
    )


def of_vectors(operator: QNormalize, count: int) -> Implementation:
    """Return the kernel for `count` vectors."""
    source, output, made = operator.inputs[0], operator.output, normalizer(operator)
    members: dict[str, Value] = {"vectors": count, "length": made.length, "is_unsigned": source.dtype == "uint8"}
    layer = structure("tvm_ext_normalize_layer", "layer", members | made.members())
    return Implementation(
        kernel=KERNEL.name,
        function=c_function("tvm_ext_normalize", layer, source, output, INCLUDES),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weight", made.weight), ("bias", made.bias)),
        instructions=count * (made.length * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


KERNEL = Kernel(
    name="qnormalize_i8",
    title="LayerNorm and RMSNorm of a quantized tensor over the last axis",
    operator=QNormalize,
    implement=implement,
    constraints=(quantized_bytes, vectors_are_short, results_fit),
)
