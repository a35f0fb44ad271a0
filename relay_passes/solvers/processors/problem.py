"""Sharing tasks among processors, as numbers: forms that a task may run in, values between tasks, routes of values.

All numbers are integers of one clock and one unit of energy (nanoseconds and picojoules, say): sums are exact, and the
same problem has the same answer everywhere. Tasks stand in an order that works. What only one processor may run, such
as making the inputs that a caller brings, is a task with forms on that one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

WHOLE = 1000
"""Shares of a task's work and of its values are thousandths."""


@dataclass(frozen=True, kw_only=True)
class FormPart:
    """A task's work on one processor: its time; the share of the task's values that it makes, in thousandths; its
    energy, by default the processor's power for that time."""

    processor: int
    time: int
    share: int = WHOLE
    energy: int | None = None


@dataclass(frozen=True, kw_only=True)
class TaskForm:
    """A way to run a task: whole on one processor, or its rows or channels in parts on several at once.

    Every part reads all that the task reads, and begins when it can, not when the others do.
    """

    parts: tuple[FormPart, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """Forms of an operator, or of a group; a processor that cannot run it is in none. weights_bytes: for grouping."""

    forms: tuple[TaskForm, ...]
    weights_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class TaskValue:
    """Bytes that a task makes and others read; on another processor they cross once, whatever the number of readers."""

    maker: int
    readers: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class Route:
    """The way of a value from one processor to another; between those that share memory, a signal alone.

    signal_time: from the maker's end, or the transfer's, until the reader knows. transfer_time and
    time_per_byte: of the transfer; the processor that reads makes it, unless the route has a DMA: then it takes no
    processor's time, one value after the other, in the order in which the reader wants them. energy_per_byte: beside
    the power of a processor that transfers.
    """

    signal_time: int = 0
    transfer_time: int = 0
    time_per_byte: float = 0.0
    energy_per_byte: float = 0.0
    has_dma: bool = False

    def time_of(self, size_bytes: int) -> int:
        """Time of a transfer, without the signal."""
        return self.transfer_time + ceil(self.time_per_byte * size_bytes)


@dataclass(frozen=True, kw_only=True)
class ProcessorProblem:
    """names, powers: of processors; energy per unit of time while one is busy. routes: by (source, target) processor,
    for every pair that values may cross between."""

    names: tuple[str, ...]
    powers: tuple[int, ...]
    tasks: tuple[Task, ...]
    values: tuple[TaskValue, ...]
    routes: Mapping[tuple[int, int], Route]

    @cached_property
    def read_values(self) -> tuple[tuple[int, ...], ...]:
        """Values that each task reads, each once."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for number, value in enumerate(self.values):
            for reader in dict.fromkeys(value.readers):
                found[reader].append(number)
        return tuple(map(tuple, found))

    @cached_property
    def read_from(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Values that each task reads, with their makers."""
        return tuple(tuple((number, self.values[number].maker) for number in read) for read in self.read_values)

    @cached_property
    def makers(self) -> tuple[tuple[int, ...], ...]:
        """Tasks whose values each task reads."""
        return tuple(tuple(dict.fromkeys(self.values[number].maker for number in read)) for read in self.read_values)

    @cached_property
    def followers(self) -> tuple[tuple[int, ...], ...]:
        """Tasks that read values of each task."""
        found: list[list[int]] = [[] for _ in self.tasks]
        for task, makers in enumerate(self.makers):
            for maker in makers:
                found[maker].append(task)
        return tuple(map(tuple, found))

    def energy_of(self, part: FormPart) -> int:
        """Energy of a part of a task."""
        return part.time * self.powers[part.processor] if part.energy is None else part.energy

    def piece_bytes(self, value: int, share: int) -> int:
        """Bytes of the piece of a value that one part makes."""
        return -(-self.values[value].size_bytes * share // WHOLE)

    def transfer_time(self, value: int, part: FormPart, target: int) -> int:
        """Time of the transfer of the piece of a value that a part makes."""
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
        """Energy of that transfer, with that of the processor that makes it."""
        route, bytes_ = self.routes[part.processor, target], self.piece_bytes(value, part.share)
        busy = 0 if route.has_dma else route.time_of(bytes_)
        return busy * self.powers[target] + ceil(route.energy_per_byte * bytes_)

    def whole_form(self, task: int, processor: int) -> int | None:
        """Number of the form that runs a task whole on a processor, the fastest; None if it cannot."""
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
        """Crossings (value, the part that makes the piece, target) of chosen forms, each once."""
        chosen = [task.forms[form].parts for task, form in zip(self.tasks, forms, strict=True)]
        for number, value in enumerate(self.values):
            targets = dict.fromkeys(part.processor for reader in value.readers for part in chosen[reader])
            for part in chosen[value.maker]:
                yield from ((number, part, target) for target in targets if target != part.processor)
