"""An operator on integers: its tensors, their values, and how elements of several tensors are combined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import tflite
from tvm import relax, te, tirx

from relay_passes.dataflow import array_of, static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import options_of
from tvm_ext.frontends.tflite.read_file import TfliteTensor

Meaning = Literal["onnx", "tflite", "litert"]
"""Rounding of a model's integers, as in `QuantizedRounding`."""

Element = Callable[..., tirx.Expr]
"""Computes the result's element from int64 distances of elements from their zero points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerNode:
    """An operator with a single scale for each tensor.

    inputs, values: in the order of the file.
    builder: of the graph. rounding: of the model's integers.
    """

    table: tflite.Operator
    inputs: tuple[TfliteTensor, ...]
    output: TfliteTensor
    values: tuple[relax.Expr, ...]
    builder: relax.BlockBuilder
    rounding: Meaning = "tflite"

    @property
    def is_litert(self) -> bool:
        """True if it rounds as LiteRT's default kernels do, which compute int8 and uint8."""
        return self.rounding == "litert" and {self.dtype, self.inputs[0].dtype} in ({"int8"}, {"uint8"})

    @property
    def dtype(self) -> str:
        """Element type of the result."""
        assert self.output.dtype is not None, "refused before"
        return self.output.dtype

    def options(self, kind: type) -> Any:
        return options_of(self.table, kind)

    def scale(self, place: int | None = None) -> float:
        """Return the scale of an input, or of the output. Raises Refused for several scales."""
        return float(self._scales(place).scale[0])

    def zero_point(self, place: int | None = None) -> int:
        return int(self._scales(place).zero_point[0])

    def array(self, place: int, name: str) -> np.ndarray:
        """Return the numbers of an input. Raises Refused where the model computes them."""
        found = array_of(self.values[place])
        if found is None:
            raise Refused(f"its {name} depends on data")
        return found

    def shape(self, place: int) -> tuple[int, ...]:
        return static_shape(self.values[place])

    def steps(self, source: te.Tensor, place: int, *at: tirx.Expr) -> tirx.Expr:
        """Return the int64 distance of an input's element from its zero point."""
        return tirx.Cast("int64", source(*at)) - tirx.const(self.zero_point(place), "int64")

    def elementwise(self, element: Element, *places: int) -> relax.Expr:
        """Return the result of a function of one element of each of some inputs, which are broadcast."""
        shape = np.broadcast_shapes(*(self.shape(place) for place in places))

        def compute(*sources: te.Tensor) -> te.Tensor:
            def one(*at: tirx.Var) -> tirx.Expr:
                read = [self._repeated(source, place, at) for source, place in zip(sources, places, strict=True)]
                return element(*read)

            return te.compute(shape, one, "result")

        return self.builder.call_te(compute, *(self.values[place] for place in places), primfunc_name_hint="integers")

    def of_integers(self, value: relax.Expr, element: Element) -> relax.Expr:
        """Return the result of a function of each integer, as int64, of a tensor of the result's shape."""
        shape = static_shape(value)

        def compute(source: te.Tensor) -> te.Tensor:
            return te.compute(shape, lambda *at: element(tirx.Cast("int64", source(*at))), "result")

        return self.builder.call_te(compute, value, primfunc_name_hint="integers")

    def _repeated(self, source: te.Tensor, place: int, at: tuple[tirx.Var, ...]) -> tirx.Expr:
        extents = self.shape(place)
        last = at[len(at) - len(extents) :]
        return self.steps(source, place, *(0 if e == 1 else i for e, i in zip(extents, last, strict=True)))

    def _scales(self, place: int | None) -> Any:
        tensor = self.output if place is None else self.inputs[place]
        if tensor.scales is None or tensor.scales.scale.size != 1:
            raise Refused(f"its tensor {tensor.name!r} needs one scale")
        return tensor.scales


def wide(number: int) -> tirx.Expr:
    return tirx.const(number, "int64")
