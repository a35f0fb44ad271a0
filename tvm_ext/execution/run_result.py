"""Outputs of several samples, and what was measured meanwhile: on a board in QEMU, or on a device by a runner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from codegen_c.program.makespan import SharedRun


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """Outputs per sample, and figures of one run on the first sample, after a warm-up.

    stack_bytes: high-water mark below the caller of run(). instructions: executed, from begin to end, counted by QEMU;
    None on a device, and where several processors share a run and nothing counted them. Instructions are not cycles.
    cycles: of the processor, by the board's timer; None in QEMU, and where the timer wrapped. moved_bytes: counted in
    QEMU, for each pair of memories (from, to) between which any went. shared: figures of each processor of several.
    driver_calls: counted in QEMU, starts of accelerators and waits for them. said: what a runner printed.
    """

    outputs: tuple[dict[str, np.ndarray], ...]
    stack_bytes: int
    instructions: int | None = None
    cycles: int | None = None
    moved_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    shared: SharedRun | None = None
    driver_calls: tuple[int, int] | None = None
    said: str = ""
