"""Functions that the user brings: of the application in a kernel's place, of a driver that a kernel calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Callback:
    """A function of the application's in a kernel's place: it fills the output, or takes the input.

    rows: that the tensor is handed over in, 1 where it is no image. layout: axes of the model's tensor as handed over.
    columns: [begin, end) that are asked for; None for all.
    """

    direction: Literal["read", "write"]
    rows: int
    layout: tuple[int, ...]
    columns: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class DriverCall:
    """A function of the user's driver that a kernel's function calls: it starts an accelerator, and returns at once.

    processor: the accelerator, by its name on the platform. header: that declares the driver. wait: its function that
    blocks until the accelerator is done.
    """

    processor: str
    header: str
    wait: str
