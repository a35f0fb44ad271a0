"""Choose the memories of results, scratch and weights, and the copies between them, for the least predicted time.

Rewrite:
    a = c1(x); b = c2(a); d = c3(b); e = c4(d, a)
      ->  a = c1(x)                                  c1 carries `OperatorMemories`: its result is written to dtcm
          a.sram = tvm_ext.move(a, "sram", within=1)       spilled while c2 runs
          b = c2(a); d = c3(b)                       c2 carries weights in dtcm, 1 ahead: they are prefetched
          a.dtcm = tvm_ext.move(a.sram, "dtcm")            while c1 runs; scratch likewise
          e = c4(d, a.dtcm)                          a prefetch stands where it starts; its first reader waits
    main carries the `PredictedTime`. A memory that only some processors reach holds only values that these processors
    write and read. A core copies for its own steps where no DMA does (the move then carries `copied_by`).
    A memory that `PlacedPorts` leaves to the search stands there afterwards.
Leaves alone: other inputs and outputs, which stay in the platform's default memory; sequences that run row by row;
functions with anything but composites; a function that no placement makes faster by 1 %, or by 25 % where only
latencies are lower; the computation of each composite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import tvm
from tvm import relax

from relay_passes.analysis.processor_costs import ProcessorCosts
from relay_passes.backend import Backend
from relay_passes.composites import has_composites_only
from relay_passes.dataflow import names_in, operands, outputs, rebuild, substitute, with_main
from relay_passes.memory.memory_problem import has_higher_rate, near_memories, sequences_of, whole_problem
from relay_passes.memory.searching_pass import SearchingPass
from relay_passes.memory.tile_weights import AssignedModule, in_tiles, with_tiles
from relay_passes.own_operators import move
from relay_passes.searched import Searched
from relay_passes.solvers.memories.assignment import Assignment, ValueTransfer
from relay_passes.solvers.memories.cuts import cut_problem
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.search import assign
from relay_passes.solvers.memories.state import Score
from tvm_ext.core.decisions.composites import OperatorMemories, PlacedPorts
from tvm_ext.core.decisions.models import PredictedTime
from tvm_ext.core.names import SEARCHED_MEMORY, unique
from tvm_ext.core.time_model import TimeModel

LEAST_GAIN = 0.01
"""Fraction of the predicted time. A smaller gain is not worth the moves."""
LEAST_GAIN_OF_LATENCY = 0.25
"""The same fraction where no other memory has a higher rate, so that only latencies become lower.

It is larger because buses hide part of the latencies, which the time model ignores, while copies certainly cost
instructions.
"""


@tvm.transform.module_pass(opt_level=0, name="AssignMemories")
class AssignMemories(SearchingPass):
    """Place results, weights and scratch in several memories, and move them, for the least predicted time.

    backend, time: of the platform's first processor.
    others: the other processors on which steps may run, by name.
    limits: the bytes that each memory may give; memories not listed are not used.
    """

    def __init__(
        self,
        backend: Backend,
        time: TimeModel,
        limits: Mapping[str, int],
        others: Mapping[str, ProcessorCosts] = MappingProxyType({}),
    ) -> None:
        super().__init__(backend)
        self.time, self.limits, self.others = time, limits, others

    def rewritten(self, mod: tvm.IRModule, known: Searched) -> tvm.IRModule:
        near = near_memories(self.time, self.limits)
        if not near or not has_composites_only(mod):
            return mod
        whole = self._planned(known, assign)
        home = whole.problem.at_home()
        before = Score(whole.problem.overflow(home), whole.problem.predicted_cycles(home))
        found = with_tiles(whole, self.backend, self._planned)
        least = LEAST_GAIN if any(has_higher_rate(self.time, memory) for memory in near) else LEAST_GAIN_OF_LATENCY
        is_faster = found.score.cycles <= before.cycles * (1 - least)
        if not found.score.overflow < before.overflow and not is_faster:
            return mod
        module = found.known.mod.clone()
        moved = _Rewriting(module, found).function()
        predicted = PredictedTime(
            cycles=int(found.score.cycles), cycles_at_home=int(before.cycles), to_fit=not is_faster
        )
        return with_main(module, predicted.write(moved))

    def _planned(self, known: Searched, assigned: Callable[[AssignmentProblem], Assignment]) -> AssignedModule:
        """Return the plan of a module with a search for assignments."""
        whole = whole_problem(known, self.backend, self.time, self.limits, self.others)
        problem, hosts = cut_problem(whole, known.by_rows, sequences_of(known.mod, known.operators))
        problem, parts = in_tiles(problem, known.operators)
        return AssignedModule(known=known, problem=problem, hosts={**hosts, **parts}, found=assigned(problem))


class _Rewriting:
    """Writes the function with its moves, and records in composites where their results, weights and scratch lie."""

    def __init__(self, module: tvm.IRModule, plan: AssignedModule) -> None:
        self.module, self.operators = module, plan.known.operators
        self.problem, self.hosts, self.found = plan.problem, plan.hosts, plan.found
        operators, main = self.operators, self.operators.main
        self.main = main
        self.taken = names_in(main)
        self.views = {binding.var: binding for group in operators.steps for binding in group[1:]}
        self.views |= {binding.var: binding for binding in operators.first}
        self.bases: dict[int, relax.Var] = {}
        for var, values in operators.values.items():
            if len(values) == 1:
                self.bases.setdefault(values[0], var)
        self.copies: dict[tuple[int, str], relax.Var] = {}
        self.seen_as: dict[tuple[relax.Var, relax.Var], relax.Var] = {}
        self.sequence: list[relax.VarBinding] = []

    def function(self) -> relax.Function:
        moves: dict[int, list[ValueTransfer]] = {}
        for value, place in enumerate(self.found.places):
            for one in self.problem.moves_of(value, place):
                moves.setdefault(one.start, []).append(one)
        self.sequence += self.operators.first
        for index, (computing, *views) in enumerate(self.operators.steps):
            for one in sorted(moves.get(index, ()), key=lambda m: (m.due, m.value)):
                self._move(one)
            self._place(index, computing.value.op)
            moved = {leaf: self._read(leaf, index) for leaf in operands(computing.value) if isinstance(leaf, relax.Var)}
            self.sequence.append(relax.VarBinding(computing.var, substitute(computing.value, moved)))
            self.sequence += views
        return rebuild(self._with_ports(), self.sequence, outputs(self.main))

    def _with_ports(self) -> relax.Function:
        """Return main with the memories of inputs and outputs that were to be searched."""
        said, results = PlacedPorts.read(self.main), outputs(self.main)
        ports = PlacedPorts(
            inputs=tuple(map(self._port, self.main.params, said.inputs)),
            outputs=tuple(map(self._port, results, said.outputs)),
        )
        return self.main if ports == said else ports.write(self.main)

    def _port(self, port: relax.Expr, said: str) -> str:
        """Return the memory of an input or output, empty for the default memory."""
        if said != SEARCHED_MEMORY:
            return said
        (value,) = self.operators.values[port]
        born = self.found.places[value].born
        return "" if born == self.problem.default_memory else born

    def _move(self, one: ValueTransfer) -> None:
        base = self.bases[one.value]
        source = self.copies.get((one.value, one.source), base)
        is_dma = self.problem.time.has_dma(one.source, one.target)
        within = one.due - one.start if one.spills else None
        call = move(source, one.target, within, "" if is_dma else one.processor)
        var = relax.DataflowVar(unique(f"{base.name}.{one.target}", self.taken), call.ty)
        self.copies[one.value, one.target] = var
        self.sequence.append(relax.VarBinding(var, call))

    def _read(self, leaf: relax.Var, index: int) -> relax.Var:
        """Return the copy that a step reads in place of a variable, or a view of it where the variable is a view."""
        (value,) = self.operators.values[leaf]
        place = self.found.places[value]
        memory = place.memory_at(index, self.problem.default_memory)
        if index <= place.born_last or (memory == place.born == self.problem.default_memory):
            return leaf
        return self._viewed(leaf, self.bases[value], self.copies[value, memory])

    def _viewed(self, leaf: relax.Var, base: relax.Var, copy: relax.Var) -> relax.Var:
        if leaf.same_as(base):
            return copy
        if (leaf, copy) not in self.seen_as:
            binding = self.views[leaf]
            read = next(var for var in operands(binding.value) if isinstance(var, relax.Var))
            value = substitute(binding.value, {read: self._viewed(read, base, copy)})
            var = relax.DataflowVar(unique(f"{copy.name}.view", self.taken), value.ty)
            self.seen_as[leaf, copy] = var
            self.sequence.append(relax.VarBinding(var, value))
        return self.seen_as[leaf, copy]

    def _place(self, index: int, callee: tvm.ir.GlobalVar) -> None:
        """Record in a composite the memories of its result, weights and scratch that differ from the default memory."""
        found, home = self.found, self.problem.default_memory
        (born,) = {found.places[self.hosts.get(value, value)].born for value in self.operators.nodes[index].writes}
        weights, scratch = found.weights.get(index), found.scratch.get(self.problem.boundary_to(index), home)
        placement = OperatorMemories(
            memory="" if born == home else born, scratch_memory="" if scratch == home else scratch,
            weights_memory=weights.memory if weights else "", weights_ahead=index - weights.start if weights else 0,
        )  # fmt: skip
        if placement != OperatorMemories():
            self.module.update_func(callee, placement.write(self.module[callee]))
