"""Elements of states that steps find where inputs come one at a time; part of the validator of successive inputs.

Bytes of a state have the number of the step that wrote them last, of its input. A pipeline is right if each step finds
there the numbers that it finds in a run after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.touched_bytes import Touch, touches, whole_of
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, RowSteps, Step, Turned, calls


class StatesInTurn:
    """Runs of a program one after the other, as far as its states go. turns: how many."""

    def __init__(self, program: Program, plan: MemoryPlan, turns: int) -> None:
        self.program, self.plan, self.turns = program, plan, turns
        self.kept = frozenset(program.kept)

    @cached_property
    def found(self) -> Mapping[tuple[int, int], list[np.ndarray]]:
        """Numbers that a step, of an input, finds in the states that it reads, in the order of its touches."""
        owners = {name: np.full(self.program.tensors[name].num_bytes, -1, np.int64) for name in self.kept}
        found: dict[tuple[int, int], list[np.ndarray]] = {}
        for turn in range(self.turns):
            for index, step in enumerate(self.program.steps):
                touched = self.touched(step)
                found[turn, index] = [owners[one.whole][one.places].copy() for one in touched if not one.writes]
                for touch in touched:
                    if touch.writes:
                        owners[touch.whole][touch.places] = self.number(turn, index)
            for state in self.program.states:
                ring = self.program.tensors[state.tensor].ring
                if ring and ring.turn:
                    owners[ring.turn][:] = self.number(turn, len(self.program.steps))
        return found

    def number(self, turn: int, step: int) -> int:
        """The number of what a step writes for an input, less than all others; one more step turns the rings."""
        return -3 - turn * (len(self.program.steps) + 1) - step

    def touched(self, step: Step) -> list[Touch]:
        """Bytes of states that a step touches, but for those that it reads behind its own writes."""
        found = [touch for touch in touches(self.program, self.plan, step) if touch.whole in self.kept]
        inside = {touch.whole for touch in found if touch.writes and isinstance(step, Loop | RowSteps)}
        turned = [
            whole_of(self.program, ring.turn, writes=False)
            for call in calls(step)
            if isinstance(call, KernelCall)
            for ring in call.rings
            if isinstance(ring, Turned)
        ]
        return [*(touch for touch in found if touch.writes or touch.whole not in inside), *turned]
