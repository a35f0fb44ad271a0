"""Conditions of integer kernels on activations of 16 bits, and a kernel made from the one for 8 bits.

The loops are the same: what they read says how many bits an element has, and layers say how many their sums have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from codegen_c.kernels.contract import Constraint, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.shared.requantize import is_quantized_integer
from codegen_c.operators.kinds import Operator, QConv2d, QDense

WORDS = ("int16", "uint16")
MOST_SUM = 1 << 47
"""Sums below it times a mantissa of 15 bits stay below 2^62."""
LEAST_SUM = 1 << 16
"""Sums are taken to reach it, so that a factor stays below 2^14: with 15 bits it then shifts to the right."""


def quantized_words(operator: Operator, target: Target) -> bool:
    """activations must be int16 or uint16 with one scale, finite and above zero, and a zero point of that type"""
    return all(is_quantized_integer(tensor, WORDS) for tensor in (*operator.inputs, *operator.outputs))


def integer_weights(operator: QConv2d | QDense, target: Target) -> bool:
    """weights must be int8, their scales float32 and the bias int32 or int64"""
    types = (operator.weight.dtype, operator.weight_scale.dtype)
    return types == ("int8", "float32") and operator.bias.dtype in ("int32", "int64")


def weighted(products: Callable[[Any], Any], factors: Callable[[Any], np.ndarray]) -> tuple[Constraint, ...]:
    """Constraints of a layer with weights. products, factors: its sums, and output steps of one unit of each."""

    def sums_fit(operator: QConv2d | QDense, target: Target) -> bool:
        """bias and products must add up to less than 2^47, in rounding "tflite" with a bias of 32 bits to 2^31"""
        if operator.rounding == "tflite" and operator.bias.dtype == np.int32:
            return products(operator).fit_int32()
        return products(operator).largest < MOST_SUM

    def rescaled_sums_fit(operator: QConv2d | QDense, target: Target) -> bool:
        """weight scales must be finite, not negative, and no sum may reach 2^30 steps of the output"""
        low, high = products(operator).range()
        real = factors(operator)
        if not (np.isfinite(real).all() and (real >= 0).all()):
            return False
        largest = np.maximum(np.maximum(np.abs(low), np.abs(high)), LEAST_SUM)
        return bool((largest * real < 1 << 30).all())

    return quantized_words, integer_weights, sums_fit, rescaled_sums_fit


def _named(
    implement: Callable[[int, StoredRows], Implementation], name: str
) -> Callable[[int, StoredRows], Implementation]:
    return lambda rows, stored: replace(implement(rows, stored), kernel=name)


def wide_kernel(name: str, narrow: Kernel, *constraints: Constraint) -> Kernel:
    """A kernel for 16 bits by the loops of the one for 8."""

    def implement(operator: Operator, target: Target, stored: StoredRows) -> Implementation:
        made = narrow.implement(operator, target, stored)
        parts = made.accumulating
        named = replace(parts, implement=_named(parts.implement, f"{name}_in_parts")) if parts else None
        return replace(made, kernel=name, accumulating=named)

    return Kernel(name=name, operator=narrow.operator, implement=implement, constraints=constraints)
