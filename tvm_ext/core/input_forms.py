"""Forms in which firmware hands over inputs, other than the model's own: channels last, pixels of 8 bits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

import numpy as np

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_WANTED = "nhwc, uint8, mean=NUMBER and std=NUMBER, with commas between them"
_TIE = 2.0**-10
"""Part of a step by which halves are lifted, so that rounding errors of float32 leave them on one side."""


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """A form that is asked for.

    nhwc: an image with its channels last. uint8: elements of 0 to 255, which stand for (value - mean) / std; None where
    nothing is said.
    """

    nhwc: bool = False
    uint8: bool = False
    mean: float | None = None
    std: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The form of `nhwc,uint8,mean=127.5,std=127.5`. Raises ValueError."""
        found: dict[str, bool | float] = {}
        for word in text.split(","):
            key, equals, number = word.partition("=")
            if key in found:
                raise ValueError(f"{key} stands there twice")
            if key in ("nhwc", "uint8") and not equals:
                found[key] = True
            elif key in ("mean", "std") and _NUMBER.fullmatch(number):
                found[key] = float(number)
            else:
                raise ValueError(f"{word!r} is none of {_WANTED}")
        form = cls(**found)  # type: ignore[arg-type]
        if form.is_scaled and not form.uint8:
            raise ValueError("mean and std are those of pixels; they need uint8")
        if form.std is not None and not 1e-30 < form.std < 1e30:
            raise ValueError(f"std = {form.std:g}: a number above 0 is needed")
        if form.mean is not None and not abs(form.mean) < 1e30:
            raise ValueError(f"mean = {form.mean:g}: a finite number is needed")
        return form

    @property
    def is_scaled(self) -> bool:
        """True where mean or standard deviation are given."""
        return self.mean is not None or self.std is not None


@dataclass(frozen=True, kw_only=True)
class ChangedInput:
    """An input in another form than the model's, which is of type `dtype`, with scale and zero point where quantized.

    moved: an image whose channels the model has first. pixels: uint8 in place of `dtype`. mean, std: of pixels; where
    both are None, those of a quantized input are its integers, from 0 on, those of a float input its numbers.
    """

    dtype: str
    moved: bool = False
    pixels: bool = False
    mean: float | None = None
    std: float | None = None
    scale: float | None = None
    zero_point: int | None = None

    @property
    def is_scaled(self) -> bool:
        return self.mean is not None or self.std is not None

    @property
    def offset(self) -> np.float32:
        """The mean of pixels."""
        return np.float32(self.mean or 0.0)

    @property
    def factor(self) -> np.float32:
        """One by the standard deviation of pixels."""
        return np.float32(1.0 / (1.0 if self.std is None else self.std))

    @property
    def lifted(self) -> int:
        """Of pixels that are the integers of a quantized input: by how much they are higher than these."""
        return 128 if self.dtype == "int8" else 0

    @property
    def steps(self) -> tuple[np.float32, np.float32]:
        """a, b: a pixel p becomes floor(a * p + b) steps of a quantized input; halves go up, each as the others do."""
        assert self.scale is not None, "the input is quantized"
        a = 1.0 / ((1.0 if self.std is None else self.std) * self.scale)
        return np.float32(a), np.float32(0.5 + _TIE - (self.mean or 0.0) * a)

    @property
    def description(self) -> str:
        """What the model takes, as the header says it: `(value - 127.5) / 127.5`; empty where it is the value."""
        if not self.is_scaled:
            return ""
        value = f"(value - {self.mean:g})" if self.mean else "value"
        return value if self.std in (None, 1.0) else f"{value} / {self.std:g}"

    def to_file(self, array: np.ndarray) -> np.ndarray:
        """The input that the model's file takes, of one that firmware hands over."""
        if self.pixels and self.zero_point is None:
            array = (array.astype(np.float32) - self.offset) * self.factor
        elif self.pixels and self.is_scaled:
            (a, b), limits = self.steps, np.iinfo(self.dtype)
            steps = np.floor(array.astype(np.float32) * a + b) + np.float32(self.zero_point or 0)
            array = np.clip(steps, limits.min, limits.max).astype(self.dtype)
        elif self.pixels:
            array = (array.astype(np.int16) - self.lifted).astype(self.dtype)
        return np.ascontiguousarray(array.transpose(0, 3, 1, 2)) if self.moved else array

    def of_real(self, array: np.ndarray) -> np.ndarray:
        """The pixels, or the image with channels last, whose real numbers are nearest to these of the model."""
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self.moved else array
        if not self.pixels:
            return array
        if self.zero_point is not None and self.scale is not None and not self.is_scaled:
            pixels = array.astype(np.float64) / self.scale + self.zero_point + self.lifted
        else:
            pixels = array.astype(np.float64) / float(self.factor) + float(self.offset)
        return np.clip(np.rint(np.nan_to_num(pixels)), 0, 255).astype(np.uint8)
