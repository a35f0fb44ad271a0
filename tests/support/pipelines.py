"""Random pipelines, and a run of them on the bytes of their plans, processors as fast and as slow as chance has it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.arena.plan import plan_memory
from codegen_c.program.parallel import Await, Notify, ParallelProgram
from codegen_c.program.phases import check_stages, shared_by_stages, stage_order, with_copies, with_phases
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import Transfer, Wait, reads, writes
from tests.support.interleavings import Deadlock, Machine
from tests.support.parallel_programs import PROCESSORS, random_program
from tvm_ext.core.errors import PlanRejected

Array = np.ndarray


def in_stages(
    program: Program, lists: Mapping[str, Sequence[str]], *, held: Sequence[str] = (), apart: Sequence[str] = ()
) -> tuple[ParallelProgram, MemoryPlan]:
    """The program as a pipeline, and its memory. apart: tensors that are left with one place."""
    parallel = share_steps(program, lists)
    check_stages(parallel)
    shared = [name for name in shared_by_stages(parallel, held) if name not in apart]
    copied, copies = with_copies(parallel.program, shared, len(lists))
    phased = [name for names in copies.values() for name in names]
    planned, plan = plan_memory(
        copied, activations="ram", held_by_caller=held, order=stage_order(parallel), phased=phased
    )
    return with_phases(replace(parallel, program=planned), copies, len(lists)), plan


def random_stages(program: Program, seed: int, count: int) -> dict[str, list[str]]:
    """Lists of the program's steps; values go from one stage to a later one, in an order of stages by chance."""
    rng = random.Random(seed)
    order = rng.sample(PROCESSORS[:count], count)
    flights = rng.randrange(count)
    lists: dict[str, list[str]] = {name: [] for name in PROCESSORS[:count]}
    least: dict[str, int] = {}
    for number, step in enumerate(program.steps):
        touched = [part.tensor if (part := program.tensors[n].part) else n for n in (*reads(step), *writes(step))]
        first = max((least.get(name, 0) for name in touched), default=0)
        drawn = count * number // len(program.steps) + rng.choice([0, 0, 0, 1])
        goes_on = isinstance(step, Wait) or (isinstance(step, Transfer) and step.number is not None)
        stage = max(first, flights if goes_on else min(count - 1, drawn))
        lists[order[stage]].append(step.name)
        for name in touched:
            least[name] = stage
    return lists


def random_pipeline(seed: int) -> tuple[Program, dict[str, list[str]]]:
    """A program and stages that a pipeline can have."""
    for attempt in range(100):
        rng = random.Random(1000 * seed + attempt)
        program = random_program(rng.randrange(1 << 20), rng.randint(3, 20))
        lists = random_stages(program, rng.randrange(1 << 20), rng.choice([2, 2, 3]))
        try:
            check_stages(share_steps(program, lists))
        except PlanRejected:  # transfers that go on in two lists
            continue
        return program, lists
    raise AssertionError("no pipeline in 100 attempts")


def run_pipeline(
    parallel: ParallelProgram, plan: MemoryPlan, runs: Sequence[Mapping[str, Array]], seed: int
) -> list[dict[str, Array]]:
    """Outputs of successive inputs, put and taken in an order that chance draws."""
    return _Pipeline(parallel, plan, runs, seed).outputs()


class _Pipeline(Machine):
    def __init__(
        self, parallel: ParallelProgram, plan: MemoryPlan, runs: Sequence[Mapping[str, Array]], seed: int
    ) -> None:
        super().__init__(parallel, plan, runs, seed)
        self.by_phase = [{step.name: self._poisoned(step) for step in steps} for steps in parallel.phases]
        self.order = random_order(self.rng, len(runs), parallel.in_flight)
        self.letter, self.done, self.unread, self.early = 0, {"p": 0, "t": 0}, list[int](), -1

    def outputs(self) -> list[dict[str, Array]]:
        while self.letter < len(self.order):
            able = [number for number in range(len(self.cores)) if self._is_able(number)]
            if not able:
                raise Deadlock([(core.run, core.position) for core in self.cores])
            self._advance(self.rng.choice(able))
        self._read()
        return self.results

    def _entries(self, number: int) -> tuple[object, ...]:
        entries, at = self.parallel.lists[number].entries, self.parallel.take_begins
        if number:
            return entries
        return entries[:at] if self.order[self.letter] == "p" else entries[at:]

    def _is_able(self, number: int) -> bool:
        core = self.cores[number]
        if number and core.run == len(self.runs):
            return False
        if number == 0 and self.letter == len(self.order):
            return False
        entries = self._entries(number)
        if core.position < len(entries) and isinstance(entry := entries[core.position], Await):
            return self.sent[entry.source, number] - self.awaited[entry.source, number] > 0
        return bool(entries) or number == 0

    def _advance(self, number: int) -> None:
        core, entries = self.cores[number], self._entries(number)
        turn = core.run if number else self.done[self.order[self.letter]]
        if number == 0 and self.order[self.letter] == "p" and core.position == 0 and core.begun is None:
            self._read()
            self._fill(turn, early=False)
        phase = turn % self.parallel.in_flight
        if core.position < len(entries):
            entry = entries[core.position]
            self.poisoned = self.by_phase[phase]
            if isinstance(entry, Await):
                self.awaited[entry.source, number] += 1
            elif isinstance(entry, Notify):
                self.sent[number, entry.target] += 1
            elif not self._finish(core, self.parallel.phases[phase][entry.index]):
                return
            core.position += 1
        if core.position < len(entries):
            return
        core.position = 0
        if number:
            core.run += 1
            return
        letter = self.order[self.letter]
        self.letter, self.done[letter] = self.letter + 1, turn + 1
        if letter == "t":
            self._read()
            self.unread.append(turn)
        elif turn + 1 < len(self.runs) and self.rng.random() < 0.5:
            self._fill(turn + 1, early=True)

    def _fill(self, turn: int, *, early: bool) -> None:
        """Inputs of which there is one place may be written as soon as the one before was put."""
        for name, array in self.runs[turn].items():
            if (name not in self.parallel.copies) if early else (self.early != turn or name in self.parallel.copies):
                self._put(self._own(name, turn), array)
        if early:
            self.early = turn

    def _read(self) -> None:
        """Outputs are there until the next put."""
        for turn in self.unread:
            self.results.append({name: self._get(self._own(name, turn)) for name in self.program.outputs})
        self.unread.clear()

    def _own(self, name: str, turn: int) -> str:
        copies = self.parallel.copies.get(name)
        return copies[turn % self.parallel.in_flight] if copies else name


def random_order(rng: random.Random, count: int, in_flight: int) -> str:
    """Puts and takes of so many inputs, a letter each, as a caller may have them."""
    order, put, taken = "", 0, 0
    while taken < count:
        can_put = put < count and put - taken < in_flight
        if can_put and (put == taken or rng.random() < 0.7):
            order, put = order + "p", put + 1
        else:
            order, taken = order + "t", taken + 1
    return order
