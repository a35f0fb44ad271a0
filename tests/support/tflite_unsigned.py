"""TensorFlow Lite files of int8 as converters before 2020 wrote them: unsigned bytes, weights with one zero point."""

from __future__ import annotations

import numpy as np
import tflite

from tests.support.tflite_file import Quantized, TfliteWriter

_WEIGHTS = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


def to_unsigned_bytes(writer: TfliteWriter, random: np.random.Generator, *, zero_point: int | None = None) -> None:
    """Turn tensors that are quantized to int8 into uint8, of 128 more, and weights into bytes with any zero point.

    zero_point: of all weights; random by default.
    """
    codes = [_number(name) for name in _WEIGHTS]
    weights, biases = set[int](), set[int]()
    for code, inputs, *_ in writer.operators:
        if writer.codes[code] in codes and len(inputs) > 1:
            weights.add(inputs[1])
            biases.update(inputs[2:] if writer.codes[code] != _number("TRANSPOSE_CONV") else inputs[3:])
    for index, tensor in enumerate(writer.tensors):
        if tensor.quantized is None:
            continue
        if index in weights and tensor.buffer:
            drawn = int(random.integers(0, 256)) if zero_point is None else zero_point
            tensor.dtype, tensor.quantized = "uint8", Quantized(scale=_first(tensor.quantized), zero_point=drawn)
            writer.buffers[tensor.buffer] = random.integers(0, 256, tensor.shape).astype(np.uint8).tobytes()
        elif index in biases:
            tensor.quantized = Quantized(scale=_first(tensor.quantized))
        elif tensor.dtype == "int8":
            tensor.dtype = "uint8"
            tensor.quantized = Quantized(
                scale=tensor.quantized.scale, zero_point=tensor.quantized.zero_point + 128, axis=tensor.quantized.axis
            )
            if tensor.buffer:
                signed = np.frombuffer(writer.buffers[tensor.buffer], np.uint8)
                writer.buffers[tensor.buffer] = (signed ^ np.uint8(128)).tobytes()


def _first(quantized: Quantized) -> float:
    return float(np.atleast_1d(quantized.scale)[0])


def _number(name: str) -> int:
    return int(getattr(tflite.BuiltinOperator, name))
