"""Operators that put elements elsewhere, or hand them over, and compute nothing. Any element type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from codegen_c.operators.kinds import Array, Operator


@dataclass(frozen=True, kw_only=True, eq=False)
class Permute(Operator):
    """Axes in another order: output axis i is input axis axes[i]. Any element type.

    first: of each output axis, the place along it from which on elements are taken; empty where all are.
    """

    axes: tuple[int, ...]
    first: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Stream(Operator):
    """A whole input that the application hands over, or an output that it takes; axes as in Permute.

    Where the tensor inside is one image [1, H, ...], its rows may come or go one by one. columns: [begin, end) of an
    image [1, H, W, C] that comes in, which are all that is asked for; None for all there are.
    """

    direction: Literal["read", "write"]
    axes: tuple[int, ...]
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Concat(Operator):
    """Tensors side by side along one axis. Any element type."""

    axis: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Gather(Operator):
    """Padding, slicing, repeating, nearest neighbours: element [i, j, ...] is input[places[0][i], places[1][j], ...].

    A place of -1 is outside: the element is `value`, of the output's type. places: int64[extent] for each axis.
    """

    places: tuple[Array, ...]
    value: float = 0.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Reshape(Operator):
    """The same bytes under another shape; no kernel computes it."""
