"""Inputs that firmware provides in another form than the model's own, and the conversion of numbers between both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_TIE = 2.0**-10
"""Fraction of a step by which halves are raised.

Rounding errors of float32 then leave all halves on the same side.
"""


@dataclass(frozen=True, kw_only=True)
class ChangedInput:
    """An input in another form than the model's, which has type `dtype`, and scale and zero point where quantized.

    moved: whether it is an image whose channels come first in the model.
    pixels: whether it is uint8 instead of `dtype`.
    mean, std: of pixels. Where both are None, pixels are the integers of a quantized input, counted from 0, or the
    numbers of a float input.
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
        """The reciprocal of the standard deviation of pixels."""
        return np.float32(1.0 / (1.0 if self.std is None else self.std))

    @property
    def lifted(self) -> int:
        """The difference between pixels and the integers of a quantized input that they stand for."""
        return 128 if self.dtype == "int8" else 0

    @property
    def steps(self) -> tuple[np.float32, np.float32]:
        """a and b, such that a pixel p becomes floor(a * p + b) steps of a quantized input.

        All halves are rounded up.
        """
        assert self.scale is not None, "the input is quantized"
        a = 1.0 / ((1.0 if self.std is None else self.std) * self.scale)
        return np.float32(a), np.float32(0.5 + _TIE - (self.mean or 0.0) * a)

    @property
    def description(self) -> str:
        """The value that the model takes, as in the header: `(value - 127.5) / 127.5`; empty for the value itself."""
        if not self.is_scaled:
            return ""
        value = f"(value - {self.mean:g})" if self.mean else "value"
        return value if self.std in (None, 1.0) else f"{value} / {self.std:g}"

    def to_file(self, array: np.ndarray) -> np.ndarray:
        """Convert an input from the form of the firmware to the form of the model's file."""
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
        """Return the pixels, or the NHWC image, whose real numbers are nearest to the given numbers of the model."""
        array = np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if self.moved else array
        if not self.pixels:
            return array
        if self.zero_point is not None and self.scale is not None and not self.is_scaled:
            pixels = array.astype(np.float64) / self.scale + self.zero_point + self.lifted
        else:
            pixels = array.astype(np.float64) / float(self.factor) + float(self.offset)
        return np.clip(np.rint(np.nan_to_num(pixels)), 0, 255).astype(np.uint8)
