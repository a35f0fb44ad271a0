"""The sharing of tasks among processors as numbers: forms of tasks, values between tasks, and routes of values.

All numbers are integers of a common clock and a common unit of energy (for example nanoseconds and picojoules), so that
sums are exact and the same problem has the same result everywhere. Tasks stand in a valid order. Work that only one
processor may run, such as providing the inputs of a caller, is a task whose forms are all on that processor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

WHOLE = 1000
"""Shares of a task's work and of its values are in thousandths."""


@dataclass(frozen=True, kw_only=True)
class FormPart:
    """A task's work on one processor.

    time: of the work.
    share: of the task's values that the part produces, in thousandths.
    energy: by default the processor's power during that time.
    """

    processor: int
    time: int
    share: int = WHOLE
    energy: int | None = None


@dataclass(frozen=True, kw_only=True)
class TaskForm:
    """A form of running a task: whole on one processor, or its rows or channels in parts on several processors at once.

    Every part reads everything that the task reads, and starts as soon as it can, independently of the other parts.
    """

    parts: tuple[FormPart, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """The forms of an operator, or of a group. A processor that cannot run the task appears in none.

    weights_bytes: for grouping by volume.
    """

    forms: tuple[TaskForm, ...]
    weights_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskValue:
    """Bytes that a task produces and others read.

    They cross to another processor once, whatever the number of readers there.
    """

    maker: int
    readers: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Route:
    """The route of a value from one processor to another. Between processors that share memory it is only a signal.

    signal_time: from the end of the producer, or of the transfer, until the reader knows.
    transfer_time, time_per_byte: of the transfer. The reading processor copies, unless the route has a DMA. A DMA takes
    no processor's time, and transfers one value after another, in the order in which the reader needs them.
    energy_per_byte: besides the power of a processor that copies.
    """

    signal_time: int = 0
    transfer_time: int = 0
    time_per_byte: float = 0.0
    energy_per_byte: float = 0.0
    has_dma: bool = False

    def time_of(self, size_bytes: int) -> int:
        """Return the time of a transfer, without the signal."""
        return self.transfer_time + ceil(self.time_per_byte * size_bytes)


@dataclass(frozen=True, kw_only=True)
class ProcessorProblem:
    """A problem of sharing tasks among processors.

    names, powers: of processors; a power is the energy per unit of time while the processor is busy.
    routes: by (source, target) processor, for every pair between which values may cross.
    """

    names: tuple[str, ...]
    powers: tuple[int, ...]
    tasks: tuple[Task, ...]
    values: tuple[TaskValue, ...]
    routes: Mapping[tuple[int, int], Route]

    @cached_property
    def read_values(self) -> tuple[tuple[int, ...], ...]:
        """The values that each task reads, each listed once."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for number, value in enumerate(self.values):
            for reader in dict.fromkeys(value.readers):
                found[reader].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def read_from(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The values that each task reads, with their producers."""
        return tuple(tuple((number, self.values[number].maker) for number in read) for read in self.read_values)

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """The tasks whose values each task reads."""
        return tuple(tuple(dict.fromkeys(self.values[number].maker for number in read)) for read in self.read_values)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """The tasks that read values of each task."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for task, makers in enumerate(self.makers):
            for maker in makers:
                found[maker].append(task)
        return tuple(map(tuple, found))

    def energy_of(self, part: FormPart) -> int:
        """Return the energy of a part of a task."""
        return part.time * self.powers[part.processor] if part.energy is None else part.energy

    def piece_bytes(self, value: int, share: int) -> int:
        """Return the bytes of the piece of a value that a part produces."""
        return -(-self.values[value].size_bytes * share // WHOLE)

    def transfer_time(self, value: int, part: FormPart, target: int) -> int:
        """Return the time to transfer the piece of a value that a part produces."""
        return self._transfer_times[value, part.processor, target, part.share]

    @cached_property
    def _transfer_times(self) -> dict[tuple[int, int, int, int], int]:
        return {
            (number, source, target, part.share): route.time_of(self.piece_bytes(number, part.share))
            for number, value in enumerate(self.values)
            for form in self.tasks[value.maker].forms
            for part in form.parts
            for (source, target), route in self.routes.items()
            if source == part.processor
        }

    def transfer_energy(self, value: int, part: FormPart, target: int) -> int:
        """Return the energy of that transfer, including the processor that copies."""
        route, bytes_ = self.routes[part.processor, target], self.piece_bytes(value, part.share)
        busy = 0 if route.has_dma else route.time_of(bytes_)
        return busy * self.powers[target] + ceil(route.energy_per_byte * bytes_)

    def whole_form(self, task: int, processor: int) -> int | None:
        """Return the number of the fastest form that runs a task whole on a processor, or None."""
        return self._whole_forms[task].get(processor)

    @cached_property
    def _whole_forms(self) -> tuple[dict[int, int], ...]:
        found: list[dict[int, int]] = []
        for task in self.tasks:
            whole = [(form.parts[0].time, i) for i, form in enumerate(task.forms) if len(form.parts) == 1]
            slowest_first = sorted(whole, reverse=True)
            found.append({task.forms[i].parts[0].processor: i for _, i in slowest_first})
        return tuple(found)

    def crossings(self, forms: tuple[int, ...]) -> Iterable[tuple[int, FormPart, int]]:
        """Yield the crossings (value, the part that produces the piece, target) of chosen forms, each once."""
        chosen = [task.forms[form].parts for task, form in zip(self.tasks, forms, strict=True)]
        for number, value in enumerate(self.values):
            targets = dict.fromkeys(part.processor for reader in value.readers for part in chosen[reader])
            for part in chosen[value.maker]:
                yield from ((number, part, target) for target in targets if target != part.processor)
