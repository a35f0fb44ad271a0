"""The fastest assignment of values, weights and scratch to two memories, as a constraint program for ortools' CP-SAT.

What may be decided is what `relay_passes.solvers.memories.search` decides, without its menus: every born-near interval,
every fetch from any step to any run of uses, every start of every copy of weights. Time is `finish_cycles`, with its
one DMA that works in order; only CALL_CYCLES and what the processor copies are left out, so that the bound found holds.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations

from ortools.sat.python import cp_model

from relay_passes.solvers.memories.assignment import Place
from relay_passes.solvers.memories.problem import AssignmentProblem
from tvm_ext.core.alignment import aligned


@dataclass(frozen=True, kw_only=True)
class Exact:
    """Predicted cycles of the best assignment found, and a bound that none goes below."""

    cycles: float
    bound: float
    proved: bool


def fastest(problem: AssignmentProblem, seconds: float) -> Exact:
    """problem: one near memory, every transfer by DMA. seconds: after which the search ends."""
    program = _Program(problem)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(program.model)
    found = solver.objective_value if status in (cp_model.OPTIMAL, cp_model.FEASIBLE) else float("inf")
    return Exact(cycles=found, bound=solver.best_objective_bound, proved=status == cp_model.OPTIMAL)


class _Program:
    def __init__(self, problem: AssignmentProblem) -> None:
        self.problem, self.model = problem, cp_model.CpModel()
        (self.near,) = problem.near
        num = len(problem.steps)
        self.cycles = [[round(step.cycles)] for step in problem.steps]
        self.used: list[list[cp_model.LinearExprT]] = [[] for _ in range(num)]
        self.transfers: dict[int, list[tuple[int, int, cp_model.IntVar]]] = defaultdict(list)
        self.born = {value: self._born(value) for value in range(len(problem.sizes))}
        self.stays = {value: self._stays(value) for value in range(len(problem.sizes))}
        for value in range(len(problem.sizes)):
            self._value(value)
        for index in range(num):
            self._weights(index)
            self._scratch(index)
            self._shared(index)
            self.model.add(sum(self.used[index]) <= problem.limits[self.near])
        self.model.minimize(self._finish())

    def _bool(self) -> cp_model.IntVar:
        return self.model.new_bool_var("")

    def _born(self, value: int) -> dict[int, cp_model.IntVar]:
        """Last use served from where it is made -> whether it is made near and stays until then."""
        maker = self.problem.makers.get(value)
        if maker is None or value in self.problem.outputs or not self.problem.steps[maker].movable:
            return {}
        found = {use: self._bool() for use in self.problem.uses[value]}
        self.model.add_at_most_one(found.values())
        return found

    def _stays(self, value: int) -> dict[tuple[int, int, int], cp_model.IntVar]:
        """(start, first use, last use) -> whether a copy is fetched for these."""
        problem, uses = self.problem, self.problem.uses[value]
        maker = problem.makers.get(value)
        ready = 0 if maker is None else problem.boundary_from(maker + 1)
        return {
            (start, first, last): self._bool()
            for first in uses
            for last in uses
            if last >= first
            for start in range(ready, problem.boundary_to(first) + 1)
            if not problem.steps[start].together
        }

    def _value(self, value: int) -> None:
        """Reads and writes, bytes, transfers, and which stays go together."""
        problem, size = self.problem, self.problem.sizes[value]
        born, stays, uses = self.born[value], self.stays[value], self.problem.uses[value]
        maker = problem.makers.get(value)
        away = sum(born.values())
        if maker is not None:
            home, near = (
                round(problem.write_cycles(maker, memory, value)) for memory in (problem.default_memory, self.near)
            )
            self.cycles[maker] += [home, (near - home) * away]
        for use in uses:
            home, near = (
                round(problem.read_cycles(use, memory, value)) for memory in (problem.default_memory, self.near)
            )
            covered = sum(b for last, b in born.items() if use <= last)
            covered += sum(s for (_, first, last), s in stays.items() if first <= use <= last)
            self.model.add(covered <= 1)
            self.cycles[use] += [home, (near - home) * covered]
        for last, chosen in born.items():
            place = Place(born=self.near, born_last=last)
            if any(use > last for use in uses):
                (spill,) = problem.moves_of(value, place)
                self._transfer(spill.start, spill.due, self.near, problem.default_memory, size, chosen)
                too_early = [s for (start, _, _), s in stays.items() if start < problem.home_again(value)]
                self.model.add(sum(too_early) == 0).only_enforce_if(chosen)
                home_reads = [use for use in uses if last < use < problem.boundary_from(problem.makers[value] + 2)]
                if home_reads:
                    self.model.add(chosen == 0)
            for memory, begin, end in problem.occupied(value, place):
                if memory == self.near:
                    self._occupy(begin, end, size, chosen)
        for (start, first, last), chosen in stays.items():
            self._transfer(start, problem.boundary_to(first), problem.default_memory, self.near, size, chosen)
            self._occupy(start, last + 1, size, chosen)
        for (one, a), (other, b) in combinations(stays.items(), 2):
            if one[0] <= other[2] and other[0] <= one[2]:
                self.model.add_bool_or(a.negated(), b.negated())

    def _weights(self, index: int) -> None:
        problem, step = self.problem, self.problem.steps[index]
        if not step.weights_read_bytes:
            return
        stored = round(problem.weights_cycles(index, problem.stored))
        self.cycles[index].append(stored)
        chosen_any: list[cp_model.IntVar] = []
        for memory in (problem.default_memory, self.near) if step.movable else ():
            near = round(problem.weights_cycles(index, memory))
            for start in range(problem.boundary_to(index) + 1):
                if problem.steps[start].together:
                    continue
                chosen = self._bool()
                chosen_any.append(chosen)
                self.cycles[index].append((near - stored) * chosen)
                self._transfer(start, problem.boundary_to(index), problem.stored, memory, step.weights_bytes, chosen)
                if memory == self.near:
                    self._occupy(start, index + 1, step.weights_bytes, chosen)
        self.model.add(sum(chosen_any) <= 1)

    def _scratch(self, index: int) -> None:
        problem, step = self.problem, self.problem.steps[index]
        if not step.scratch_access_bytes:
            return
        home, near = (round(problem.scratch_cycles(index, memory)) for memory in (problem.default_memory, self.near))
        chosen = self._bool()
        self.cycles[index] += [home] + ([(near - home) * chosen] if step.movable else [])
        if step.movable:
            self._occupy(index, index + 1, step.scratch_bytes, chosen)

    def _shared(self, index: int) -> None:
        """Bytes that the result shares with one value that is read near for the last time, and not spilled then."""
        step = self.problem.steps[index]
        results = [self.born[value] for value in step.writes if self.born[value]]
        credits: list[cp_model.IntVar] = []
        for value, saved in step.shared.items() if results else ():
            near = [(last, Place(born=self.near, born_last=last)) for last in self.born[value]]
            dying = [self.born[value][last] for last, p in near if self.problem.dies(value, p, index, self.near)]
            dying += [s for (_, _, last), s in self.stays[value].items() if last == index]
            credit = self._bool()
            self.model.add(credit <= sum(dying))
            self.model.add(credit <= sum(b for born in results for b in born.values()))
            self.used[index].append(-saved * credit)
            credits.append(credit)
        self.model.add(sum(credits) <= 1)

    def _occupy(self, begin: int, end: int, size: int, chosen: cp_model.IntVar) -> None:
        for step in range(begin, min(end, len(self.used))):
            self.used[step].append(aligned(size) * chosen)

    def _transfer(self, start: int, due: int, source: str, target: str, size: int, chosen: cp_model.IntVar) -> None:
        if start < len(self.problem.steps):
            cycles = round(self.problem.time.transfer_cycles(source, target, size))
            self.transfers[start].append((due, cycles, chosen))

    def _finish(self) -> cp_model.IntVar:
        """begins[i]: when step i may begin but for what it waits for at once; busy: until when the DMA works."""
        num, horizon = len(self.problem.steps), sum(int(s.cycles) for s in self.problem.steps) * 1000 + (1 << 40)
        begins = [self.model.new_int_var(0, horizon, "") for _ in range(num + 1)]
        runs = [self.model.new_int_var(0, horizon, "") for _ in range(num)]
        busy = self.model.new_constant(0)
        waits: dict[int, list[tuple[cp_model.LinearExprT, list[cp_model.IntVar]]]] = defaultdict(list)
        for index in range(num):
            self.model.add(runs[index] >= begins[index])
            for ended, chosen in waits[index]:
                for one in chosen:
                    self.model.add(begins[index] >= ended).only_enforce_if(one)
            if self.transfers[index]:
                free = self.model.new_int_var(0, horizon, "")
                self.model.add(free >= busy)
                self.model.add(free >= begins[index])
                for due in sorted({due for due, _, _ in self.transfers[index]}):
                    ended = free + sum(cycles * c for until, cycles, c in self.transfers[index] if until <= due)
                    chosen = [c for until, _, c in self.transfers[index] if until == due]
                    if due > index:
                        waits[due].append((ended, chosen))
                        continue
                    for one in chosen:
                        self.model.add(runs[index] >= ended).only_enforce_if(one)
                started = self._bool()
                self.model.add_max_equality(started, [c for _, _, c in self.transfers[index]])
                after = self.model.new_int_var(0, horizon, "")
                total = sum(cycles * c for _, cycles, c in self.transfers[index])
                self.model.add(after >= busy)
                self.model.add(after >= free + total).only_enforce_if(started)
                busy = after
            self.model.add(begins[index + 1] >= runs[index] + sum(self.cycles[index]))
        return begins[num]
