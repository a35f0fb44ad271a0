"""Operators of a sweep as data: their factors, and how a choice of values becomes a model."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.pairing.covering import choices, covering_rows

Array = np.ndarray
Choice = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Input:
    """One input of a model: floats of a normal distribution times `scale` plus `offset`, or integers of [low, high)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    scale: float = 1.0
    offset: float = 0.0
    positive: bool = False
    low: int = -20
    high: int = 20

    def draw(self, random: np.random.Generator) -> Array:
        """Return one random array."""
        if self.dtype == "bool":
            return random.integers(0, 2, self.shape).astype(bool)
        if np.dtype(self.dtype).kind in "iu":
            limits = np.iinfo(self.dtype)
            return random.integers(max(self.low, limits.min), min(self.high, limits.max + 1), self.shape).astype(
                self.dtype
            )
        array = random.standard_normal(self.shape) * self.scale
        return np.asarray((np.abs(array) + 0.05 if self.positive else array) + self.offset, self.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class Model:
    """A model of one operator.

    source: what `tvm_ext.load` takes, or a function that makes it. run: outputs of the format's runtime for arrays by
    input, in the file's order; raises where the runtime does not take the model. standard: outputs of the standard's
    own evaluation, where there is one beside the runtime. join: one model of several, their inputs and outputs in
    order, those of the first one named `p0_x`; only models of one kind can be joined, by what they have as parts.
    """

    source: Any
    inputs: Mapping[str, Input]
    run: Callable[[Mapping[str, Array]], list[Array]]
    join: Callable[[Sequence[Model]], Model]
    kind: str = ""
    parts: Any = None
    standard: Callable[[Mapping[str, Array]], list[Array]] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Operator:
    """One operator of a format.

    factors: values of each attribute, shape, element type and optional input. make: the model of a choice. is_valid:
    False for choices that the format does not allow. unlike: the reason why a choice is known to differ from the
    runtime, which docs/edges.md states; empty for all others. quantized: True where cases are quantized here, too.
    """

    form: str
    name: str
    factors: Mapping[str, Sequence[Any]]
    make: Callable[[Choice], Model]
    is_valid: Callable[[Choice], bool] = lambda _: True
    unlike: Callable[[Choice], str] = lambda _: ""
    quantized: bool = True

    @property
    def title(self) -> str:
        return f"{self.form}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class PairCase:
    """A case: an operator by its title, and the indices of the values that its factors take."""

    operator: str
    row: tuple[int, ...]
    key: str = field(compare=False)


def cases_of(operator: Operator) -> list[PairCase]:
    """Return the cases of a covering array over the operator's factors."""
    names, values = list(operator.factors), list(operator.factors.values())

    def is_valid(row: tuple[int, ...]) -> bool:
        return operator.is_valid({name: value[i] for name, value, i in zip(names, values, row, strict=True)})

    rows = covering_rows([len(value) for value in values], is_valid, operator.title)
    rows = [row for row in rows if is_valid(row)]
    return [
        PairCase(operator=operator.title, row=row, key=f"{operator.title} {_said(choice)}")
        for row, choice in zip(rows, choices(operator.factors, rows), strict=True)
    ]


def choice_of(operator: Operator, case: PairCase) -> dict[str, Any]:
    """Return the values that a case chooses, by factor."""
    (choice,) = choices(operator.factors, [case.row])
    return choice


def seed_of(text: str) -> int:
    """Return a seed for random numbers that is the same in every process."""
    return zlib.crc32(text.encode())


def _said(choice: Choice) -> str:
    return " ".join(f"{name}={str(value).replace(' ', '')}" for name, value in choice.items())
