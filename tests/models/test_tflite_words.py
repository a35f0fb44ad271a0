"""Words of 16 bits that move, or come from other widths and go to them, are the very bytes of TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network
from tests.support.tflite_runners import referenced, saved_tflite, tflite_micro


def moved(
    kind: str, result: tuple[int, ...], *constants: np.ndarray, options: str = "", parts: int = 1, first: bool = False,
    inputs: int = 1, **fields: object,
) -> Callable[[Network], list[int]]:  # fmt: skip
    """An operator that moves elements of [1, 4, 6, 2]. first: constants stand before the data."""

    def make(net: Network) -> list[int]:
        given = [net.input((1, 4, 6, 2), f"x{index}") for index in range(inputs)]
        same = net.writer.tensors[given[0]].quantized
        for index in given:
            net.writer.tensors[index].quantized = same
        rest = [net.writer.constant(f"c{index}", array) for index, array in enumerate(constants)]
        made = [net.output(f"y{index}", result, same) for index in range(parts)]
        net.writer.operator(kind, [*rest, *given] if first else [*given, *rest], made, options, **fields)
        return made

    return make


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


MOVES: dict[str, Callable[[Network], list[int]]] = {
    "CONCATENATION": moved("CONCATENATION", (1, 4, 12, 2), options="ConcatenationOptions", Axis=2, inputs=2),
    "SLICE": moved("SLICE", (1, 2, 3, 2), ints(0, 1, 2, 0), ints(1, 2, 3, 2), options="SliceOptions"),
    "RESHAPE": moved("RESHAPE", (8, 6), ints(8, 6), options="ReshapeOptions", NewShape=[8, 6]),
    "SQUEEZE": moved("SQUEEZE", (4, 6, 2), options="SqueezeOptions", SqueezeDims=[0]),
    "TRANSPOSE": moved("TRANSPOSE", (1, 6, 4, 2), ints(0, 2, 1, 3), options="TransposeOptions"),
    "SPLIT": moved(
        "SPLIT", (1, 4, 3, 2), np.array(2, np.int32), options="SplitOptions", NumSplits=2, parts=2, first=True
    ),
    "SPLIT_V": moved(
        "SPLIT_V", (1, 4, 3, 2), ints(3, 3), np.array(2, np.int32), options="SplitVOptions", NumSplits=2, parts=2
    ),
    "PACK": moved("PACK", (2, 1, 4, 6, 2), options="PackOptions", ValuesCount=2, Axis=0, inputs=2),
    "UNPACK": moved("UNPACK", (1, 4, 6), options="UnpackOptions", Num=2, Axis=3, parts=2),
}


@pytest.mark.parametrize("kind", MOVES)
def test_words_are_moved(kind: str, tmp_path: Path) -> None:
    net = Network(int16=True)
    data = net.writer.finish(MOVES[kind](net))
    arrays = [net.sample(index) for index in net.writer.inputs]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


def test_words_to_real_numbers(tmp_path: Path) -> None:
    net = Network(int16=True)
    x = net.input((1, 4, 6, 2))
    y = net.writer.operator("DEQUANTIZE", [x], net.writer.tensor("y", (1, 4, 6, 2)), "DequantizeOptions")
    data, arrays = net.writer.finish([y]), [net.sample(x)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


@pytest.mark.parametrize(("source", "wanted"), [("int8", "int16"), ("int16", "int8"), ("int16", "int32")])
def test_quantize_between_widths(source: str, wanted: str, tmp_path: Path) -> None:
    net = Network(int8=source == "int8", int16=source == "int16")
    x = net.input((1, 8, 8, 16))
    step, zero_point = {"int8": (0.03, -7), "int16": (1e-4, 0), "int32": (3e-7, 0)}[wanted]
    output = net.writer.tensor("y", (1, 8, 8, 16), wanted, Quantized(scale=step, zero_point=zero_point))
    y = net.writer.operator("QUANTIZE", [x], output, "QuantizeOptions")
    data, arrays = net.writer.finish([y]), [net.sample(x)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))


def test_int32_to_words(tmp_path: Path) -> None:
    net = Network(int16=True)
    x = net.writer.input("x", (1, 8, 8, 16), "int32", Quantized(scale=1.5e-7))
    data = net.writer.finish([net.writer.operator("QUANTIZE", [x], net.output("y", (1, 8, 8, 16)), "QuantizeOptions")])
    arrays = [net.random.integers(-(2**31), 2**31, (1, 8, 8, 16)).astype(np.int32)]
    found, _ = referenced(saved_tflite(data, tmp_path), arrays)
    np.testing.assert_array_equal(found[0], tflite_micro(data, arrays))
