"""Convolutions and products that a RESCALE follows, as the quantized layers for which there are kernels.

A RESCALE with SINGLE_ROUND is floor(sum * multiplier / 2^shift + 1/2): the one rounding of "onnx", except that halves
go up; a layer is taken if no sum of its channels lies on a half. DOUBLE_ROUND adds 2^30 to products of sums of at least
zero and subtracts it from others, if the shift exceeds 31. With high = floor((sum * multiplier + 2^30) / 2^31) and
r = shift - 31, this is

    floor((high + 2^(r - 1)) / 2^r)         for a sum of at least zero
    floor((high - 1 + 2^(r - 1)) / 2^r)     for a sum below zero

which is TensorFlow Lite's second rounding, halves away from zero, of its first. A RESCALE of sums of 48 bits has 15
bits of a multiplier and one rounding, halves up, as TensorFlow Lite has for such sums ("tflite_wide").

A module has one rounding for all of its layers (`QuantizedRounding`). It is the one that suits more of them; each of
the others stays a loop over products and a loop over elements, with the same bytes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from tvm import relax

from codegen_c.kernels.shared.requantize import RESULT_LIMIT, Products
from codegen_c.operators.kinds import Quantization, TensorType
from relay_passes.dataflow import constant, static_shape
from tvm_ext.core.wide_biases import HIGH_SCALE, split_bias
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tosa.elements import clamp_limits, limits_of
from tvm_ext.frontends.tosa.read_file import TosaGraph, TosaNode, TosaTensor

Meaning = Literal["onnx", "tflite"]
"""Rounding of a module's layers, as in `QuantizedRounding`."""

_PRODUCTS = ("CONV2D", "DEPTHWISE_CONV2D", "MATMUL")
_MULTIPLIER_BITS = {True: 31, False: 15}
"""Bits of a multiplier by `scale32`. One with fewer bits would round at another bit of the product."""
_MOST_SUM = {"int8": (1 << 31) - 1, "int16": (1 << 47) - 1}
_LEAST_SUM = 1 << 16
"""Lower bound of assumed sums, which keeps factors below 2^14."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QuantizedLayer:
    """A product, the RESCALE that reads its sums, and a CLAMP of the result if there is one.

    multiplier, shift: int64[K], or of one element for all channels.
    weight: int8[K, R, S, C] of a convolution, with one input channel for each output channel if it is depthwise; None
    for a product of two activations. bias: int64[K].
    low, high: limits of the result.
    meanings: the roundings with which a layer has the bytes of the file.
    """

    product: TosaNode
    rescale: TosaNode
    last: TosaNode
    given_type: str
    type_name: str
    multiplier: np.ndarray
    shift: np.ndarray
    zero_point: int
    weight: np.ndarray | None
    bias: np.ndarray
    input_zps: tuple[int, ...]
    low: int
    high: int
    meanings: frozenset[Meaning]

    @property
    def inner(self) -> tuple[str, ...]:
        """Tensors inside the layer, which do not exist in the compiled model."""
        return tuple(node.outputs[0] for node in (self.product, self.rescale) if node is not self.last)

    def build(self, values: tuple[relax.Expr, ...]) -> relax.Expr:
        """Return the layer on real numbers with a scale of one. values: the inputs of the product in the file."""
        op = relax.op
        first = _real(values[0], self.input_zps[0])
        if self.product.operator == "MATMUL":
            total = op.matmul(first, _real(values[1], self.input_zps[1]))
        else:
            total = self._convolution(first, static_shape(values[0])[3])
            for part, scale in self._bias_parts():
                total = op.add(total, _real(constant(part), 0, np.full(part.size, scale, np.float32)))
        # Dequantized integers carry all bits of a multiplier, which float32 would not.
        powers = np.ldexp(np.float32(1), -self.shift.astype(np.int32)).astype(np.float32)
        total = op.multiply(total, _real(constant(self.multiplier.astype(np.int32)), 0, powers))
        whole = limits_of(self.type_name)
        if (self.low, self.high) != whole:
            total = op.clip(total, self.low - self.zero_point, self.high - self.zero_point)
        zero_point = constant(np.array(self.zero_point, self.type_name))
        return op.quantize(total, constant(np.array(1, np.float32)), zero_point, axis=-1, out_dtype=self.type_name)

    def _convolution(self, real: relax.Expr, depth: int) -> relax.Expr:
        assert self.weight is not None, "a convolution has weights"
        top, bottom, left, right = self.product.attributes["pad"]  # type: ignore[misc]
        return relax.op.nn.conv2d(
            real, _real(constant(self.weight), 0), strides=list(self.product.attributes["stride"]),  # type: ignore[call-overload]
            padding=[top, left, bottom, right], dilation=list(self.product.attributes["dilation"]),  # type: ignore[call-overload]
            groups=depth if self.product.operator == "DEPTHWISE_CONV2D" else 1, data_layout="NHWC",
            kernel_layout="OHWI", out_layout="NHWC",
        )  # fmt: skip

    def _bias_parts(self) -> tuple[tuple[np.ndarray, float], ...]:
        """Return the bias as int32 with its scale; of sums of 48 bits in two parts."""
        if self.given_type == "int8":
            return ((self.bias.astype(np.int32), 1.0),)
        high, low = split_bias(self.bias)
        return (high, HIGH_SCALE), (low, 1.0)


def _real(value: relax.Expr, zero_point: int, scale: np.ndarray | None = None) -> relax.Expr:
    """Return integers as real numbers. scale: one for each index of the last axis, or None for one."""
    dtype = str(value.ty.dtype)
    scales = np.array(1, np.float32) if scale is None else scale if scale.size > 1 else scale.reshape(())
    return relax.op.dequantize(value, constant(scales), constant(np.array(zero_point, dtype)), axis=-1)


def find_layers(graph: TosaGraph) -> tuple[dict[str, QuantizedLayer], Meaning]:
    """Return the layers by the name of their result, and the rounding that all of them have."""
    graph = replace(graph, tensors=_with_moved_constants(graph))
    readers: dict[str, list[TosaNode]] = {}
    for node in graph.nodes:
        for name in dict.fromkeys(node.inputs):
            readers.setdefault(name, []).append(node)
    found = [
        layer
        for node in graph.nodes
        if node.operator in _PRODUCTS and (layer := _layer(graph, readers, node)) is not None
    ]
    counts = Counter(meaning for layer in found for meaning in layer.meanings)
    meaning: Meaning = "tflite" if counts["tflite"] > counts["onnx"] else "onnx"
    return {layer.last.outputs[0]: layer for layer in found if meaning in layer.meanings}, meaning


def _with_moved_constants(graph: TosaGraph) -> dict[str, TosaTensor]:
    """Return the tensors with the numbers of constants that RESHAPE and TRANSPOSE move, as converters write weights."""
    known = dict(graph.tensors)
    for node in graph.nodes:
        given = known[node.inputs[0]].data if node.operator in ("RESHAPE", "TRANSPOSE") else None
        if given is None or None in known[node.outputs[0]].shape:
            continue
        tensor = known[node.outputs[0]]
        moved = given if node.operator == "RESHAPE" else given.transpose(node.attributes["perms"])  # type: ignore[arg-type]
        if moved.size == math.prod(extent or 0 for extent in tensor.shape):
            known[tensor.name] = replace(tensor, data=np.ascontiguousarray(moved.reshape(tensor.shape)))  # type: ignore[arg-type]
    return known


def _layer(graph: TosaGraph, readers: Mapping[str, list[TosaNode]], node: TosaNode) -> QuantizedLayer | None:
    """Return the layer that begins with a product, or None for one whose bytes no kernel has."""
    try:
        return _converted(graph, readers, node)
    except (Refused, KeyError, IndexError, ValueError, TypeError):
        return None  # operands that do not fit are refused when the operators are converted one by one


def _converted(graph: TosaGraph, readers: Mapping[str, list[TosaNode]], node: TosaNode) -> QuantizedLayer | None:
    rescale = _only_reader(graph, readers, node, "RESCALE")
    data = graph.tensors[node.inputs[0]]
    if rescale is None or data.data is not None or data.type_name not in _MOST_SUM:
        return None
    clamp = _only_reader(graph, readers, rescale, "CLAMP")
    last, result = clamp or rescale, graph.tensors[rescale.outputs[0]]
    multiplier, shift, sums_zp, zero_point = (_numbers(graph, name) for name in rescale.inputs[1:])
    is_scale32 = bool(rescale.attributes["scale32"])
    bits = _MULTIPLIER_BITS[is_scale32]
    plain = not (rescale.attributes["input_unsigned"] or rescale.attributes["output_unsigned"] or sums_zp.any())
    if not plain or result.type_name != data.type_name or is_scale32 is not (data.type_name == "int8"):
        return None
    if (multiplier >> (bits - 1) != 1).any() or (shift < 2).any() or (shift > 62).any() or sums_zp.size != 1:
        return None
    is_matmul = node.operator == "MATMUL"
    weight = None if is_matmul else _weights(graph, node)
    if (weight is None) is not is_matmul or (is_matmul and data.type_name != "int8"):
        return None
    bias = np.zeros(1, np.int64) if weight is None else _numbers(graph, node.inputs[2])
    low, high = clamp_limits(clamp, result.type_name) if clamp else limits_of(result.type_name)
    input_zps = tuple(int(_numbers(graph, name)[0]) for name in node.inputs[2 if is_matmul else 3 :])
    bounds = (
        _bounds_of_matmul(graph, node, input_zps) if weight is None
        else _bounds(data.type_name, weight, np.broadcast_to(bias, len(weight)), input_zps[0], node)
    )  # fmt: skip
    largest = np.maximum(np.abs(bounds[0]), np.abs(bounds[1]))
    factors = np.ldexp(multiplier.astype(np.float64), -shift.astype(np.int32))
    if largest.max() > _MOST_SUM[data.type_name] or (np.maximum(largest, _LEAST_SUM) * factors >= RESULT_LIMIT).any():
        return None
    meanings = frozenset(_meanings(str(rescale.attributes["rounding_mode"]), is_scale32, multiplier, shift, largest))
    if not meanings or multiplier.size not in (1, largest.size):
        return None
    return QuantizedLayer(
        product=node, rescale=rescale, last=last, given_type=data.type_name, type_name=result.type_name,
        multiplier=multiplier, shift=shift, zero_point=int(zero_point[0]), weight=weight,
        bias=np.array(np.broadcast_to(bias, largest.shape)), input_zps=input_zps, low=low, high=high, meanings=meanings,
    )  # fmt: skip


def _only_reader(
    graph: TosaGraph, readers: Mapping[str, list[TosaNode]], node: TosaNode, operator: str
) -> TosaNode | None:
    """Return the only operator that reads the result of a node, as its first input, if it is of this kind."""
    (name,) = node.outputs
    found = readers.get(name, [])
    fits = len(found) == 1 and found[0].operator == operator and found[0].inputs.count(name) == 1
    return found[0] if fits and found[0].inputs[0] == name and name not in graph.outputs else None


def _numbers(graph: TosaGraph, name: str) -> np.ndarray:
    found = graph.tensors[name].data
    if found is None:
        raise Refused(f"{name} depends on data")
    return found.astype(np.int64).reshape(-1)


def _weights(graph: TosaGraph, node: TosaNode) -> np.ndarray | None:
    """Return the weights around zero as int8[K, R, S, C], or None if they need more bits or depend on data."""
    given, (zero_point,) = graph.tensors[node.inputs[1]].data, _numbers(graph, node.inputs[4])
    if given is None or given.dtype != np.int8 or given.ndim != 4:
        return None
    around_zero = given.astype(np.int64) - zero_point
    if around_zero.min(initial=0) < -128 or around_zero.max(initial=0) > 127:
        return None
    if node.operator == "DEPTHWISE_CONV2D":  # [R, S, C, M]: channel c of the input has the output channels c * M + m
        rows, columns = given.shape[:2]
        around_zero = around_zero.transpose(2, 3, 0, 1).reshape(-1, rows, columns, 1)
    return np.ascontiguousarray(around_zero.astype(np.int8))


def _bounds(
    type_name: str, weight: np.ndarray, bias: np.ndarray, zero_point: int, node: TosaNode
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of every partial sum of each channel."""
    kind = TensorType(shape=(1,), dtype=type_name, quantization=Quantization(scale=1.0, zero_point=zero_point))
    padded = any(node.attributes["pad"])  # type: ignore[arg-type]
    return Products.of(source=kind, weight=weight, bias=bias, padded=padded).range()


def _bounds_of_matmul(graph: TosaGraph, node: TosaNode, zero_points: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    depth = graph.tensors[node.inputs[0]].shape[2]
    if depth is None or graph.tensors[node.inputs[1]].data is not None:
        raise Refused("its depth or its second operand does not suit")
    furthest = [128 + abs(zero_point) for zero_point in zero_points]
    most = np.array([depth * furthest[0] * furthest[1]], np.int64)
    return -most, most


def _meanings(
    rounding: str, is_scale32: bool, multiplier: np.ndarray, shift: np.ndarray, largest: np.ndarray
) -> Iterator[Meaning]:
    """Yield the roundings of a module with which a layer has the bytes of its RESCALE."""
    if not is_scale32:
        if rounding == "SINGLE_ROUND":
            yield "tflite"
        return
    rounds_once = rounding == "SINGLE_ROUND" or (rounding == "DOUBLE_ROUND" and bool((shift <= 31).all()))
    if rounding == "DOUBLE_ROUND" or (rounds_once and bool((shift <= 31).all())):
        yield "tflite"
    # A sum on a half has as many trailing zeros as the multiplier lacks of shift - 1.
    zeros = np.array([(int(one) & -int(one)).bit_length() - 1 for one in multiplier], np.int64)
    least = np.int64(1) << np.clip(shift - 1 - zeros, 0, 62)
    if rounds_once and bool((largest < least).all()):
        yield "onnx"
