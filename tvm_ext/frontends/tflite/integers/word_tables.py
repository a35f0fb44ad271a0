"""EXP, LOG, GELU and RSQRT of int16 by a table of 513 results, linear in between, as LiteRT has them; LOG of int8.

An entry stands for 128 elements. It is shifted by half of the error that the straight line to the next entry has in its
middle. All numbers of a table are in single precision, rounded with halves away from zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import constant
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.integers.node import IntegerNode, wide
from tvm_ext.frontends.tflite.layers import dequantized, quantized

_NUM_STEPS = 512
_STEP_BITS = 7
_LEAST, _MOST = -(1 << 15), (1 << 15) - 1

Function = Callable[[np.ndarray], np.ndarray]
"""A function of float32 arrays."""


def exponential(node: IntegerNode) -> relax.Expr:
    return _interpolated(node, _single(np.exp))


def logarithm(node: IntegerNode) -> relax.Expr:
    """Convert LOG of int16. The logarithm of 0 and of negative numbers is the least element."""
    least = np.float32(_LEAST) * np.float32(node.scale())

    def function(numbers: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.where(numbers <= 0, least, _single(np.log)(numbers))

    return _interpolated(node, function)


def logarithm_of_bytes(node: IntegerNode) -> relax.Expr:
    """Convert LOG of int8 to real numbers, which become a table of 256 results.

    The logarithm of 0, here of negative numbers too, is minus infinity, and so the least element.
    """
    (given,), wanted = node.inputs, node.output
    if given.scales is None or wanted.scales is None or node.dtype != "int8":
        raise Refused("on quantized tensors other than int8 and int16 it is not supported")
    real = node.builder.emit(dequantized(node.values[0], given.scales, given.scales.axis))
    logarithms = node.builder.emit(relax.op.log(node.builder.emit(relax.op.nn.relu(real))))
    return quantized(logarithms, wanted.scales, node.dtype)


def gelu(node: IntegerNode) -> relax.Expr:
    """Convert GELU by the error function, or by its approximation with a hyperbolic tangent."""
    is_approximate = node.options(tflite.GeluOptions).Approximate()
    return _interpolated(node, _single(_gelu_by_tanh if is_approximate else _gelu_by_erf))


def square_root(node: IntegerNode) -> relax.Expr:
    """Convert SQRT of int16 in single precision, without the fraction of the result. Negative numbers become 0."""
    _check_zero_points(node)
    return _of_roots(node, lambda root: root / _single_number(node.scale()))


def reciprocal_root(node: IntegerNode) -> relax.Expr:
    """Convert RSQRT of int16: by LiteRT's table, or to the nearest element. Numbers below 1 become the greatest."""
    _check_zero_points(node)
    if node.rounding == "tflite":
        raise Refused("TensorFlow Lite Micro has other results on int16 than LiteRT; choose them by --rounding litert")
    most = np.float32(_MOST) * np.float32(node.scale())
    if node.rounding == "litert":

        def function(numbers: np.ndarray) -> np.ndarray:
            with np.errstate(all="ignore"):
                return np.where(numbers <= 0, most, _single(lambda real: 1 / np.sqrt(real))(numbers))

        return _interpolated(node, function)
    half = _single_number(0.5)
    return _of_roots(node, lambda root: _single_number(1 / node.scale()) / root + half)


def _of_roots(node: IntegerNode, function: Callable[[tirx.Expr], tirx.Expr]) -> relax.Expr:
    """Return whole parts of a function of square roots in single precision, at most the greatest element."""

    def element(value: tirx.Expr) -> tirx.Expr:
        real = tirx.Cast("float32", value) * _single_number(node.scale(0))
        quotient = function(tirx.sqrt(tirx.max(real, _single_number(0))))
        return tirx.Cast("int16", tirx.min(quotient, _single_number(_MOST)))

    return node.elementwise(element, 0)


def _single_number(number: float) -> tirx.Expr:
    return tirx.const(float(np.float32(number)), "float32")


def negation(node: IntegerNode) -> relax.Expr:
    """Convert NEG of int16. LiteRT negates the integers whatever their scales, and leaves the least as it is."""
    if node.scale(0) != node.scale():
        raise Refused(
            "LiteRT negates int16 without regard to scales, and those of its input and output differ; convert the "
            "model with one scale for both"
        )
    return node.elementwise(lambda value: tirx.Cast("int16", wide(0) - value), 0)


def _check_zero_points(node: IntegerNode) -> None:
    if node.zero_point() or node.zero_point(0):
        raise Refused("its int16 tensors have a zero point that is not 0")


def _gelu_by_erf(numbers: np.ndarray) -> np.ndarray:
    errors = np.array([math.erf(number) for number in numbers * math.sqrt(0.5)])
    return 0.5 * numbers * (1 + errors)


def _gelu_by_tanh(numbers: np.ndarray) -> np.ndarray:
    return 0.5 * numbers * (1 + np.tanh(math.sqrt(2 / math.pi) * (numbers + 0.044715 * numbers**3)))


def _single(function: Function) -> Function:
    """Return a function in double precision with its results rounded to single precision."""
    return lambda numbers: function(numbers.astype(np.float64)).astype(np.float32)


def _interpolated(node: IntegerNode, function: Function) -> relax.Expr:
    _check_zero_points(node)
    table = constant(_table(function, np.float32(node.scale(0)), np.float32(node.scale())))

    def compute(source: te.Tensor, entries: te.Tensor) -> te.Tensor:
        def element(*at: tirx.Var) -> tirx.Expr:
            value = tirx.Cast("int32", source(*at))
            index = (value >> _narrow(_STEP_BITS)) + _narrow(_NUM_STEPS // 2)
            low, high = entries[index], entries[index + 1]
            rise = (high - low) * (value & _narrow((1 << _STEP_BITS) - 1))
            # Between two entries of int16 the sum is int16 too.
            return tirx.Cast("int16", low + ((rise + _narrow(1 << (_STEP_BITS - 1))) >> _narrow(_STEP_BITS)))

        return te.compute(node.shape(0), element, "interpolated")

    return node.builder.call_te(compute, node.values[0], table, primfunc_name_hint="word_table")


def _table(function: Function, scale: np.float32, output_scale: np.float32) -> np.ndarray:
    """Return int32[513]: the elements that stand for every 128th element, and for the last one."""
    low, high = scale * np.float32(_LEAST), scale * np.float32(_MOST)
    least, most = output_scale * np.float32(_LEAST), output_scale * np.float32(_MOST)
    step, steps_of_one = (high - low) / np.float32(_NUM_STEPS), np.float32(1 << 16) / (most - least)
    places = np.arange(_NUM_STEPS, dtype=np.float32)
    with np.errstate(over="ignore"):
        begins = _rounded(function(low + places * step) * steps_of_one)
        middles = _rounded(function(low + places * step + step / np.float32(2)) * steps_of_one)
        ends = function(low + (places + np.float32(1)) * step) * steps_of_one
        errors = _rounded((ends + begins) / np.float32(2)) - middles
        entries = begins - _rounded(errors / np.float32(2))
        last = _rounded(function(np.array([high], np.float32)) * steps_of_one)
    if np.isnan(entries).any():
        raise Refused(f"its results from {low:g} to {high:g} exceed single precision")
    return np.clip(np.concatenate([entries, last]), _LEAST, _MOST).astype(np.int32)


def _rounded(numbers: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(numbers) + np.float32(0.5)), numbers)


def _narrow(number: int) -> tirx.Expr:
    return tirx.const(number, "int32")
