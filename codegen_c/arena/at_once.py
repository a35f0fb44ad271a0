"""Tensors that may be live at once where several processors run steps, and operands that an output may replace.

If a processor overwrites an operand in place, no other processor may still read it, or already use the same bytes of
the output. `handed_over` names the steps between which a signal makes sure of the former.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codegen_c.arena.lifetimes import lifetimes
from codegen_c.arena.memory_plan import scratch_name
from codegen_c.arena.overlap import Overlaps, keeps_places, overlaps
from codegen_c.arena.problem import Buffer
from codegen_c.program.accesses import Access, accesses
from codegen_c.program.parallel import NONE, StepOrder
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, reads, scratch_bytes, writes

BoolArray = np.ndarray


@dataclass(frozen=True, kw_only=True, eq=False)
class AtOnce:
    """Uses of all tensors and scratch under a partial order of steps.

    touched: steps that touch each tensor, including its parts. always: tensors that are always live.
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
        """bool[n, n]: True for two tensors that may be live at once in some interleaving."""
        num_lists = len(self.order.done[0]) if self.order.done else 1
        last = np.full((len(self.touched), num_lists), NONE, np.int64)
        known = np.full((len(self.touched), num_lists), NONE, np.int64)
        for index, (name, steps) in enumerate(self.touched.items()):
            for step in steps:
                home = self.order.home[step]
                last[index, home] = max(last[index, home], step)
            # The last step of each schedule that has surely ended before any of the uses begins.
            clocks = [self.order.done[step] for step in steps]
            known[index] = np.min(clocks, axis=0) if clocks else NONE
            if name in self.program.inputs:  # written before all steps
                known[index] = NONE
            if name in self.program.outputs or not steps:
                last[index] = len(self.program.steps)
            if name in self.always:
                last[index], known[index] = len(self.program.steps), NONE
        # A buffer is dead before another one begins if all its last uses are known to have ended then.
        before = np.ones((len(last), len(last)), bool)
        for one in range(num_lists):
            used = last[:, one] > NONE
            before &= ~used[:, None] | (last[:, one][:, None] <= known[:, one][None, :])
        return ~(before | before.T)

    def meet(self, one: str, other: str) -> bool:
        """Return True if both may be live at once."""
        return bool(self.table[self._index[one], self._index[other]])

    def pairs(self, names: Sequence[str]) -> BoolArray:
        """Return bool[n, n]: True for two of these tensors that may be live at once."""
        index = [self._index[name] for name in names]
        return self.table[np.ix_(index, index)] & ~np.eye(len(index), dtype=bool)

    def kept(self, overlaps: Sequence[Overlaps]) -> list[Overlaps]:
        """Return the overlaps that stay valid when other processors run steps at the same time.

        No other processor may still use the input, or already use the output.
        """
        pairs = {pair for step in overlaps for direction in (step.ascending, step.descending) for pair in direction}
        wrong = {pair for pair in pairs if not (self._takes_over(*pair) or self._takes_over(*pair[::-1]))}
        found = [step.without((), wrong) for step in overlaps]
        return [step for step in found if step.ascending or step.descending]

    def _takes_over(self, output: str, source: str) -> bool:
        """Return True if the only common step of both is the last use of the input and the first use of the output."""
        common = {*self.touched[output]} & {*self.touched[source]}
        if len(common) != 1 or source in self.program.outputs or output in self.program.inputs:
            return False
        step = common.pop()
        return self._has_ended(source, step) and all(
            i == step or self.order.before(step, i) for i in self.touched[output]
        )

    def _has_ended(self, source: str, step: int) -> bool:
        return all(i == step or self.order.before(i, step) for i in self.touched[source])

    def groups(self, index: Mapping[str, int], buffers: Sequence[Buffer]) -> dict[int, list[tuple[int, int]]]:
        """Return tensors that share bytes if they are placed together, with the distance of their begins.

        Each is an output and the input that it replaces element by element, so that other processors may write the rest
        of the output meanwhile. Chains of them are one group, as far as no other two of its tensors get in each other's
        way. index: numbers of the tensors that are placed. The result is by the first tensor of each group.
        """
        found = {number: [(number, 0)] for number in range(len(buffers))}
        meet = self.pairs(list(index))
        for output, source, distance in self.replaced():
            around, inner = index.get(output), index.get(source)
            if around is None or inner is None or found[around] is found[inner]:
                continue
            if buffers[around].offset is not None or buffers[inner].offset is not None:  # pinned by the user
                continue
            shift = dict(found[around])[around] + distance - dict(found[inner])[inner]
            moved = [(number, ahead + shift) for number, ahead in found[inner]]
            in_the_way = any(
                meet[one, other]
                and (one, other) != (around, inner)
                and begin < other_begin + buffers[other].size
                and other_begin < begin + buffers[one].size
                for one, begin in found[around]
                for other, other_begin in moved
            )
            if not in_the_way and not any(ahead % buffers[number].alignment for number, ahead in moved):
                group = [*found[around], *moved]
                found |= {number: group for number, _ in group}
        return {number: group for number, group in found.items() if group[0][0] == number and len(group) > 1}

    def replaced(self) -> Iterator[tuple[str, str, int]]:
        """Yield the whole tensors of an output and an input that it replaces, and the distance of their begins."""
        for number, step in enumerate(self.program.steps):
            if not isinstance(step, KernelCall) or step.rows is not None or step.stored.pitch or step.stored.row_pitch:
                continue
            written, read = self._bytes(number, writes=True), self._bytes(number, writes=False)
            if len(written) != 1:
                continue
            for position in step.implementation.in_place:
                source = self.program.tensors[step.inputs[position]]
                own = [one for one in read if one.space == ("", part.tensor if (part := source.part) else source.name)]
                if len(own) == 1 and step.inputs.count(source.name) == 1 and keeps_places(self.program, step, position):
                    yield from self._of_bytes(number, written[0], own[0])

    def _of_bytes(self, number: int, written: Access, read: Access) -> Iterator[tuple[str, str, int]]:
        (_, output), (_, source), distance = written.space, read.space, written.low - read.low
        tensors, fixed = self.program.tensors, {*self.program.inputs, *self.program.outputs, *self.always}
        if (
            output != source
            and tensors[output].memory == tensors[source].memory
            and source not in fixed
            and output not in self.program.inputs
            and output not in self.always
            and written.low <= distance
            and distance + tensors[source].num_bytes <= written.high
            and self._has_ended(source, number)
            and all(
                index == number or self.order.before(number, index)
                for index in self.touched[output]
                if any(access.meets(written) for access in self._accesses[index])
            )
        ):
            yield output, source, distance

    def _bytes(self, number: int, *, writes: bool) -> list[Access]:
        return [access for access in self._accesses[number] if access.writes == writes]

    @cached_property
    def _accesses(self) -> list[list[Access]]:
        return [accesses(self.program, step) for step in self.program.steps]


def at_once(program: Program, order: StepOrder, kept: Collection[str] = ()) -> AtOnce:
    """Return the uses of tensors that are not parts, and of scratch. kept: tensors that are always live."""
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


def handed_over(program: Program, order: StepOrder) -> list[tuple[str, str]]:
    """Return pairs of steps: if the second waits for the first, it may overwrite an operand.

    The first is a copy of some rows of the operand for another processor. Steps that compute are not waited for: they
    may be parts of the same layer, which would then run one after the other.
    """
    touched = at_once(program, order).touched
    copies = {
        index for index, step in enumerate(program.steps)
        if isinstance(step, KernelCall) and step.implementation.copies
    }  # fmt: skip
    found: dict[tuple[str, str], None] = {}
    for step in overlaps(program):
        for one, other in (*step.ascending, *step.descending):
            common = {*touched[one]} & {*touched[other]}
            if len(common) == 1:
                (taking,) = common
                earlier = [index for index in (*touched[one], *touched[other]) if index < taking]
                others = [index for index in earlier if order.home[index] != order.home[taking]]
                if copies.issuperset(others):
                    found |= {(program.steps[index].name, program.steps[taking].name): None for index in others}
    return list(found)
