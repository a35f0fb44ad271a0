"""Runs a parallel program on the bytes of its plan, processors as fast and as slow as chance will have them.

A step begins, and ends some time later. In between its outputs and scratch hold anything, and it reads its inputs at
either end; so a step that is not in order with it leaves wrong bytes behind. Signals are the counters that
`codegen_c.program.parallel` describes, never reset.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan, scratch_name
from codegen_c.program.parallel import Await, Notify, ParallelProgram
from codegen_c.program.reference import run_step
from codegen_c.program.steps import KernelCall, Loop, Step, Transfer, Wait, calls, reads, writes

Array = np.ndarray


@dataclass(kw_only=True)
class Core:
    """One processor: where it stands in its list, and in which run."""

    run: int = 0
    position: int = 0
    begun: dict[str, Array] | None = None
    flights: dict[int, dict[str, Array]] = field(default_factory=dict[int, dict[str, Array]])


class Deadlock(Exception):
    """All processors wait."""


def run_interleaved(
    parallel: ParallelProgram, plan: MemoryPlan, runs: Sequence[Mapping[str, Array]], seed: int
) -> list[dict[str, Array]]:
    """Outputs of runs, one after the other, of a program without states. runs: inputs of each."""
    return Machine(parallel, plan, runs, seed).outputs()


class Machine:
    def __init__(
        self, parallel: ParallelProgram, plan: MemoryPlan, runs: Sequence[Mapping[str, Array]], seed: int
    ) -> None:
        self.parallel, self.program, self.plan, self.runs = parallel, parallel.program, plan, runs
        self.rng, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.memories = {arena.memory: self._any(arena.num_bytes) for arena in plan.arenas}
        self.held = {
            name: self._any(tensor.num_bytes)
            for name, tensor in self.program.tensors.items()
            if name not in plan.placements and not tensor.part
        }
        self.places = {name: self._places(name) for name in self.program.tensors}
        self.poisoned = {step.name: self._poisoned(step) for step in self.program.steps}
        self.cores = [Core() for _ in parallel.lists]
        self.sent = dict.fromkeys(parallel.channels(), 0)
        self.awaited = dict.fromkeys(parallel.channels(), 0)
        self.results: list[dict[str, Array]] = []

    def outputs(self) -> list[dict[str, Array]]:
        speeds = [self.rng.choice([1, 1, 5, 25]) for _ in self.cores]
        turn = 0
        while len(self.results) < len(self.runs):
            able = [number for number in range(len(self.cores)) if self._is_able(number)]
            if not able:
                raise Deadlock([(core.run, core.position) for core in self.cores])
            turn += 1
            if turn % 16 == 0:
                speeds = [self.rng.choice([1, 1, 5, 25]) for _ in self.cores]
            self._advance(self.rng.choices(able, [speeds[number] for number in able])[0])
        return self.results

    def _is_able(self, number: int) -> bool:
        core, entries = self.cores[number], self.parallel.lists[number].entries
        if core.run == len(self.runs):
            return False
        if core.position < len(entries) and isinstance(entry := entries[core.position], Await):
            return self.sent[entry.source, number] - self.awaited[entry.source, number] > 0
        return bool(entries) or number == 0

    def _advance(self, number: int) -> None:
        core, entries = self.cores[number], self.parallel.lists[number].entries
        if core.position == 0 and number == 0 and core.begun is None:
            for name, array in self.runs[core.run].items():
                self._put(name, array)
        if core.position < len(entries):
            entry = entries[core.position]
            if isinstance(entry, Await):
                self.awaited[entry.source, number] += 1
            elif isinstance(entry, Notify):
                self.sent[number, entry.target] += 1
            elif not self._finish(core, self.program.steps[entry.index]):
                return
            core.position += 1
        if core.position >= len(entries):
            if number == 0:
                self.results.append({name: self._get(name) for name in self.program.outputs})
            core.position, core.run = 0, core.run + 1

    def _finish(self, core: Core, step: Step) -> bool:
        """Begins a step, or ends one that has begun: then True."""
        if isinstance(step, Transfer) and step.number is not None:
            core.flights[step.number] = self._begun(step)
            return True
        if core.begun is None:
            core.begun = self._begun(step)
            if isinstance(step, Wait):
                for transfer in step.transfers:
                    core.begun |= core.flights.pop(transfer.number or 0)
                    self._put(transfer.target, self._either(core.begun, transfer.source))
            return False
        begun, core.begun = core.begun, None
        if not isinstance(step, Wait):
            self._end(step, begun)
        return True

    def _begun(self, step: Step) -> dict[str, Array]:
        """The bytes that a step reads, as it finds them; what it writes holds anything from now on."""
        found = {name: self._get(name) for name in reads(step)}
        for memory, places in self.poisoned[step.name]:
            memory[places] = self._any(len(places))
        if (place := self.plan.placements.get(scratch_name(step.name))) is not None:
            scratch = self.memories[place.memory][place.offset : place.offset + place.num_bytes]
            scratch[:] = self._any(place.num_bytes)
            found[place.name] = scratch.copy()
        return found

    def _poisoned(self, step: Step) -> list[tuple[Array, Array]]:
        """Bytes that a step may write at once: outputs, where they do not lie over its own inputs."""
        found: list[tuple[Array, Array]] = []
        for name in writes(step) if not isinstance(step, Wait) else ():
            memory, places = self.places[name]
            over = [own for held, own in (self.places[source] for source in reads(step)) if held is memory]
            written = self._rows(step, places)
            found.append((memory, np.setdiff1d(written, np.concatenate(over)) if over else written))
        return found

    def _end(self, step: Step, begun: Mapping[str, Array]) -> None:
        place = self.plan.placements.get(scratch_name(step.name))
        spoiled = 0
        if place is not None:
            scratch = self.memories[place.memory][place.offset : place.offset + place.num_bytes]
            spoiled = int((scratch != begun[place.name]).any())
        read = {name: self._either(begun, name) for name in reads(step)}
        written = run_step(self.program, step, read)
        for name in writes(step):
            memory, places = self.places[name]
            rows = self._rows(step, np.arange(len(places)))
            memory[places[rows]] = written[name].reshape(-1)[rows] + np.uint8(spoiled)

    def _either(self, begun: Mapping[str, Array], name: str) -> Array:
        """Each byte as it was when the step began, or as it is now."""
        now, before = self._get(name), begun[name]
        return np.where(self.noise.random(now.shape) < 0.5, now, before)

    def _rows(self, step: Step, places: Array) -> Array:
        """Those places of a tensor's bytes that a step writes."""
        call = calls(step)[0]
        if isinstance(step, Loop) or not isinstance(call, KernelCall) or call.rows is None:
            return places
        size = len(places) // call.implementation.spatial.output_rows
        return places[call.rows.begin.base * size : call.rows.end.base * size]

    def _places(self, name: str) -> tuple[Array, Array]:
        """Memory of a tensor of bytes, and the places of its elements there."""
        tensor = self.program.tensors[name]
        whole, first = (tensor.part.tensor, tensor.part.first) if tensor.part else (name, 0)
        place = self.plan.placements.get(whole)
        memory, offset = (self.held[whole], 0) if place is None else (self.memories[place.memory], place.offset)
        return memory, offset + first + tensor.element_places()

    def _get(self, name: str) -> Array:
        memory, places = self.places[name]
        return memory[places].reshape(self.program.tensors[name].shape)

    def _put(self, name: str, array: Array) -> None:
        memory, places = self.places[name]
        memory[places] = array.reshape(-1)

    def _any(self, num_bytes: int) -> Array:
        return self.noise.integers(0, 256, num_bytes, np.uint8)
