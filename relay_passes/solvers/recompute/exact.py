"""The cheapest recomputation within a budget of live bytes, as a constraint program over retention intervals.

Each node runs once at its place in the order, and may run once more in the stage of a later node: right before that
node, stages and repeats within one in the order's own order. What a hint repeats more often may be repeated as often.
Time is the number of such slots. A run keeps its results for an interval that covers every read it serves; intervals
alive together stay within the budget. This is the formulation of MOCCASIN (Bartan et al., ICML 2023). What a result
shares with a dying operand is not modelled: a sequence found here may come out lower.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relay_passes.solvers.graph import Graph, peak_bytes
from relay_passes.solvers.recompute.search import Recomputation, repeats_cost
from tvm_ext.core.errors import MissingTool

try:
    from ortools.sat.python import cp_model
except ImportError:
    raise MissingTool("exact recomputation needs ortools: pip install 'tvm-ext[exact]'.") from None

EFFORT = 10.0
"""Deterministic time limit of the solver, about seconds: it ends the search without depending on the machine."""


def recompute_exactly(
    graph: Graph,
    order: Sequence[int],
    costs: Sequence[int],
    budget_bytes: int,
    *,
    hint: Recomputation | None = None,
    before: int = 0,
    effort: float = EFFORT,
) -> Recomputation | None:
    """The cheapest sequence that keeps the order of first runs, or the best found; None if none is found.

    The same problem gives the same result. hint: a sequence to start from. before: how many nodes of the order have
    run already; the sequence holds them only where they run again, and what they left is among the graph's inputs.
    """
    program = _Program(graph, order, cp_model.CpModel(), before, hint)
    program.stay_within(budget_bytes)
    program.minimise(costs)
    if hint:
        program.start_from(hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = effort
    status = solver.solve(program.model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    runs = [
        (solver.value(start), run[0])
        for run, start in program.starts.items()
        if run[0] >= 0 and (run not in program.again or solver.value(program.again[run]))
    ]
    sequence = tuple(order[place] for _, place in sorted(runs))
    return Recomputation(
        sequence=sequence, peak_bytes=peak_bytes(graph, sequence),
        cost=repeats_cost([*order[:before], *sequence], costs), proved=status == cp_model.OPTIMAL,
    )  # fmt: skip


class _Program:
    """Variables of the model. A run is (place, 0) for a node's first run, (place, 1) for its repeat, and so on.

    Places are positions in the order. starts: slot of each run. again: whether a repeat takes place. ends: last slot
    at which a run's value is kept, by (run, value); inputs are there from before the first slot, as run (-1, 0).
    """

    def __init__(
        self, graph: Graph, order: Sequence[int], model: cp_model.CpModel, before: int, hint: Recomputation | None
    ) -> None:
        self.graph, self.order, self.model, self.before = graph, order, model, before
        self.nodes = [graph.nodes[index] for index in order]
        self.last_slot = _slot(len(order) - 1, len(order) - 1) + 1
        self.starts: dict[tuple[int, int], cp_model.IntVar] = {}
        self.again: dict[tuple[int, int], cp_model.IntVar] = {}
        self.ends: dict[tuple[tuple[int, int], int], cp_model.IntVar] = {}
        self.runs_of: dict[int, list[tuple[int, int]]] = {value: [(-1, 0)] for value in sorted(graph.inputs)}
        self.starts[-1, 0] = model.new_constant(-1)
        for value in self.runs_of:
            self.ends[(-1, 0), value] = model.new_int_var(-1, self.last_slot, "")
        readers = {value for node in self.nodes for value in node.reads}
        hinted = Counter(hint.sequence if hint else ())
        for place, node in enumerate(self.nodes):
            if place >= before:
                self._run(place, 0, model.new_constant(_slot(place, place)))
            stages = range(max(place + 1, before), len(order))
            if stages and readers.intersection(node.writes):
                slots = [_slot(stage, place) for stage in stages]
                domain = cp_model.Domain.from_values(slots)
                for number in range(1, 1 + max(1, hinted[order[place]] - (place >= before))):
                    self._run(place, number, model.new_int_var_from_domain(domain, ""))
                    self.again[place, number] = model.new_bool_var("")
                    if number > 1:
                        model.add(self.starts[place, number - 1] < self.starts[place, number])
                        model.add_implication(self.again[place, number], self.again[place, number - 1])
        for run in self.starts:
            if run[0] >= 0:
                for value in dict.fromkeys(self.nodes[run[0]].reads):
                    self._served(value, self.starts[run], self.again.get(run))
        for value in sorted(graph.outputs):
            self._served(value, model.new_constant(self.last_slot), None)

    def _run(self, place: int, number: int, start: cp_model.IntVar) -> None:
        run = (place, number)
        self.starts[run] = start
        for value in self.nodes[place].writes:
            self.runs_of.setdefault(value, []).append(run)
            self.ends[run, value] = self.model.new_int_var(0, self.last_slot, "")

    def _served(self, value: int, at: cp_model.IntVar, condition: cp_model.IntVar | None) -> None:
        """Requires a run of the value's maker that begins before the slot, and keeps the value until then."""
        serving: list[cp_model.IntVar] = []
        for run in self.runs_of.get(value, ()):
            serves = self.model.new_bool_var("")
            self.model.add(self.starts[run] < at).only_enforce_if(serves)
            self.model.add(self.ends[run, value] >= at).only_enforce_if(serves)
            if run in self.again:
                self.model.add_implication(serves, self.again[run])
            serving.append(serves)
        self.model.add_bool_or(serving if condition is None else [*serving, ~condition])

    def stay_within(self, budget_bytes: int) -> None:
        """Limits the bytes alive at every slot to the budget."""
        intervals: list[cp_model.IntervalVar] = []
        demands: list[int] = []
        for (run, value), end in self.ends.items():
            start, size = self.starts[run], self.model.new_int_var(1, self.last_slot + 2, "")
            intervals.append(self._interval(run, start, size, end + 1))
            demands.append(self.graph.sizes[value])
        for run, start in self.starts.items():
            extra = self.nodes[run[0]].extra_bytes if run[0] >= 0 else 0
            if extra:
                intervals.append(self._interval(run, start, 1, start + 1))
                demands.append(extra)
        self.model.add_cumulative(intervals, demands, budget_bytes)

    def _interval(
        self, run: tuple[int, int], start: cp_model.IntVar, size: cp_model.IntVar | int, end: cp_model.LinearExprT
    ) -> cp_model.IntervalVar:
        if run not in self.again:
            return self.model.new_interval_var(start, size, end, "")
        return self.model.new_optional_interval_var(start, size, end, self.again[run], "")

    def minimise(self, costs: Sequence[int]) -> None:
        """The cost of all repeats."""
        self.model.minimize(sum(costs[self.order[place]] * taken for (place, _), taken in self.again.items()))

    def start_from(self, hint: Recomputation) -> None:
        """Hints for the repeats of a sequence: each in the stage of the first run that follows it."""
        places = {node: place for place, node in enumerate(self.order)}
        stage = self.before
        stages: dict[int, list[int]] = {}
        for node in hint.sequence:
            if places[node] == stage:
                stage += 1
            else:
                stages.setdefault(places[node], []).append(stage)
        for (place, number), taken in self.again.items():
            slots = [_slot(s, place) for s in stages.get(place, ())]
            self.model.add_hint(taken, number <= len(slots))
            if number <= len(slots):
                self.model.add_hint(self.starts[place, number], slots[number - 1])


def _slot(stage: int, place: int) -> int:
    """Number of the slot in which the node at a place runs in the stage of a later one, or of its own."""
    return stage * (stage + 1) // 2 + place
