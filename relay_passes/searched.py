"""A module as the memory searches see it, with the facts that no attempt changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

import tvm

from relay_passes.analysis.attention_heads import attentions
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.backend import Backend
from relay_passes.dataflow import operands, outputs
from relay_passes.memory import strip_composites
from relay_passes.memory.split_heads import SplitHeads
from relay_passes.solvers.graph import Graph
from relay_passes.solvers.recompute.in_rows import unrolled
from relay_passes.solvers.split.patches import PatchedSegments
from relay_passes.solvers.split.segments import ROWS_PER_CALL, RowFacts, Segments
from tvm_ext.core.alignment import aligned
from tvm_ext.core.decisions.composites import PlacedPorts, PortsOutside
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.names import SEARCHED_MEMORY
from tvm_ext.core.row_access import ColumnOperator
from tvm_ext.core.time_model import CallCost

MOST_SEQUENCES = 32
"""Number of sequences with recomputation whose segments are cached."""
MOST_IN_PARTS = 200
"""Most operators, counted over all parts, for which head-wise tiling is searched: larger searches take too long."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """The operators of a module's main, and the segments they can be cut into.

    Each property is computed when it is first used.
    """

    mod: tvm.IRModule
    backend: Backend

    @cached_property
    def operators(self) -> OperatorGraph:
        return OperatorGraph(self.mod, self.mod["main"], self.backend)

    @cached_property
    def graph(self) -> Graph:
        """The operators and values. Inputs and outputs that lie in other memories take no bytes."""
        graph, main = self.operators.graph(), self.mod["main"]
        if not PortsOutside.read(main).is_set:
            return graph.without_bytes_of(self.placed.keys()) if self.placed else graph
        states = len(KeptStates.read(self.mod).states)
        given = [*main.params[: len(main.params) - states], *outputs(main)[: len(outputs(main)) - states]]
        held = {value for port in given for leaf in operands(port) for value in self.operators.values.get(leaf, ())}
        return graph.without_bytes_of(held)

    @cached_property
    def placed(self) -> dict[int, str]:
        """The values of inputs and outputs that lie outside the default memory, and the memory of each."""
        return {value: memory for value, memory in self._ports().items() if memory != SEARCHED_MEMORY}

    @property
    def free_ports(self) -> frozenset[int]:
        """The values of inputs and outputs whose memory the search for memories chooses."""
        return frozenset(value for value, memory in self._ports().items() if memory == SEARCHED_MEMORY)

    def _ports(self) -> dict[int, str]:
        """Return what is said of the memory of each input and output, where anything is said."""
        main = self.mod["main"]
        said, results = PlacedPorts.read(main), outputs(main)
        ports = [*zip(main.params, said.inputs, strict=False), *zip(results, said.outputs, strict=False)]
        return {
            value: memory
            for port, memory in ports
            for leaf in operands(port)
            for value in self.operators.values.get(leaf, ())
            if memory
        }

    @cached_property
    def placed_bytes(self) -> dict[str, int]:
        """The bytes of the placed inputs and outputs in each memory."""
        found: Counter[str] = Counter()
        for value, memory in self.placed.items():
            found[memory] += aligned(self.operators.sizes[value])
        return dict(found)

    @cached_property
    def facts(self) -> RowFacts:
        return row_facts(self.operators)

    @cached_property
    def columns(self) -> list[ColumnOperator | None]:
        return strip_composites.columns_of(self.operators)

    @cached_property
    def by_rows(self) -> Segments:
        return Segments(self.graph, self.facts)

    @cached_property
    def in_patches(self) -> PatchedSegments:
        return PatchedSegments(
            self.graph, self.facts, self.columns, self.operators.instructions, self.by_rows, self.operators.reading_once
        )

    @cached_property
    def in_parts(self) -> dict[int, Searched]:
        """The module with head-wise tiling of its attentions, by the number of parts; empty without attentions.

        Numbers of parts that give more operators than a search can handle are left out.
        """
        heads = {one.heads for one in attentions(self.mod, self.backend.elementwise)}
        found: dict[int, Searched] = {}
        for parts in sorted({n for most in heads for n in range(2, most + 1) if most % n == 0}):
            one = Searched(mod=SplitHeads(self.backend, parts)(self.mod), backend=self.backend)
            if len(one.graph.nodes) <= MOST_IN_PARTS:
                found[parts] = one
        return found

    @cached_property
    def repeating(self) -> Callable[[tuple[int, ...]], Segments]:
        """Return the segments of a sequence in which operators may be repeated."""

        @lru_cache(MOST_SEQUENCES)
        def segments(sequence: tuple[int, ...]) -> Segments:
            if sequence == tuple(range(len(self.graph.nodes))):
                return self.by_rows
            return Segments(unrolled(self.graph, sequence), self.facts.of(sequence))

        return segments


def searched(mod: tvm.IRModule, backend: Backend, known: Searched | None) -> Searched:
    """Return `known` where it belongs to this module, or else a new instance."""
    if known is not None and known.mod["main"].same_as(mod["main"]):
        return known
    return Searched(mod=mod, backend=backend)


def row_facts(operators: OperatorGraph) -> RowFacts:
    """Return the facts about operators that run by rows. Costs are queried only when they are needed."""

    @cache
    def costs(index: int, input_rows: int, some: tuple[int, ...]) -> dict[int, CallCost]:
        composite = operators.composites[index]
        assert composite is not None, "what has rows is a composite"
        return dict(zip(some, operators.backend.call_costs(composite, some, input_rows), strict=True))

    return RowFacts(
        operators=tuple(operators.rows), accumulations=tuple(operators.accumulations),
        calls=lambda index, rows, input_rows: (
            costs(index, input_rows, ROWS_PER_CALL if rows in ROWS_PER_CALL else (rows,))[rows]
        ),
        reading=frozenset(operators.reading),
    )  # fmt: skip
