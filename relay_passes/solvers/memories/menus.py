"""The choices of each item of an assignment to memories: where it may lie, and when its transfers may start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, takewhile

from relay_passes.solvers.memories.assignment import Place, Stay, ValueTransfer, WeightsCopy
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.state import Choice, Item, State

MOST_USES = 4
"""Most layers reading a value that are told apart. Later reads use the default memory."""
Use = tuple[int, int]
"""The first and the last step of a layer that reads a value."""
LEADS = (0, -1, 1, 2, 4)
"""Numbers of steps by which a prefetch is started earlier than would just hide it, if nothing delays it."""


class Menus:
    """The choices of the items of a state in which everything lies in the default memory."""

    def __init__(self, state: State) -> None:
        self.problem: AssignmentProblem = state.problem
        self.elapsed = [0.0, *accumulate(state.cycles)]
        self.of = {item: list(dict.fromkeys(self._menu(item, home))) for item, home in state.choices.items()}

    def _menu(self, item: Item, home: Choice) -> Iterator[Choice]:
        """Yield all choices of an item, starting with its choice without other memories."""
        yield home
        if item.kind == "value" and not self.problem.sizes[item.index]:
            return  # the application holds a streamed input or output
        step = self.problem.steps[item.index] if item.kind != "value" else None
        for memory in (self.problem.default_memory, *self.problem.near):
            if step is None and memory != self.problem.default_memory:
                yield from self._places(item.index, memory)
            elif step and not self.problem.reaches(item.index, memory):
                continue
            elif item.kind == "scratch" and step and step.movable:
                yield memory
            elif item.kind == "weights" and step and step.movable and step.weights_read_bytes:
                yield from self._copies(item.index, memory)

    def _copies(self, index: int, memory: str) -> Iterator[WeightsCopy]:
        problem, size = self.problem, self.problem.steps[index].weights_bytes
        if memory == problem.stored or not problem.time.has_dma(problem.stored, memory):
            return
        for start in self._starts(index, 0, problem.time.transfer_cycles(problem.stored, memory, size)):
            yield WeightsCopy(memory=memory, start=start)

    def _places(self, value: int, memory: str) -> Iterator[Place]:
        problem, every = self.problem, self._uses(value)
        uses = every[:MOST_USES]
        maker = problem.makers.get(value)
        home = Place(born=problem.default_memory, born_last=-1)
        for stays in self._stays(value, memory, uses, 0 if maker is None else problem.boundary_from(maker + 1)):
            yield replace(home, stays=stays)
        if maker is None or value in problem.outputs:
            if value in problem.free_ports and self._is_reached(value, memory):
                yield Place(born=memory, born_last=len(problem.steps) if value in problem.outputs else every[-1][1])
            return
        if not problem.steps[maker].movable:
            return
        if not problem.reaches(maker, memory):
            return
        for number, (_, last) in enumerate(uses):
            if not problem.reaches(last, memory):
                return
            born = Place(born=memory, born_last=last)
            later = every[number + 1 :]
            if later and (later[0][0] < problem.home_again(value) or not problem.can_move(maker, memory)):
                continue
            yield born
            if later:
                for stays in self._stays(value, memory, later[:MOST_USES], problem.home_again(value)):
                    yield replace(born, stays=stays)

    def _is_reached(self, port: int, memory: str) -> bool:
        """Return True if the caller on the first processor and all steps that touch an input or output reach a memory.

        The result of a step that cannot move stays in the default memory.
        """
        problem, maker = self.problem, self.problem.makers.get(port)
        steps = [*problem.uses[port], *([] if maker is None else [maker])]
        is_fixed = maker is not None and not problem.steps[maker].movable
        return (
            bool(steps)
            and not is_fixed
            and problem.time.reaches(memory)
            and all(problem.reaches(step, memory) for step in steps)
        )

    def _uses(self, value: int) -> list[Use]:
        """Return the uses of a value, where the tiles of a layer are one use."""
        found: list[Use] = []
        for step in self.problem.uses[value]:
            if found and found[-1][1] == step - 1 and self.problem.steps[step].continues:
                found[-1] = found[-1][0], step
            else:
                found.append((step, step))
        return found

    def _stays(self, value: int, memory: str, uses: Sequence[Use], ready: int) -> Iterator[tuple[Stay, ...]]:
        """Yield stays: each run of consecutive uses with a common copy, then a copy for each use."""
        uses = [use for use in uses if self.problem.boundary_to(use[0]) >= ready]
        near = [use for use in uses if self.problem.reaches(use[0], memory) and self.problem.can_move(use[0], memory)]
        if not near:
            return
        one = ValueTransfer(
            value=value,
            source=self.problem.default_memory,
            target=memory,
            start=0,
            due=0,
            processor=self.problem.copier(near[0][0]),
        )
        cycles = self.problem.transfer_cycles(one)
        for first, begin in enumerate(uses):
            run = list(takewhile(near.__contains__, uses[first:]))
            for start in self._starts(begin[0], ready, cycles) if run else ():
                for _, last in run:
                    yield (Stay(memory=memory, start=start, first=begin[0], last=last),)
        uses = near
        if len(uses) > 1:
            own: list[Stay] = []
            for use in uses:
                ready = max(ready, self.problem.boundary_from(own[-1].last + 1)) if own else ready
                starts = list(self._starts(use[0], ready, cycles))
                if not starts:
                    return
                own.append(Stay(memory=memory, start=starts[len(starts) // 2], first=use[0], last=use[1]))
            yield tuple(own)

    def _starts(self, use: int, ready: int, cycles: float) -> Iterator[int]:
        """Yield the steps from `ready` on at which a transfer may start: where it is just hidden, and near that."""
        latest = self.problem.boundary_to(use)
        if latest < ready:  # the step runs in turns with the last reader of the other copy
            return
        hidden = latest
        while hidden > ready and self.elapsed[latest] - self.elapsed[hidden] < cycles:
            hidden -= 1
        found = {self.problem.boundary_to(max(ready, min(latest, hidden - lead))) for lead in LEADS} | {latest}
        yield from sorted((start for start in found if start >= ready), reverse=True)
