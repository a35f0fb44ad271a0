"""The times of a run with given forms and schedules.

Each processor runs its schedule in order, and waits where needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem


@dataclass(frozen=True, kw_only=True)
class PieceTransfer:
    """The piece of a value that crosses. It is available at `ready`, after its transfer [begin, end) and the signal."""

    value: int
    source: int
    target: int
    begin: int
    end: int
    ready: int


@dataclass(frozen=True, kw_only=True)
class ListedTask:
    """An entry of a per-core schedule: the transfers that it begins with, then the task [begin, end)."""

    task: int
    form: int
    part: FormPart
    transfers: tuple[PieceTransfer, ...]
    begin: int
    end: int


class Clock:
    """The time of each processor while tasks are appended to schedules, as a search does at every step.

    free: when each processor is free.
    ends: (processor, end, part) of the parts of each appended task.
    arrived: when a piece (value, source, target) arrives at a processor that does not produce it.
    channels: when a DMA is free.
    """

    def __init__(self, problem: ProcessorProblem) -> None:
        self.problem = problem
        self.free = [0] * len(problem.names)
        self.ends: dict[int, list[tuple[int, int, FormPart]]] = {}
        self.arrived: dict[tuple[int, int, int], int] = {}
        self.channels: dict[tuple[int, int], int] = {}

    def copy(self) -> Clock:
        """Return a copy that advances independently."""
        other = Clock.__new__(Clock)
        other.problem, other.free, other.ends = self.problem, self.free[:], self.ends.copy()
        other.arrived, other.channels = self.arrived.copy(), self.channels.copy()
        return other

    def append(self, task: int, form: int, listed: list[list[ListedTask]] | None = None) -> int:
        """Append a task after all others on its processors, and return the end of its last part.

        listed: receives the entries of the schedules.
        """
        ended: list[tuple[int, int, FormPart]] = []
        for part in self.problem.tasks[task].forms[form].parts:
            target = part.processor
            transfers: list[PieceTransfer] | None = None if listed is None else []
            begin = self._fetch(task, target, transfers)
            end = self.free[target] = begin + part.time
            ended.append((target, end, part))
            if listed is not None and transfers is not None:
                listed[target].append(
                    ListedTask(task=task, form=form, part=part, transfers=tuple(transfers), begin=begin, end=end)
                )
        self.ends[task] = ended
        return max(end for _, end, _ in ended)

    def _fetch(self, task: int, target: int, transfers: list[PieceTransfer] | None) -> int:
        """Return when everything that a task reads is at a processor.

        Pieces are transferred in the order of availability.
        """
        begin, wanted = self.free[target], list[tuple[int, int, int, FormPart]]()
        for value, maker in self.problem.read_from[task]:
            for source, end, part in self.ends[maker]:
                if source == target:
                    continue  # it ended earlier, in this processor's own schedule
                known = self.arrived.get((value, source, target))
                if known is None:
                    wanted.append((end, value, source, part))
                elif known > begin:
                    begin = known
        if not wanted:
            return begin
        busy_until, routes = self.free[target], self.problem.routes
        if len(wanted) > 1:
            wanted.sort(key=lambda piece: (piece[0] + routes[piece[2], target].signal_time, piece[:3]))
        for end, value, source, part in wanted:
            route = routes[source, target]
            time = self.problem.transfer_time(value, part, target)
            if time == 0:
                started = ended = end
                ready = end + route.signal_time
            elif route.has_dma:
                started = max(end, self.channels.get((source, target), 0))
                ended = self.channels[source, target] = started + time
                ready = ended + route.signal_time
            else:
                started = max(busy_until, end + route.signal_time)
                busy_until = ready = ended = started + time
            self.arrived[value, source, target] = ready
            begin = max(begin, ready)
            if transfers is not None:
                transfers.append(
                    PieceTransfer(value=value, source=source, target=target, begin=started, end=ended, ready=ready)
                )
        return begin


def makespan_of(problem: ProcessorProblem, forms: Sequence[int], sequence: Iterable[int]) -> tuple[int, int]:
    """Return the makespan of tasks appended in a sequence, and the sum of the times at which processors are free."""
    clock = Clock(problem)
    for task in sequence:
        clock.append(task, forms[task])
    return max(clock.free, default=0), sum(clock.free)


def listed_tasks(
    problem: ProcessorProblem, forms: Sequence[int], sequence: Iterable[int]
) -> tuple[tuple[ListedTask, ...], ...]:
    """Return the schedule of each processor, with times."""
    clock, listed = Clock(problem), list[list[ListedTask]]()
    listed.extend([] for _ in problem.names)
    for task in sequence:
        clock.append(task, forms[task], listed)
    return tuple(map(tuple, listed))
