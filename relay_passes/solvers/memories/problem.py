"""The assignment of values, weights and scratch to several memories as numbers: the bytes it takes and its cycles.

One memory is the default (`home`): every value may lie there from its first step to its last. The other memories are
fast (`near`), and smaller. A value that is written to fast memory lies there until its `born_last` step. Where a later
step reads it, it is spilled to the default memory after its producer. A `Stay` is a copy that is prefetched from the
default memory. It exists from the step ahead of which the prefetch starts until the last step that reads it. Weights
are copied from where they are stored, for a single step each.

Where several processors run the steps, each reaches some memories, including the default memory, with its own access
times. Values lie in a fast memory only where all steps that write or read that copy reach it. Where no DMA copies, a
core copies for its own steps, and the first core copies for accelerators. Cycles are cycles of the first processor's
clock, and the cycles of steps add up, as if the processors waited for each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from relay_passes.solvers.memories.assignment import Assignment, Place, ValueTransfer, WeightsCopy
from tvm_ext.core.alignment import aligned
from tvm_ext.core.time_model import UNIFORM, Event, KernelTime, TimeModel, Traffic, finish_cycles


@dataclass(frozen=True, kw_only=True)
class Step:
    """An operator.

    cycles: of its instructions.
    reads: bytes read of each value.
    writes: bytes of each value.
    kernel: the access patterns.
    weights_bytes, scratch_bytes: the bytes that they take.
    weights_read_bytes, scratch_access_bytes: the bytes of them that are read, or read and written.
    shared: for each value, the bytes that the result shares with it where it is read for the last time.
    together: whether the operator runs in turns with the step ahead of it. Nothing starts or ends between two such
    steps, and the operands of either exist during both.
    continues: whether the operator is another tile of the layer of the step ahead of it. Tiles read the same values.
    movable: whether its weights and scratch may lie in other memories, and its results in fast memory.
    processor: that runs it, empty for the first processor.
    """

    cycles: float
    reads: Mapping[int, int]
    writes: Mapping[int, int]
    kernel: KernelTime = UNIFORM
    weights_bytes: int = 0
    weights_read_bytes: int = 0
    scratch_bytes: int = 0
    scratch_access_bytes: int = 0
    shared: Mapping[int, int] = field(default_factory=dict[int, int])
    together: bool = False
    continues: bool = False
    movable: bool = True
    processor: str = ""


@dataclass(frozen=True)
class AssignmentProblem:
    """The steps in their order, and the bytes of values.

    default_memory: the memory of values without a place in a near memory.
    near: the fast memories.
    limits: of all these memories, in bytes.
    stored: the memory of the weights.
    free_ports: inputs and outputs that may lie in a fast memory for as long as they exist.
    begun: the first step that writes a value, where several steps write it: its maker is then the last.
    """

    steps: tuple[Step, ...]
    sizes: tuple[int, ...]
    outputs: frozenset[int]
    default_memory: str
    near: tuple[str, ...]
    limits: Mapping[str, int]
    stored: str
    time: TimeModel
    free_ports: frozenset[int] = frozenset()
    begun: Mapping[int, int] = field(default_factory=dict[int, int])

    @cached_property
    def makers(self) -> dict[int, int]:
        """The step that writes each value. Inputs exist from step -1 on."""
        return {value: index for index, step in enumerate(self.steps) for value in step.writes}

    @cached_property
    def uses(self) -> list[list[int]]:
        """The steps that read each value, ascending."""
        found: list[list[int]] = [[] for _ in self.sizes]
        for index, step in enumerate(self.steps):
            for value in step.reads:
                found[value].append(index)
        return found

    @cached_property
    def _times(self) -> dict[str, tuple[TimeModel, float]]:
        """The time model of each processor, and the cycles of the first processor per cycle of its own."""
        platform, names = self.time.platform, {"", *(step.processor for step in self.steps)}
        clock_hz = platform.processor.clock_hz
        others = {
            name: (replace(self.time, processor=name), clock_hz / platform.processor_named(name).clock_hz)
            for name in names
            if name
        }
        return {"": (self.time, 1.0), **others}

    def reaches(self, index: int, memory: str) -> bool:
        """Return True where the processor of a step reads and writes a memory."""
        return self._times[self.steps[index].processor][0].reaches(memory)

    def read_cycles(self, index: int, memory: str, value: int) -> float:
        """Return the cycles that a memory adds where a step reads a value there."""
        step = self.steps[index]
        return self._read(index, memory, step.reads[value], step.kernel.input)

    def write_cycles(self, index: int, memory: str, value: int) -> float:
        """Return the cycles that a memory adds where a step writes a value there."""
        step = self.steps[index]
        time, cycle = self._times[step.processor]
        return time.write_cycles(memory, step.writes[value], step.kernel.output) * cycle

    def weights_cycles(self, index: int, memory: str) -> float:
        """Return the cycles that a memory adds where a step reads its weights there."""
        step = self.steps[index]
        return self._read(index, memory, step.weights_read_bytes, step.kernel.constants)

    def scratch_cycles(self, index: int, memory: str) -> float:
        """Return the cycles that a memory adds where a step's scratch lies there."""
        step = self.steps[index]
        return self._read(index, memory, step.scratch_access_bytes, step.kernel.scratch)

    def _read(self, index: int, memory: str, num_bytes: int, access: Traffic) -> float:
        time, cycle = self._times[self.steps[index].processor]
        return time.read_cycles(memory, num_bytes, access) * cycle

    def copier(self, index: int) -> str:
        """Return the core that copies what a step reads or writes where no DMA does, empty for the first core."""
        name = self.steps[index].processor
        return name if self.time.platform.processor_named(name).kind == "core" else ""

    def can_move(self, index: int, memory: str) -> bool:
        """Return True where a step's operand can be copied from the default memory to a memory and back."""
        pairs = (self.default_memory, memory), (memory, self.default_memory)
        return self._times[self.copier(index)][0].reaches(memory) or all(self.time.has_dma(*pair) for pair in pairs)

    def transfer_cycles(self, move: ValueTransfer) -> float:
        """Return the cycles from the start to the end of a transfer that nothing delays."""
        time, cycle = self._times[move.processor]
        cycles = time.transfer_cycles(move.source, move.target, self.sizes[move.value])
        return cycles if time.has_dma(move.source, move.target) else cycles * cycle

    def boundary_from(self, step: int) -> int:
        """Return the first boundary from a step on.

        A boundary is a position where transfers and lifetimes may start or end.
        """
        return self._boundaries[1][step]

    def boundary_to(self, step: int) -> int:
        """Return the last boundary up to a step."""
        return self._boundaries[0][step]

    @cached_property
    def _boundaries(self) -> tuple[list[int], list[int]]:
        """The last boundary up to each position, and the first from it on.

        The end of the last step is a boundary too.
        """
        is_one = [*(index == 0 or not step.together for index, step in enumerate(self.steps)), True, True]
        places = range(len(is_one))
        before = list(accumulate(places, lambda last, place: place if is_one[place] else last))
        behind = list(accumulate(reversed(places), lambda following, place: place if is_one[place] else following))
        return before, behind[::-1]

    def span(self, begin: int, last: int) -> tuple[int, int]:
        """Return the steps [begin, end) during which a value exists that is needed from one step to another."""
        return self.boundary_to(begin), self.boundary_from(last + 1)

    def at_home(self) -> Assignment:
        """Return the assignment with everything in the default memory, and weights where they are stored."""
        last = len(self.steps)
        return Assignment(
            places=(Place(born=self.default_memory, born_last=last),) * len(self.sizes), weights={}, scratch={}
        )

    def home_again(self, value: int) -> int:
        """Return the first step ahead of which a value that was written to fast memory can have been spilled."""
        return self.boundary_from(self.boundary_from(self.makers.get(value, -1) + 1) + 1)

    def moves_of(self, value: int, place: Place) -> Iterator[ValueTransfer]:
        """Yield the spill, where the value is read from the default memory, and then the prefetches."""
        away = place.born != self.default_memory
        if away and any(use > place.born_last for use in self.uses[value]):
            start = self.boundary_from(self.makers[value] + 1)
            due = self.boundary_from(start + 1)
            yield ValueTransfer(
                value=value, source=place.born, target=self.default_memory, start=start, due=due, spills=True,
                processor=self.copier(self.makers[value]),
            )  # fmt: skip
        for stay in place.stays:
            due = self.boundary_to(stay.first)
            yield ValueTransfer(
                value=value, source=self.default_memory, target=stay.memory, start=stay.start, due=due,
                processor=self.copier(stay.first),
            )  # fmt: skip

    def occupied(self, value: int, place: Place) -> Iterator[tuple[str, int, int]]:
        """Yield the memory and the steps [begin, end) of every copy of a value."""
        maker = self.makers.get(value, 0)
        begin, made = self.span(self.begun.get(value, maker), maker)
        moves = list(self.moves_of(value, place))
        wanted = [
            self.boundary_from(u + 1)
            for u in self.uses[value]
            if place.memory_at(u, self.default_memory) == self.default_memory
        ]
        if place.born == self.default_memory:
            last = max([*wanted, *(move.due for move in moves), made])
            yield self.default_memory, begin, max(last, len(self.steps) if value in self.outputs else 0)
        else:
            spill = moves[0] if moves and moves[0].spills else None
            yield place.born, begin, max(self.boundary_from(place.born_last + 1), made, spill.due if spill else 0)
            if spill:
                yield self.default_memory, spill.start, max([spill.due, *wanted, *(move.due for move in moves)])
        for stay in place.stays:
            yield stay.memory, stay.start, self.boundary_from(stay.last + 1)

    def weights_span(self, index: int, copy: WeightsCopy) -> tuple[int, int]:
        """Return the steps [begin, end) during which a copy of a step's weights takes bytes."""
        return copy.start, self.boundary_from(index + 1)

    def usage(self, chosen: Assignment) -> dict[str, list[int]]:
        """Return the bytes in every memory at every step."""
        used = {memory: [0] * len(self.steps) for memory in (self.default_memory, *self.near)}
        for value, place in enumerate(chosen.places):
            for memory, begin, end in self.occupied(value, place):
                for step in range(begin, min(end, len(self.steps))):
                    used[memory][step] += aligned(self.sizes[value])
        for index, step in enumerate(self.steps):
            for at in range(*self.span(index, index)) if step.scratch_bytes else ():
                used[chosen.scratch.get(index, self.default_memory)][at] += aligned(step.scratch_bytes)
            for memory in used:
                for at in range(*self.span(index, index)):
                    used[memory][at] -= self._shared(chosen, index, memory)
        for index, copy in chosen.weights.items():
            for step in range(*self.weights_span(index, copy)):
                used[copy.memory][step] += aligned(self.steps[index].weights_bytes)
        return used

    def _shared(self, chosen: Assignment, index: int, memory: str) -> int:
        step = self.steps[index]
        if all(chosen.places[value].born != memory for value in step.writes):
            return 0
        dying = [saved for value, saved in step.shared.items() if self.dies(value, chosen.places[value], index, memory)]
        return max(dying, default=0)

    def dies(self, value: int, place: Place, index: int, memory: str) -> bool:
        """Return True if a step is the last to read a value's copy in a memory, and no transfer still reads it."""
        return (
            place.memory_at(index, self.default_memory) == memory
            and all(end <= self.boundary_from(index + 1) for at, _, end in self.occupied(value, place) if at == memory)
            and all(move.due <= index for move in self.moves_of(value, place) if move.source == memory)
        )

    def overflow(self, chosen: Assignment) -> tuple[int, int]:
        """Return the bytes by which fast memories, and the default memory, are too small, added up over steps."""
        over = {
            memory: sum(max(0, bytes_ - self.limits[memory]) for bytes_ in used)
            for memory, used in self.usage(chosen).items()
        }
        return sum(over[memory] for memory in self.near), over[self.default_memory]

    def step_cycles(self, chosen: Assignment, index: int) -> float:
        """Return the cycles of a step, with its operands in the memories of an assignment."""
        step = self.steps[index]
        total = step.cycles
        for value in step.reads:
            total += self.read_cycles(index, chosen.places[value].memory_at(index, self.default_memory), value)
        for value in step.writes:
            total += self.write_cycles(index, chosen.places[value].born, value)
        if step.weights_read_bytes:
            copy = chosen.weights.get(index)
            total += self.weights_cycles(index, copy.memory if copy else self.stored)
        if step.scratch_access_bytes:
            total += self.scratch_cycles(index, chosen.scratch.get(index, self.default_memory))
        return total

    def predicted_cycles(self, chosen: Assignment) -> float:
        """Return the cycles of a run, including the waits for transfers."""
        return finish_cycles(self._events(chosen))

    def _events(self, chosen: Assignment) -> Iterator[Event]:
        """Yield events in the order of the generated code.

        At each step these are waits that are due, starts of transfers, waits for transfers that are due at once, and
        the step.
        """
        starts: dict[int, list[tuple[int, float, bool]]] = {}
        for value, place in enumerate(chosen.places):
            for move in self.moves_of(value, place):
                is_dma = self.time.has_dma(move.source, move.target)
                starts.setdefault(move.start, []).append((move.due, self.transfer_cycles(move), is_dma))
        for index, copy in chosen.weights.items():
            cycles = self.time.transfer_cycles(self.stored, copy.memory, self.steps[index].weights_bytes)
            due, is_dma = self.boundary_to(index), self.time.has_dma(self.stored, copy.memory)
            starts.setdefault(copy.start, []).append((due, cycles, is_dma))
        number, due = 0, dict[int, list[int]]()
        for index in range(len(self.steps)):
            yield from (Event(kind="wait", number=waited) for waited in due.pop(index, ()))
            for until, cycles, is_dma in sorted(starts.get(index, ()), key=lambda one: one[0]):
                if not is_dma:
                    yield Event(kind="run", cycles=cycles)
                    continue
                yield Event(kind="start", cycles=cycles, number=number)
                due.setdefault(max(until, index), []).append(number)
                number += 1
            yield from (Event(kind="wait", number=waited) for waited in due.pop(index, ()))
            yield Event(kind="run", cycles=self.step_cycles(chosen, index))
