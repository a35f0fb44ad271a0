"""Requested forms of inputs: channels last, pixels of 8 bits. See changed_inputs.py for what they do to an input."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,2})?")
_WANTED = "nhwc, uint8, mean=NUMBER and std=NUMBER, with commas between them"


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """A requested form of an input.

    nhwc: an image with its channels last.
    uint8: elements from 0 to 255, which stand for (value - mean) / std.
    mean, std: None where not given.
    """

    nhwc: bool = False
    uint8: bool = False
    mean: float | None = None
    std: float | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the form for a text such as `nhwc,uint8,mean=127.5,std=127.5`. Raises ValueError."""
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
                raise ValueError(f"{word!r} is not valid; choose from {_WANTED}")
        form = cls(**found)  # type: ignore[arg-type]
        if form.is_scaled and not form.uint8:
            raise ValueError("mean and std normalize pixels; add uint8")
        if form.std is not None and not 1e-30 < form.std < 1e30:
            raise ValueError(f"std = {form.std:g}: give a number above 0")
        if form.mean is not None and not abs(form.mean) < 1e30:
            raise ValueError(f"mean = {form.mean:g}: give a finite number")
        return form

    @property
    def is_scaled(self) -> bool:
        """True where a mean or a standard deviation is given."""
        return self.mean is not None or self.std is not None
