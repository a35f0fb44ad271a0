"""Runs a model while everything in its arenas that is dead is destroyed, after every step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.backend.build import Compiled
from tvm_ext.execution.instrumented import run_instrumented, with_ports_in_arena

Array = np.ndarray
POISON = 0xA5


def run_poisoned(compiled: Compiled, inputs: Mapping[str, Array]) -> tuple[dict[str, Array], int]:
    """Outputs under the model's own names, and how many bytes were overwritten with other ones.

    After step i only the bytes of tensors that are alive during step i + 1 are left alone; behind the last
    step only those of the outputs. Scratch is destroyed after its step, like everything dead.
    """
    in_arena = with_ports_in_arena(compiled)
    placements, num_steps = in_arena.plan.placements, len(in_arena.program.steps)
    destroyed = 0

    def poison(step: int, arenas: Mapping[str, Array]) -> None:
        nonlocal destroyed
        for memory, arena in arenas.items():
            dead = np.ones(arena.size, bool)
            for place in placements.values():
                needed = place.name in in_arena.program.outputs if step + 1 == num_steps else place.end > step + 1
                if place.memory == memory and place.begin <= step and needed and not place.is_scratch:
                    dead[place.offset : place.offset + place.num_bytes] = False
            destroyed += int(np.count_nonzero(arena[dead] != POISON))
            arena[dead] = POISON

    return run_instrumented(in_arena, inputs, poison), destroyed
