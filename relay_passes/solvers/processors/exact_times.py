"""Times of blocks, a task behind the transfers it begins with, as constraints: no two on a processor at once."""

from __future__ import annotations

from relay_passes.solvers.processors.bounds import heads, tails
from relay_passes.solvers.processors.exact_forms import FormsProgram
from relay_passes.solvers.processors.search import FoundForms
from relay_passes.solvers.processors.timing import listed_tasks
from tvm_ext.core.errors import MissingTool

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact sharing among processors needs ortools: pip install 'tvm-ext[exact]'.") from None

Variables = dict[tuple[int, int], cp_model.IntVar]
"""By (task, processor)."""


def add_times(program: FormsProgram, hint: FoundForms, bound: int) -> Variables:
    """Minimises the makespan; begins of tasks."""
    return _Times(program, hint, bound).begins


class _Times:
    """blocks: where a task's transfers begin; begins, ends: of the task itself."""

    def __init__(self, program: FormsProgram, hint: FoundForms, bound: int) -> None:
        self.program, self.problem, self.model, self.most = program, program.problem, program.model, hint.value
        head, (_, behind) = heads(self.problem), tails(self.problem)
        self.total = self.model.new_int_var(bound, self.most, "")
        self.blocks, self.begins, self.ends = Variables(), Variables(), Variables()
        on: list[list[cp_model.IntervalVar]] = [[] for _ in self.problem.names]
        for (task, processor), runs in program.runs.items():
            key = (task, processor)
            self.blocks[key], self.begins[key], self.ends[key] = (
                self.model.new_int_var(least, self.most, "") for least in (0, head[task], head[task])
            )
            time = sum(program.takes[task, form] * part.time for form, part in program.parts_on(*key))
            self.model.add(self.ends[key] == self.begins[key] + time)
            self.model.add(self.blocks[key] <= self.begins[key])
            self.model.add(self.ends[key] + behind[task] <= self.total).only_enforce_if(runs)
            size = self.model.new_int_var(0, self.most, "")
            on[processor].append(self.model.new_optional_interval_var(self.blocks[key], size, self.ends[key], runs, ""))
        for processor, intervals in enumerate(on):
            self.model.add_no_overlap(intervals)
            busy = [
                program.takes[t, form] * part.time
                for t, p in program.runs if p == processor for form, part in program.parts_on(t, p)
            ]  # fmt: skip
            self.model.add(sum(busy) <= self.total)
        self.carried: dict[tuple[str, int, int], list[cp_model.IntervalVar]] = {}
        for it in self.problem.values:
            for processor in range(len(self.problem.names)):
                self._stays(it.maker, it.readers, processor)
        for value, source, target in program.ways():
            self._crosses(value, source, target)
        for intervals in self.carried.values():
            self.model.add_no_overlap(intervals)
        self.model.minimize(self.total)
        self._hint(hint)

    def _stays(self, maker: int, readers: tuple[int, ...], processor: int) -> None:
        """A reader on the maker's processor waits for it."""
        made = self.program.runs.get((maker, processor))
        for reader in readers:
            runs = self.program.runs.get((reader, processor))
            if made is not None and runs is not None:
                early, late = self.ends[maker, processor], self.blocks[reader, processor]
                self.model.add(early <= late).only_enforce_if(made, runs)

    def _crosses(self, value: int, source: int, target: int) -> None:
        """A reader on another processor waits for the signal, and for the transfer, which one reader begins with."""
        problem, model, runs = self.problem, self.model, self.program.runs
        maker, route = problem.values[value].maker, problem.routes[source, target]
        made, end = runs[maker, source], self.ends[maker, source]
        readers = [reader for reader in dict.fromkeys(problem.values[value].readers) if (reader, target) in runs]
        times = {
            form: problem.transfer_time(value, part, target) for form, part in self.program.parts_on(maker, source)
        }
        if not any(times.values()):
            for reader in readers:
                begin = self.begins[reader, target]
                model.add(end + route.signal_time <= begin).only_enforce_if(made, runs[reader, target])
            return
        crosses = self.program.crossing(value, source, target)
        model.add_implication(crosses, made)
        time = sum(self.program.takes[maker, form] * it for form, it in times.items())
        began, ended = model.new_int_var(0, self.most, ""), model.new_int_var(0, self.most, "")
        size = model.new_int_var(0, max(times.values()), "")
        model.add(size == time).only_enforce_if(crosses)
        interval = model.new_optional_interval_var(began, size, ended, crosses, "")
        before, after = (0, route.signal_time) if route.has_dma else (route.signal_time, 0)
        model.add(began >= end + before).only_enforce_if(crosses)
        for reader in readers:
            model.add(ended + after <= self.begins[reader, target]).only_enforce_if(made, runs[reader, target])
        if route.has_dma:
            self.carried.setdefault(("dma", source, target), []).append(interval)
            return
        self.carried.setdefault(("reader", target, target), []).append(interval)
        carries = [model.new_bool_var("") for _ in readers]
        model.add(sum(carries) == crosses)
        for reader, carrier in zip(readers, carries, strict=True):
            model.add_implication(carrier, runs[reader, target])
            model.add(began >= self.blocks[reader, target]).only_enforce_if(carrier)
            model.add(ended <= self.begins[reader, target]).only_enforce_if(carrier)

    def _hint(self, hint: FoundForms) -> None:
        for processor, listed in enumerate(listed_tasks(self.problem, hint.forms, hint.sequence)):
            for one in listed:
                self.model.add_hint(self.begins[one.task, processor], one.begin)
                self.model.add_hint(self.ends[one.task, processor], one.end)
