"""Executed instructions of a run that several processors share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SharedRun:
    """Measured on a board. instructions: of each list of the program, without waits, each signal's own included.

    makespan: of the whole run, waits included; a signal is seen at once, and all processors have one clock.
    single: of the model on the one processor that runs it fastest; None where it was not measured.
    """

    instructions: tuple[int, ...]
    makespan: int
    single: int | None = None
