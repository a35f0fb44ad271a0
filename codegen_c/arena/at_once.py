"""Tensors that may be alive at once while several processors run.

A tensor is surely dead before another one is made if all steps that touch it end before any that touches the other one
begins, by lists and signals. All other pairs may be alive at once under some interleaving.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.memory_plan import scratch_name
from codegen_c.arena.overlap import Overlaps
from codegen_c.program.program import Program
from codegen_c.program.step_order import NONE, StepOrder
from codegen_c.program.steps import reads, scratch_bytes, writes

BoolArray = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class AtOnce:
    """Uses of everything that needs bytes of its own, under a partial order of steps.

    touched: steps that touch it, of a tensor and all its parts together. always: what is never dead.
    """

    program: Program
    order: StepOrder
    touched: Mapping[str, tuple[int, ...]]
    always: frozenset[str]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.touched)}

    @cached_property
    def table(self) -> BoolArray:
        """bool[n, n]: pairs that may be alive at once under some interleaving."""
        num_lists = len(self.order.done[0]) if self.order.done else 1
        last = np.full((len(self.touched), num_lists), NONE, np.int64)
        known = np.full((len(self.touched), num_lists), NONE, np.int64)
        for index, (name, steps) in enumerate(self.touched.items()):
            for step in steps:
                home = self.order.home[step]
                last[index, home] = max(last[index, home], step)
            clocks = [self.order.done[step] for step in steps]
            known[index] = np.min(clocks, axis=0) if clocks else NONE
            if name in self.program.inputs:  # there before all steps
                known[index] = NONE
            if name in self.program.outputs or not steps:
                last[index] = len(self.program.steps)
            if name in self.always:
                last[index], known[index] = len(self.program.steps), NONE
        before = np.ones((len(last), len(last)), bool)
        for one in range(num_lists):
            used = last[:, one] > NONE
            before &= ~used[:, None] | (last[:, one][:, None] <= known[:, one][None, :])
        return ~(before | before.T)

    def meet(self, one: str, other: str) -> bool:
        """True if both may be alive at once."""
        return bool(self.table[self._index[one], self._index[other]])

    def pairs(self, names: Sequence[str]) -> BoolArray:
        """bool[n, n]: of these, the pairs of two that may be alive at once."""
        index = [self._index[name] for name in names]
        return self.table[np.ix_(index, index)] & ~np.eye(len(index), dtype=bool)

    def kept(self, overlaps: Sequence[Overlaps]) -> list[Overlaps]:
        """Overlaps of steps that stay right: no other processor may still use the input, or use the output before."""
        pairs = {pair for step in overlaps for way in (step.ascending, step.descending) for pair in way}
        wrong = {pair for pair in pairs if not (self._takes_over(*pair) or self._takes_over(*pair[::-1]))}
        found = [step.without((), wrong) for step in overlaps]
        return [step for step in found if step.ascending or step.descending]

    def _takes_over(self, output: str, source: str) -> bool:
        """True if the step that both share comes behind all others of the input and before all others of the output."""
        common = {*self.touched[output]} & {*self.touched[source]}
        if len(common) != 1 or source in self.program.outputs or output in self.program.inputs:
            return False
        step = common.pop()
        return all(i == step or self.order.before(i, step) for i in self.touched[source]) and all(
            i == step or self.order.before(step, i) for i in self.touched[output]
        )


def at_once(program: Program, order: StepOrder, kept: Collection[str] = ()) -> AtOnce:
    """Uses of the tensors of a program that are no parts, and of the scratch of its steps. kept: what is never dead."""
    named = dict.fromkeys([*lifetimes(program), *kept])
    touched: dict[str, set[int]] = {name: set() for name in named if program.tensors[name].part is None}
    for index, step in enumerate(program.steps):
        for name in (*reads(step), *writes(step)):
            part = program.tensors[name].part
            touched.setdefault(part.tensor if part else name, set()).add(index)
        if scratch_bytes(step):
            touched[scratch_name(step.name)] = {index}
    found = {name: tuple(sorted(steps)) for name, steps in touched.items()}
    return AtOnce(program=program, order=order, touched=found, always=frozenset([*program.kept, *kept]))
