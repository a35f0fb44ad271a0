"""Random inputs that a self-test generates on the device, so that a test vector costs only one word of flash.

A recipe of 32 bits says how the elements of a vector are drawn. Each element is a hash of its index, so rows can be
generated in any order and no state is kept. `codegen_c/emit/templates/selftest_drawn.c.j2` is the same in C, and both
give the same bits: elements are integers of the input's domain, and floats are such integers times a power of two,
which is exact.

Source of the hash: Chris Wellons, "Prospecting for Hash Functions", lowbias32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from codegen_c.program.interface import Port

_FRACTION_BITS = {"float32": 23, "float64": 23, "float16": 10, "bfloat16": 7}
_MOST_VALUES = 1 << 32
_USUAL_FLOATS = (-2.0, 2.0)
"""Range of floats without known limits: close to the spread of a standard normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Values of an input: the integers low to high, both included, times 2**exponent.

    rest: value of the elements that a sparse vector does not draw, such as the zero point.
    """

    low: int
    high: int
    rest: int
    exponent: int = 0

    @classmethod
    def of(cls, port: Port, limits: tuple[float, float] | None) -> Self:
        """Return the domain of a port whose values are within limits; with None, within the limits of its type."""
        dtype = str(port.dtype)
        if dtype in _FRACTION_BITS:
            return cls._of_floats(_USUAL_FLOATS if limits is None else limits, _FRACTION_BITS[dtype])
        type_low, type_high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        low, high = (type_low, type_high) if limits is None else (math.ceil(limits[0]), math.floor(limits[1]))
        low, high = max(low, type_low, -_MOST_VALUES // 2), min(high, type_high)
        high = min(high, low + _MOST_VALUES - 1)
        rest = port.quantization.zero_point if port.quantization else 0
        return cls(low=low, high=high, rest=min(max(rest, low), high))

    @classmethod
    def _of_floats(cls, limits: tuple[float, float], bits: int) -> Self:
        largest = max(abs(limits[0]), abs(limits[1]))
        exponent = math.frexp(largest)[1] - bits if largest else 0
        low, high = math.ceil(math.ldexp(limits[0], -exponent)), math.floor(math.ldexp(limits[1], -exponent))
        return cls(low=min(low, high), high=high, rest=min(max(0, low), high), exponent=exponent)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Description of how a vector is drawn.

    seed: 0 to 65535. run: 2**run consecutive elements share a value. narrow: values are within 2**-narrow of the domain
    around its centre. sparse: one element in 2**sparse is drawn, the others have the centre's value. extremes: only the
    lowest and the highest value occur. moved: the centre is drawn from the domain too; otherwise it is the domain's
    `rest`.
    """

    seed: int
    run: int = 0
    narrow: int = 0
    sparse: int = 0
    extremes: bool = False
    moved: bool = False

    @property
    def word(self) -> int:
        """The recipe as the word that the device reads."""
        fields = (self.run << 16) | (self.narrow << 20) | (self.sparse << 24)
        return self.seed | fields | (self.extremes << 28) | (self.moved << 29)


FORMS: tuple[Recipe, ...] = (
    Recipe(seed=0, run=7, narrow=2, moved=True),
    Recipe(seed=0),
    Recipe(seed=0, run=4, narrow=1, moved=True),
    Recipe(seed=0, extremes=True, sparse=3),
    Recipe(seed=0, run=5, narrow=2, moved=True),
    Recipe(seed=0, narrow=3, moved=True),
    Recipe(seed=0, run=6, narrow=1),
    Recipe(seed=0, extremes=True),
    Recipe(seed=0, run=7, narrow=3, moved=True),
    Recipe(seed=0, sparse=2),
    Recipe(seed=0, run=5, narrow=1, moved=True),
    Recipe(seed=0, run=3, narrow=2, moved=True),
)
"""Recipe forms, used in turn.

Most are levels with stripes. With noise, sums of a layer hardly differ from element to element and classifiers
saturate, so that few faults are visible. The other forms are noise, extremes and single elements.
"""


NOISE: tuple[Recipe, ...] = (
    Recipe(seed=0),
    Recipe(seed=0, moved=True, narrow=1),
    Recipe(seed=0, narrow=1),
    Recipe(seed=0, moved=True, narrow=2),
)
"""Recipe forms for models that compute in floats.

Equal elements would give ties, or a variance of zero, where a rounding error decides the result.
"""


def recipe_number(number: int, forms: tuple[Recipe, ...] = FORMS) -> Recipe:
    """Return recipe `number`, from 0 on. Each has a different seed."""
    form = forms[number % len(forms)]
    return Recipe(
        seed=number & 0xFFFF, run=form.run, narrow=form.narrow, sparse=form.sparse, extremes=form.extremes,
        moved=form.moved,
    )  # fmt: skip


def drawn(port: Port, position: int, domain: Domain, recipe: Recipe) -> np.ndarray:
    """Return the array of an input that a recipe describes. position: of the port among the inputs."""
    salt = _mixed(np.array([(recipe.word + 0x9E3779B9 * (position + 1)) & 0xFFFFFFFF], np.uint32))
    index = np.arange(port.num_elements, dtype=np.uint32)
    hashes = _mixed((index >> np.uint32(recipe.run)) + salt)
    # A second hash, from the inverted salt, is independent of the hash of the values.
    is_drawn = (_mixed(index ^ ~salt) & np.uint32((1 << recipe.sparse) - 1)) == 0
    span = domain.high - domain.low + 1
    centre = domain.low + ((_mixed(salt).item() * span) >> 32) if recipe.moved else domain.rest
    low = centre - ((centre - domain.low) >> recipe.narrow)
    high = centre + ((domain.high - centre) >> recipe.narrow)
    if recipe.extremes:
        values = np.where(hashes >> np.uint32(31), np.int64(high), np.int64(low))
    else:
        # The product of a hash and at most 2**32 values fits an unsigned 64-bit integer.
        values = low + ((hashes.astype(np.uint64) * np.uint64(high - low + 1)) >> np.uint64(32)).astype(np.int64)
    values = np.where(is_drawn, values, np.int64(centre))
    if port.dtype in _FRACTION_BITS:
        numbers = np.ldexp(values.astype(np.float64), domain.exponent).astype(np.dtype(port.dtype))
    else:
        numbers = values.astype(np.dtype(port.dtype))
    return port.taken_back(numbers)


def _mixed(words: np.ndarray) -> np.ndarray:
    """Return a hash of each uint32. Every bit of the hash depends on every bit of the word."""
    h = (words ^ (words >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    return h ^ (h >> np.uint32(16))
