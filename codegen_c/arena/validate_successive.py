"""Check a pipeline over successive inputs, for every order of puts and takes.

The caller's puts and takes are two threads here, because the caller may do either first. A take comes after the put of
its input, and a put comes after the take that frees its buffers; no other order is known. Once an input was taken, all
its work is done, so only inputs fewer than `in_flight` apart can conflict. A replay of twice as many inputs therefore
shows every pair in every phase. Signals of a channel are matched by their count, as in the C code, not by their names.
A state has the same value as if inputs came one at a time, and its ring advances in the stage that uses it.

No schedule waits forever: each run by itself ends, which `validate_order` proves. Further inputs only send further
signals, and each channel is sent from one thread, so signals are not confused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.touched_bytes import Touch, located, touches, whole_of
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import Await, Entry, Notify, ParallelProgram, RunStep
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop, RowSteps, Step, WriteIndex, calls, reads, writes
from tvm_ext.core.errors import PlanRejected

Clock = tuple[int, ...]


def validate_successive(parallel: ParallelProgram, plan: MemoryPlan) -> None:
    """Raise PlanRejected with two steps, their inputs and processors, and the bytes on which they conflict.

    Proves in addition to `validate_order`: each read finds the value of its own input, and no stage overwrites bytes
    that another stage still uses, whatever inputs the stages work on. A program without phases needs no check.
    """
    if not parallel.phases:
        return
    check_phases(parallel)
    for number, steps in enumerate(parallel.phases[1:], start=1):
        names = {name: copies[number] for name, copies in parallel.copies.items()}
        program = replace(
            parallel.program, steps=steps,
            inputs=tuple(names.get(name, name) for name in parallel.program.inputs),
            outputs=tuple(names.get(name, name) for name in parallel.program.outputs),
        )  # fmt: skip
        validate_order(replace(parallel, program=program, phases=(), copies={}), plan)
    check_channels(parallel)
    check_transfers(parallel)
    _Play(parallel, plan).all()


@dataclass(frozen=True, kw_only=True)
class _Event:
    """A touch of bytes. tick: number of the thread's entries that have ended after it."""

    thread: int
    tick: int
    touch: Touch
    title: str


@dataclass(kw_only=True)
class _Bytes:
    """Bytes of a memory. written, read: per thread, the tick after its last touch. owners: the value in each byte."""

    written: np.ndarray
    read: np.ndarray
    owners: np.ndarray
    events: dict[tuple[int, int], list[_Event]] = field(default_factory=dict[tuple[int, int], list[_Event]])


@dataclass(kw_only=True)
class _Thread:
    """A thread: its entries for one input, and its progress. seen: per thread, the ticks that have surely ended."""

    name: str
    entries: tuple[Entry, ...]
    seen: list[int]
    turn: int = 0
    position: int = 0


class _Play:
    """A replay of the pipeline over some inputs. Each thread advances as far as it can."""

    def __init__(self, parallel: ParallelProgram, plan: MemoryPlan) -> None:
        self.parallel, self.plan, self.program = parallel, plan, parallel.program
        self.count, self.turns = parallel.in_flight, 2 * parallel.in_flight
        at, (own, *others) = parallel.take_begins, parallel.lists
        listed = [(f"{own.processor} (put)", own.entries[:at]), *((one.processor, one.entries) for one in others)]
        listed += [(f"{own.processor} (take)", own.entries[at:]), ("the caller, who reads outputs", ())]
        self.take, self.reader = len(listed) - 2, len(listed) - 1
        self.threads = [_Thread(name=name, entries=entries, seen=[0] * len(listed)) for name, entries in listed]
        self.ends: dict[tuple[int, int], Clock] = {}
        self.sent: dict[tuple[int, int], list[Clock]] = {}
        self.awaited: dict[tuple[int, int], int] = {}
        bases = {copy: name for name, copies in parallel.copies.items() for copy in copies}
        numbers = {name: number for number, name in enumerate(self.program.tensors)}
        self.numbers = {name: numbers[bases.get(name, name)] for name in numbers}
        self.memories: dict[str, _Bytes] = {}
        self.states = StatesInTurn(self.program, plan, self.turns)

    def all(self) -> None:
        """Replay all inputs. Raises PlanRejected."""
        # A list, not a generator: every thread advances in each round.
        while any([self._advance(number) for number in range(self.reader)]):
            pass
        assert all(thread.turn == self.turns for thread in self.threads), "each run ends, so all of them do"

    def _advance(self, number: int) -> bool:
        """Advance a thread as far as possible. Return False if it cannot advance."""
        thread, moved = self.threads[number], False
        while thread.turn < self.turns:
            if thread.position == 0 and not self._begin(number):
                return moved
            while thread.position < len(thread.entries):
                if not self._enter(number, thread.entries[thread.position]):
                    return moved
                thread.position, moved = thread.position + 1, True
            self._end(number)
            moved = True
        return moved

    def _begin(self, number: int) -> bool:
        """Begin a thread's next input. Return False if the thread must wait for free buffers or for the input."""
        thread = self.threads[number]
        if number == 0:
            # A put waits for the take that frees its buffers. Inputs with a single buffer are written before that wait,
            # the earliest time at which a caller may write them.
            freed_by = (self.reader, thread.turn - self.count)
            if freed_by[1] >= 0 and freed_by not in self.ends:
                return False
            self._fill(early=True)
            if freed_by in self.ends:
                self._learn(thread, self.ends[freed_by])
            self._fill(early=False)
        if number == self.take:
            if (0, thread.turn) not in self.ends:
                return False
            self._learn(thread, self.ends[0, thread.turn])
        return True

    def _enter(self, number: int, entry: Entry) -> bool:
        """Run an entry. Return False if it must wait."""
        thread = self.threads[number]
        if isinstance(entry, Await):
            channel = (entry.source, number % self.take)
            done = self.awaited.get(channel, 0)
            if len(self.sent.get(channel, ())) <= done:
                return False
            self.awaited[channel] = done + 1
            self._learn(thread, self.sent[channel][done])
        thread.seen[number] += 1
        if isinstance(entry, Notify):
            self.sent.setdefault((number % self.take, entry.target), []).append(tuple(thread.seen))
        if isinstance(entry, RunStep):
            self._run(number, self.parallel.phases[thread.turn % self.count][entry.index], entry.index)
        return True

    def _end(self, number: int) -> None:
        """End a thread's part of an input. After a take, the caller reads the outputs before the next put."""
        thread = self.threads[number]
        if number == self.take:
            reader = self.threads[self.reader]
            self._learn(reader, tuple(thread.seen))
            for name in self.program.outputs:
                reader.seen[self.reader] += 1
                touch = whole_of(self.program, self._own(name, thread.turn), writes=False)
                self._touch(self.reader, touch, f"the caller behind take {thread.turn}")
            self._end(self.reader)
        self.ends[number, thread.turn] = tuple(thread.seen)
        thread.turn, thread.position = thread.turn + 1, 0

    def _fill(self, *, early: bool) -> None:
        """Let the caller write the inputs before it puts them, as early as it may."""
        thread = self.threads[0]
        for name in self.program.inputs:
            if (name in self.plan.placements and name not in self.parallel.copies) == early:
                thread.seen[0] += 1
                touch = whole_of(self.program, self._own(name, thread.turn), writes=True)
                self._touch(0, touch, f"the caller before put {thread.turn}")

    def _run(self, number: int, step: Step, index: int) -> None:
        thread = self.threads[number]
        title = f"step {index} ({step.name}) of {thread.name} at input {thread.turn}"
        touched = [one for one in touches(self.program, self.plan, step) if one.whole not in self.states.kept]
        inside = {touch.whole for touch in touched if touch.writes and isinstance(step, Loop | RowSteps)}
        for touch in touched:
            if not touch.writes:
                self._touch(number, touch, title, knows_value=touch.whole not in inside)
        for touch in touched:
            if touch.writes:
                self._touch(number, touch, title)
        self._run_states(number, step, index, title)

    def _run_states(self, number: int, step: Step, index: int, title: str) -> None:
        """Replay the touches of states. After the last touch of a state, its ring advances."""
        turn, states = self.threads[number].turn, self.states
        found = iter(states.found[turn, index])
        touched = states.touched(step)
        for touch in touched:
            if not touch.writes:
                self._touch(number, touch, title, value=next(found))
        for touch in touched:
            if touch.writes:
                self._touch(number, touch, title, value=states.number(turn, index))
        for name in (name for name, at in self.parallel.advances.items() if at == index):
            turned = whole_of(self.program, name, writes=True)
            self._touch(number, turned, title, value=states.number(turn, len(self.program.steps)))

    def _touch(
        self,
        number: int,
        touch: Touch,
        title: str,
        *,
        knows_value: bool = True,
        value: int | np.ndarray | None = None,
    ) -> None:
        """Raise PlanRejected if another thread may touch the bytes at the same time, or if they hold another value."""
        thread = self.threads[number]
        name, moved = located(self.plan, touch)
        if name.startswith("tensor"):  # the caller has a separate tensor for each input in flight
            name = f"{name} of input {thread.turn % self.count}"
        held = self.memories.setdefault(name, self._untouched(touch))
        for other, last in self._conflicts(held, moved):
            if other != number and last > thread.seen[other]:
                event = next(e for e in held.events[other, last] if _meet(e.touch, moved))
                raise PlanRejected(
                    f"{title} {'writes' if touch.writes else 'reads'} {touch.tensor} in {name} while {event.title} "
                    f"may still {'write' if event.touch.writes else 'read'} {event.touch.tensor} there: nothing orders "
                    "the two."
                )
        value = self._value(touch, thread.turn) if value is None else value
        if not touch.writes and knows_value and (wrong := np.flatnonzero(held.owners[moved.places] != value)).size:
            raise PlanRejected(
                f"{title} reads {wrong.size} B of {touch.tensor} that do not hold its value for input {thread.turn}."
            )
        tick = thread.seen[number]
        (held.written if touch.writes else held.read)[number, moved.places] = tick
        if touch.writes:
            held.owners[moved.places] = value
        held.events.setdefault((number, tick), []).append(
            _Event(thread=number, tick=tick, touch=moved, title=title)
        )  # fmt: skip

    def _conflicts(self, held: _Bytes, touch: Touch) -> Iterator[tuple[int, int]]:
        """Yield each thread that has a conflicting touch of the same bytes, with the last tick after it."""
        for tables in (held.written, held.read) if touch.writes else (held.written,):
            last = tables[:, touch.places]
            if last.shape[1]:
                yield from enumerate(map(int, last.max(axis=1)))

    def _untouched(self, touch: Touch) -> _Bytes:
        place = self.plan.placements.get(touch.whole)
        inside = [one for one in self.plan.placements.values() if place and one.memory == place.memory]
        size = max((one.offset + one.num_bytes for one in inside), default=0)
        size = size if place else self.program.tensors[touch.whole].num_bytes
        tables = [np.zeros((len(self.threads), size), np.int32) for _ in range(2)]
        return _Bytes(written=tables[0], read=tables[1], owners=np.full(size, -1, np.int64))

    def _value(self, touch: Touch, turn: int) -> int:
        """Return the number of a tensor's value for an input. Scratch has the number -2, which is never checked."""
        number = self.numbers.get(touch.whole)
        return -2 if number is None else number * self.turns + turn

    def _own(self, name: str, turn: int) -> str:
        """Return the name of a tensor's buffer for an input."""
        return self.parallel.copies[name][turn % self.count] if name in self.parallel.copies else name

    def _learn(self, thread: _Thread, clock: Clock) -> None:
        thread.seen = [max(pair) for pair in zip(thread.seen, clock, strict=True)]


def _meet(one: Touch, other: Touch) -> bool:
    """Return True if two touches share a byte."""
    if isinstance(one.places, slice) and isinstance(other.places, slice):
        return one.places.start < other.places.stop and other.places.start < one.places.stop
    return any(one.holds(place) for place in np.r_[other.places].tolist())


class StatesInTurn:
    """Values of states in successive runs of a program. turns: number of runs."""

    def __init__(self, program: Program, plan: MemoryPlan, turns: int) -> None:
        self.program, self.plan, self.turns = program, plan, turns
        self.kept = frozenset(program.kept)

    @cached_property
    def found(self) -> Mapping[tuple[int, int], list[np.ndarray]]:
        """Values that a step finds in the states it reads, by run and step index, in the order of its touches."""
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
                if ring and ring.write_index:
                    owners[ring.write_index][:] = self.number(turn, len(self.program.steps))
        return found

    def number(self, turn: int, step: int) -> int:
        """Return the number of the value that a step writes in a run. They are below all other numbers.

        A step index after the last step stands for the advance of the rings at the end of a run.
        """
        return -3 - turn * (len(self.program.steps) + 1) - step

    def touched(self, step: Step) -> list[Touch]:
        """Return the bytes of states that a step touches, without reads that follow the step's own writes."""
        found = [touch for touch in touches(self.program, self.plan, step) if touch.whole in self.kept]
        inside = {touch.whole for touch in found if touch.writes and isinstance(step, Loop | RowSteps)}
        turned = [
            whole_of(self.program, ring.tensor, writes=False)
            for call in calls(step)
            if isinstance(call, KernelCall)
            for ring in call.rings
            if isinstance(ring, WriteIndex)
        ]
        return [*(touch for touch in found if touch.writes or touch.whole not in inside), *turned]


def check_phases(parallel: ParallelProgram) -> None:
    """Raise PlanRejected if a phase does not run the program's steps on its own tensors."""
    program, count = parallel.program, len(parallel.phases)
    owners: dict[str, str] = {}
    for name, copies in parallel.copies.items():
        if len(copies) != count or copies[0] != name:
            raise PlanRejected(f"{program.name}: {name} has copies {', '.join(copies)} for {count} inputs in flight.")
        for copy in copies:
            if owners.setdefault(copy, name) != name or (copy != name and copy in parallel.copies):
                raise PlanRejected(f"{program.name}: {copy} is a copy both of {owners[copy]} and of {name}.")
            one, other = program.tensors[copy], program.tensors[name]
            if (one.shape, one.dtype, one.memory) != (other.shape, other.dtype, other.memory):
                raise PlanRejected(f"{program.name}: {copy} and {name} differ in shape, type or memory.")
    for number, steps in enumerate(parallel.phases):
        names = {name: copies[number] for name, copies in parallel.copies.items()}
        if [step.name for step in steps] != [step.name for step in program.steps]:
            raise PlanRejected(f"{program.name}: phase {number} does not run the program's steps in their order.")
        for step, own in zip(steps, program.steps, strict=True):
            wanted = [[names.get(name, name) for name in used(own)] for used in (reads, writes)]
            if [list(reads(step)), list(writes(step))] != wanted:
                raise PlanRejected(
                    f"{program.name}: {step.name} of phase {number} touches "
                    f"{', '.join((*reads(step), *writes(step)))}, not its own {', '.join(wanted[0] + wanted[1])}."
                )


def check_transfers(parallel: ParallelProgram) -> None:
    """Raise PlanRejected if both puts and takes have asynchronous transfers: transfers end in order of number."""
    at, own = parallel.take_begins, parallel.lists[0]
    found = [
        own.entries.index(entry) >= at
        for entry in own.entries
        if isinstance(entry, RunStep)
        for call in calls(parallel.program.steps[entry.index])
        if getattr(call, "number", None) is not None or hasattr(call, "transfers")
    ]
    if len(set(found)) > 1:
        raise PlanRejected(
            f"{own.processor} has asynchronous transfers both when an input is put and when an output is taken: "
            "transfers of the next input may come between them."
        )


def check_channels(parallel: ParallelProgram) -> None:
    """Raise PlanRejected if both puts and takes signal on one channel: the next put may come before the take."""
    at, own = parallel.take_begins, parallel.lists[0]
    put = {entry.target for entry in own.entries[:at] if isinstance(entry, Notify)}
    take = {entry.target for entry in own.entries[at:] if isinstance(entry, Notify)}
    for target in sorted(put & take):
        raise PlanRejected(
            f"{own.processor} signals {parallel.lists[target].processor} both when an input is put and when an output "
            "is taken: signals of the next input may come between them."
        )
