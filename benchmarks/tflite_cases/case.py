"""A case: a writer of one-operator files, and how its inputs are drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np

from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.tflite.read_file import TfliteTensor, read_tflite

TYPES = ("float32", "int8", "int16x8")
"""Element types of activations; int16 stand beside weights of int8."""

SHAPE = (1, 4, 6, 5)
"""Shape of most inputs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A file for each element type of `types`: `make` writes the operator and returns its outputs.

    positive: float inputs are drawn above zero. below: whole numbers are drawn from 0 up to this one. real: the
    operator on real numbers, where TensorFlow Lite Micro's own integers are not it.
    """

    name: str
    make: Callable[[Network], Sequence[int]]
    types: tuple[str, ...] = TYPES
    positive: bool = False
    below: int | None = None
    real: Callable[..., np.ndarray] | None = None

    def file(self, dtype: str, seed: int) -> tuple[bytes, list[np.ndarray]]:
        """The file's bytes, and random inputs over the whole range of their types."""
        net = Network(int8=dtype == "int8", int16=dtype == "int16x8", seed=seed)
        outputs = list(self.make(net))
        return net.writer.finish(outputs), [self._drawn(net, index) for index in net.writer.inputs]

    def _drawn(self, net: Network, index: int) -> np.ndarray:
        tensor = net.writer.tensors[index]
        if tensor.dtype == "bool":
            return net.random.integers(0, 2, tensor.shape).astype(bool)
        if tensor.dtype == "float32":
            real = (2 * net.random.standard_normal(tensor.shape)).astype(np.float32)
            return np.abs(real) + np.float32(0.01) if self.positive else real
        limits = np.iinfo(tensor.dtype)
        if tensor.quantized is None and self.below is not None:
            return net.random.integers(0, self.below, tensor.shape).astype(tensor.dtype)
        return net.random.integers(limits.min, limits.max, tensor.shape, endpoint=True).astype(tensor.dtype)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


def same_scales(net: Network, index: int) -> Quantized | None:
    """Scale and zero point of another tensor."""
    return net.writer.tensors[index].quantized


def one_result(
    operator: str, options: str = "", *, source: Sequence[int] = SHAPE, result: Sequence[int] | None = None,
    constants: Sequence[np.ndarray] = (), first: bool = False, scales: str = "own", dtype: str = "", inputs: int = 1,
    **fields: object,
) -> Callable[[Network], list[int]]:  # fmt: skip
    """A writer of an operator on inputs of one shape and scale, and constants behind them, or before them if `first`.

    scales: of the result: `own` (others than the input's), `same`, `none`, or a number and a zero point by int8.
    dtype: of the result, the network's by default.
    """

    def make(net: Network) -> list[int]:
        given = [net.input(source, f"x{index}") for index in range(inputs)]
        for index in given:
            net.writer.tensors[index].quantized = same_scales(net, given[0])
        rest = [net.writer.constant(f"c{index}", array) for index, array in enumerate(constants)]
        wanted = _scales(net, given[0], scales)
        output = net.writer.tensor("y", source if result is None else result, dtype or net.dtype, wanted)
        places = [*rest, *given] if first else [*given, *rest]
        return [net.writer.operator(operator, places, output, options, **fields)]

    return make


def _scales(net: Network, index: int, kind: str) -> Quantized | None:
    if net.dtype == "float32" or kind == "none":
        return None
    if kind == "same":
        return same_scales(net, index)
    if kind == "own":
        return net.scales()
    steps, zero_point = kind.split(",")
    return Quantized(scale=1 / float(steps) / (1 if net.int8 else 256), zero_point=int(zero_point) if net.int8 else 0)


def distance_from_real(
    real: Callable[..., np.ndarray], data: bytes, arrays: Sequence[np.ndarray], found: np.ndarray, *,
    among: np.ndarray | bool = True,
) -> float:  # fmt: skip
    """Steps between integers and the rounded result of real numbers at most, where that is a number.

    among: True for each element that is compared.
    """
    with NamedTemporaryFile(suffix=".tflite") as file:
        file.write(data)
        file.flush()
        graph = read_tflite(Path(file.name), Limits())
    given = dict(zip(graph.inputs, arrays, strict=True))
    inputs = [_real(graph.tensors[index], given.get(index)) for index in graph.nodes[0].inputs]
    scales = graph.tensors[graph.outputs[0]].scales
    assert scales is not None, "of integers alone"
    with np.errstate(all="ignore"):
        steps = real(*inputs) / scales.scale[0] + scales.zero_point[0]
    limits = np.iinfo(found.dtype)
    known = np.isfinite(steps) & among
    expected = np.clip(np.rint(steps[known]), limits.min, limits.max)
    return float(np.abs(found[known] - expected).max(initial=0))


def _real(tensor: TfliteTensor, array: np.ndarray | None) -> np.ndarray:
    """The numbers that a tensor's integers stand for; those of a constant without a scale are its own."""
    integers = tensor.data if array is None else array
    assert integers is not None, "every input is given"
    if tensor.scales is None:
        return integers
    return (integers.astype(np.float64) - tensor.scales.zero_point[0]) * tensor.scales.scale[0]
