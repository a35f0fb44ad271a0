"""Functions that the user supplies: of the application instead of a kernel, or of a driver that a kernel calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Callback:
    """A function of the application instead of a kernel: it fills the output, or consumes the input.

    rows: in which the tensor is passed; 1 if it is no image. layout: axes of the model's tensor in the order of
    passing. columns: [begin, end) that are read; None for all.
    """

    direction: Literal["read", "write"]
    rows: int
    layout: tuple[int, ...]
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class DriverCall:
    """A function of the user's driver that a kernel's function calls: it starts an accelerator, and returns at once.

    processor: the accelerator, by its name on the platform. header: declares the driver. wait: the driver's function
    that blocks until the accelerator is done.
    """

    processor: str
    header: str
    wait: str
