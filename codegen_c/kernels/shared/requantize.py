"""Requantization of integer sums: fixed-point factors in numpy and as C, and the constraints of integer kernels.

A positive real factor is mantissa / 2^shift with a mantissa of 31 bits. "onnx" rounding of a sum is
round-half-to-even(sum * mantissa / 2^shift) + zero point, clamped: one rounding of an exact 64-bit product, here and in
tvm_ext_requantize.h. The mantissa is within 2^-32 of the double-precision factor, so results differ from real
arithmetic only if a sum lies that close to a tie. "tflite" rounding, requantize_tflite.py, rounds twice, with halves
away from zero; "litert" rounding, requantize_litert.py, multiplies in float32. A field of the operator selects one. For
sums of more than 32 bits, the mantissa has the bits that a 64-bit product leaves; "tflite_wide" rounding of such sums
is TensorFlow Lite's: a mantissa of 15 bits, rounded once, halves up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Self

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, block
from codegen_c.kernels.contract import Parameter, Target
from codegen_c.kernels.shared import requantize_litert, requantize_tflite
from codegen_c.operators.kinds import Array, Operator, QConv2d, QDense, Quantization, TensorType

INCLUDES = ("tvm_ext_requantize.h",)
BYTES = ("int8", "uint8")
SCALES = ("float32", "float64")
"""Element types of the scales of weights."""
SumRounding = Literal["onnx", "tflite", "tflite_wide", "litert"]
MANTISSA_BITS = 31
MAX_SHIFT = 62
# Far beyond every 8-bit clamp, and low enough that adding a zero point stays within int32.
RESULT_LIMIT = 1 << 30


def rounds_once(operator: Operator, target: Target) -> bool:
    """TensorFlow Lite's roundings are not supported; only ONNX's is: one rounding, halves to even"""
    return getattr(operator, "rounding", "onnx") == "onnx"


def quantized_bytes(operator: Operator, target: Target) -> bool:
    """activations must be int8 or uint8 with one scale, finite and above zero, and a zero point of that type"""
    return all(is_quantized_integer(t, BYTES) for t in (*operator.inputs, *operator.outputs))


def integer_weights(operator: QConv2d | QDense, target: Target) -> bool:
    """weights must be int8, their scales float32 or float64 and the bias int32"""
    types, scales = (operator.weight.dtype, operator.bias.dtype), operator.weight_scale.dtype
    return types == ("int8", "int32") and scales in SCALES


def is_quantized_integer(tensor: TensorType, dtypes: Sequence[str]) -> bool:
    """Return True for a tensor of one of these types with a valid scale and a zero point of its type."""
    if tensor.dtype not in dtypes or tensor.quantization is None:
        return False
    limits = np.iinfo(tensor.dtype)
    scale = scale_of(tensor)
    return math.isfinite(scale) and scale > 0 and limits.min <= tensor.quantization.zero_point <= limits.max


def quantization(tensor: TensorType) -> Quantization:
    """Return the tensor's quantization, which `quantized_bytes` guarantees."""
    assert tensor.quantization is not None, "integer kernels refuse tensors without quantization"
    return tensor.quantization


def wide_sums(tensor: TensorType, products: Callable[[], Products]) -> Products | None:
    """Return the sums over 16-bit activations if 32 bits do not hold them, else None.

    products: computes the sums, if the element type does not decide.
    """
    if np.dtype(tensor.dtype).itemsize == 1:
        return None
    sums = products()
    return None if sums.fit_int32() else sums


def largest_distance(tensor: TensorType) -> int:
    """Return the largest distance of an element from the zero point, in steps."""
    limits, zero_point = np.iinfo(tensor.dtype), quantization(tensor).zero_point
    return max(int(limits.max) - zero_point, zero_point - int(limits.min))


def sum_rounding(operator: QConv2d | QDense) -> SumRounding:
    """Return the rounding of a layer's sums; in TensorFlow Lite, sums have 64 bits if the bias has."""
    wide = operator.rounding == "tflite" and operator.bias.dtype == np.int64
    return "tflite_wide" if wide else operator.rounding


def scale_of(tensor: TensorType) -> float:
    """Return the scale as models store it: rounded to float32, then exact in double precision."""
    return float(np.float32(quantization(tensor).scale))


def channel_factors(operator: QConv2d | QDense) -> Array:
    """Return the output steps of one unit of each channel's sum, float64[K].

    TensorFlow Lite multiplies the two scales of a layer on unsigned bytes in single precision, and LiteRT's default
    kernels compute all of it in single precision.
    """
    if operator.rounding == "litert":
        return litert_factor(scale_of(operator.inputs[0]), operator.weight_scale, scale_of(operator.output))
    source, scale = scale_of(operator.inputs[0]), operator.weight_scale
    if operator.rounding == "tflite" and operator.inputs[0].dtype == "uint8" and np.unique(scale).size == 1:
        return (np.float32(source) * scale).astype(np.float64) / scale_of(operator.output)
    return source * scale.astype(np.float64) / scale_of(operator.output)


def litert_factor(first: float, second: Array | float, output: float) -> Array:
    """Return the factor of products of two scales as LiteRT's default kernels compute it: float32 numbers."""
    product = np.float32(first) * np.asarray(second, np.float32)
    return np.atleast_1d((product / np.float32(output)).astype(np.float64))


def factors_note(operator: Operator, role: str) -> str:
    """Return ` (factors 0.00427 to 0.0139)`: the real factors of a layer's multipliers; empty for other constants."""
    if role != "multiplier" or not isinstance(operator, QConv2d | QDense) or operator.output.quantization is None:
        return ""
    factors = channel_factors(operator)
    return f" (factors {factors.min():.6g} to {factors.max():.6g})"


def fixed_point(factor: float, bits: int = MANTISSA_BITS) -> tuple[int, int]:
    """Return (mantissa, shift) with mantissa / 2^shift nearest to the factor, mantissa below 2^bits and shift 1 to 62.

    factor: 0 up to RESULT_LIMIT. A factor becomes 0 if no number of 62 - bits times the factor exceeds a half.
    """
    fraction, exponent = math.frexp(factor)
    mantissa, shift = round(fraction * (1 << bits)), bits - exponent
    if mantissa == 1 << bits:
        mantissa, shift = mantissa >> 1, shift - 1
    return (mantissa, shift) if mantissa and shift <= MAX_SHIFT else (0, 1)


def round_shift(value: Array, shift: Array | int) -> Array:
    """Return int64 value / 2^shift, rounded to nearest, halves to even: tvm_ext_round_shift in numpy."""
    amount = np.asarray(shift, dtype=np.int64)
    below_half = (np.int64(1) << (amount - 1)) - 1
    return (value + below_half + ((value >> amount) & 1)) >> amount


def results_fit(low: Array, high: Array, factors: Array) -> bool:
    """Return True if the factors, and sums from low to high times their factors, stay below RESULT_LIMIT."""
    if not (np.isfinite(factors).all() and (factors >= 0).all()):
        return False
    largest = np.maximum(np.maximum(np.abs(low), np.abs(high)), 1)
    return bool((largest * factors < RESULT_LIMIT).all())


def factor_members(multiplier: int, shift: int, name: str = "") -> dict[str, Value]:
    """Return the members `multiplier` and `shift` of a structure, with the real factor in a comment.

    multiplier / 2^shift is the factor. name: prefix of both members.
    """
    return {f"{name}multiplier": multiplier, f"{name}shift": f"{shift} /* factor {multiplier / 2.0**shift:.6g} */"}


def signed(number: int) -> str:
    """Return ` + number` or ` - number` as C text; empty for zero."""
    return f" {'-' if number < 0 else '+'} {abs(number)}" if number else ""


@dataclass(frozen=True, kw_only=True, eq=False)
class Products:
    """The sums of products of a layer: sum = start + sum over taps of (x - zero_point) * w.

    weight: int8[K, ...], start: int64[K]. If every tap reads the input, the zero point is folded into the start and is
    0 here; if padding cuts windows, it is subtracted from each activation: a tap outside the input is a real zero.
    """

    source: TensorType
    weight: Array
    start: Array
    zero_point: int

    @classmethod
    def of(cls, *, source: TensorType, weight: Array, bias: Array, padded: bool) -> Self:
        zero_point = quantization(source).zero_point
        start = bias.astype(np.int64)
        if padded:
            return cls(source=source, weight=weight, start=start, zero_point=zero_point)
        taps = weight.reshape(weight.shape[0], -1).astype(np.int64)
        return cls(source=source, weight=weight, start=start - zero_point * taps.sum(axis=1), zero_point=0)

    def range(self) -> tuple[Array, Array]:
        """Return bounds of every partial sum of each channel, int64[K] each, for every input."""
        limits = np.iinfo(self.source.dtype)
        lowest, highest = min(limits.min - self.zero_point, 0), max(limits.max - self.zero_point, 0)
        taps = self.weight.reshape(self.weight.shape[0], -1).astype(np.int64)
        positive, negative = np.maximum(taps, 0).sum(axis=1), np.minimum(taps, 0).sum(axis=1)
        return (
            self.start + lowest * positive + highest * negative,
            self.start + highest * positive + lowest * negative,
        )

    def fit_int32(self) -> bool:
        low, high = self.range()
        return bool(low.min() >= -(1 << 31) and high.max() < 1 << 31)

    @property
    def largest(self) -> int:
        """Bound of the magnitude of every partial sum."""
        low, high = self.range()
        return max(-int(low.min()), int(high.max()), 0)

    @property
    def bias(self) -> Array:
        """The initial sums for the C code: int32[K], or int64[K] if sums have 64 bits."""
        return self.start.astype(np.int32 if self.fit_int32() else np.int64)


def wrapped(numbers: Array) -> Array:
    """Return integers modulo 2^32, as int32."""
    return (np.asarray(numbers, np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


@lru_cache(maxsize=4096)  # references ask for the same factors at each run
def _fixed_point(factor: float, rounding: SumRounding, bits: int) -> tuple[int, int]:
    if rounding == "onnx":
        return fixed_point(factor, bits)
    if rounding == "litert":
        return requantize_litert.bits_of(factor), 0
    return (requantize_tflite.fixed_point if rounding == "tflite" else requantize_tflite.fixed_point_wide)(factor)


@dataclass(frozen=True, kw_only=True, eq=False)
class Requantize:
    """Requantization of a sum to an element of the output, as `$_requantize(sum, …)` of an int32 sum.

    mantissa: int32[K], shift: uint8[K], one for each channel (or count, for pools); of length 1 if all are equal: then
    they are literals of the function instead of tables. takes_high_products: shifts are those that remain after a
    high product, for code that computes one; `run` is for whole products. In "litert" rounding a mantissa is the bits
    of a float32 factor, and shifts are 0.
    """

    mantissa: Array
    shift: Array
    output: TensorType
    low: int
    high: int
    rounding: SumRounding = "onnx"
    takes_high_products: bool = False

    @classmethod
    def of(
        cls,
        factors: Array,
        *,
        output: TensorType,
        low: int,
        high: int,
        rounding: SumRounding = "onnx",
        largest: int = 0,
    ) -> Self:
        """Return the requantization by real factors. largest: bound of the sums if 32 bits may not hold them."""
        bits = min(MANTISSA_BITS, MAX_SHIFT - largest.bit_length())
        pairs = [_fixed_point(float(factor), rounding, bits) for factor in factors]
        pairs = pairs[:1] if len(set(pairs)) == 1 else pairs
        return cls(
            mantissa=np.array([mantissa for mantissa, _ in pairs], dtype=np.int32),
            shift=np.array([shift for _, shift in pairs], dtype=np.uint8),
            output=output,
            low=low,
            high=high,
            rounding=rounding,
        )

    def proved(self, low: Array, high: Array) -> Self:
        """Return a requantization with the same elements for sums from low to high, by one rounding if one exists.

        low, high: int64, one pair for each factor. Only "litert" rounding has another form than itself.
        """
        if self.rounding != "litert":
            return self
        zero_point = quantization(self.output).zero_point
        if self.is_uniform:  # one factor for every channel, so it holds for the sums of all
            low, high = np.array([low.min(initial=0)]), np.array([high.max(initial=0)])
        found = requantize_litert.single_rounding(
            self.mantissa, low.astype(np.int64), high.astype(np.int64), (self.low - zero_point, self.high - zero_point)
        )
        return self if found is None else replace(self, mantissa=found[0], shift=found[1], rounding="onnx")

    def scaled(self, bits: int) -> Self:
        """Return the requantization of 2^bits times the sums, which gives the same elements with one rounding."""
        assert self.rounding != "litert", "a product in float32 takes the sums themselves"
        vanishes = self.shift.astype(np.int64) + bits > MAX_SHIFT  # no sum below 2^(31 - bits) reaches a half
        shift = np.where(vanishes, 1, self.shift + bits).astype(self.shift.dtype)
        return replace(self, mantissa=np.where(vanishes, 0, self.mantissa).astype(self.mantissa.dtype), shift=shift)

    @property
    def includes(self) -> tuple[str, ...]:
        """Headers that the helper needs."""
        if self.rounding == "litert":
            return requantize_litert.INCLUDES
        return INCLUDES if self.rounding == "onnx" else requantize_tflite.INCLUDES

    @property
    def is_uniform(self) -> bool:
        return len(self.mantissa) == 1

    @property
    def real_factors(self) -> Array:
        """Real factors of a sum, float64[K], up to the error of the mantissa's last bit."""
        if self.rounding == "litert":
            return self.mantissa.view(np.float32).astype(np.float64)
        high_word = 0 if not self.takes_high_products else 33 if self.rounding == "onnx" else 32
        return self.mantissa / np.exp2(self.shift.astype(np.float64) + high_word)

    @property
    def note(self) -> str:
        """The real factors as text: `factor 0.00427`, `factors 0.00427 to 0.0139`."""
        least, most = float(self.real_factors.min()), float(self.real_factors.max())
        return f"factor {least:.6g}" if least == most else f"factors {least:.6g} to {most:.6g}"

    @property
    def clamps_negatives(self) -> bool:
        """True if every sum below zero gives the lowest element, as with a fused ReLU, in any rounding."""
        return self.low >= quantization(self.output).zero_point

    def run(self, sums: Array, index: Array | None = None) -> Array:
        """Return the elements of int64 sums; the factor is that of the last axis' index, or of `index` if given."""
        if self.is_uniform:
            mantissa, shift = self.mantissa[0], self.shift[0]
        else:
            mantissa, shift = (
                (self.mantissa, self.shift) if index is None else (self.mantissa[index], self.shift[index])
            )
        if self.rounding == "onnx":
            value = round_shift(sums * mantissa.astype(np.int64), shift)
        elif self.rounding == "tflite_wide":
            value = requantize_tflite.multiply_wide(sums, mantissa, shift)
        elif self.rounding == "litert":
            value = requantize_litert.multiply(sums, mantissa)
        else:
            value = requantize_tflite.multiply(sums, mantissa, shift)
        value = value + quantization(self.output).zero_point
        return np.asarray(np.clip(value, self.low, self.high)).astype(self.output.dtype)

    def helper(self) -> str:
        """Return the definition of the function."""
        ctype = C_TYPES[self.output.dtype]
        tables = "" if self.is_uniform else ", int32_t multiplier, int32_t shift"
        function = "tvm_ext_requantize" if self.rounding == "onnx" else f"tvm_ext_requantize_{self.rounding}"
        names = {"multiplier": int(self.mantissa[0]), "shift": int(self.shift[0])} if self.is_uniform else {}
        notes = {"shift": f" /* {self.note} */"}
        names |= {"zero_point": quantization(self.output).zero_point}
        lines = [
            *(f"const int32_t {name} = {value};{notes.get(name, '')}" for name, value in names.items()),
            f"const int32_t value = {function}(sum, multiplier, shift) + zero_point;",
            f"return ({ctype})tvm_ext_clamp(value, {self.low}, {self.high});",
        ]
        return f"static inline {ctype} $_requantize(int32_t sum{tables})\n{{\n{block(lines)}\n}}\n"

    def call(self, value: str, index: str) -> str:
        """Return the C expression of the element; `index` selects the factor in the tables."""
        tables = "" if self.is_uniform else f", multiplier[{index}], shift[{index}]"
        return f"$_requantize({value}{tables})"

    def tables(self) -> list[str]:
        """Return definitions of `multiplier` and `shift` if they are no parameters: one of each for all channels."""
        if not self.is_uniform:
            return []
        return [
            f"static const int32_t multiplier[] = {{{self.mantissa[0]}}};",
            f"static const uint8_t shift[] = {{{self.shift[0]}}}; /* {self.note} */",
        ]

    def constants(self) -> tuple[tuple[str, Array], ...]:
        return () if self.is_uniform else (("multiplier", self.mantissa), ("shift", self.shift))

    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(
            Parameter(name=role, ctype=C_TYPES[str(array.dtype)], role="constant") for role, array in self.constants()
        )
