"""Hierarchical memory-constrained operator scheduling, written here from what its authors say of it.

Wang, Wan, Chen, Lin, Jiang, Qiao: "Hierarchical memory-constrained operator scheduling of neural architecture search
networks", DAC 2022: build a hierarchical graph of operators, sequences and groups; schedule it; where the peak is,
take the hierarchy apart and schedule again, within the peak known so far. What that leaves open is decided here:

- A sequence is a chain of operators, each the only reader of the one before, which is all it waits for.
- A group is what converges in one sequence that waits for at least `CONVERGENT` others (a cell's concatenation; where
  a graph has none, two), and whatever only it needs, up to the next such sequence.
- A schedule of units comes from dynamic programming over the sets of units already run; a group's own order from the
  same over its sequences, once for each set of values that die in it.
- At the peak the running unit is expanded; if it is a single operator, the units that make or read what is alive then.
"""

from __future__ import annotations

from collections.abc import Sequence

from relay_passes.solvers.graph import Graph

CONVERGENT = 3
MOST_STATES = 30_000

Unit = tuple[int, ...]


def hmcos(graph: Graph) -> tuple[tuple[int, ...], int]:
    """An order of a graph's nodes and its peak of live bytes; the nodes' scratch and sharing are not looked at."""
    return _Scheduler(graph).run()


class _Scheduler:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        maker = {value: index for index, node in enumerate(graph.nodes) for value in node.writes}
        self.before = [
            frozenset(maker[value] for value in node.reads if value in maker) for node in graph.nodes
        ]  # fmt: skip
        self.after: list[set[int]] = [set() for _ in graph.nodes]
        self.readers: list[set[int]] = [set() for _ in graph.sizes]
        for index, node in enumerate(graph.nodes):
            for value in node.reads:
                self.readers[value].add(index)
            for earlier in self.before[index]:
                self.after[earlier].add(index)
        self.maker = maker
        self.sequences = self._sequences()
        self.sequence_of = {node: sequence for sequence in self.sequences for node in sequence}
        self.inner_orders: dict[tuple[Unit, frozenset[int]], Unit] = {}

    def run(self) -> tuple[tuple[int, ...], int]:
        units = self._groups()
        best = self._schedule(units, None)
        assert best is not None, "units without a limit have an order"
        while True:
            wanted = self._at_peak(best[0], units)
            if not wanted:
                return best
            units = [part for unit in units for part in (self._parts(unit) if unit in wanted else [unit])]
            found = self._schedule(units, best[1])
            if found is None:
                return best
            best = min(found, best, key=lambda item: item[1])

    def _sequences(self) -> list[Unit]:
        chains: dict[int, list[int]] = {}
        for index in range(len(self.graph.nodes)):
            earlier = next(iter(self.before[index]), None)
            if earlier is not None and len(self.before[index]) == 1 and len(self.after[earlier]) == 1:
                chains[index] = chains[earlier]
                chains[index].append(index)
            else:
                chains[index] = [index]
        return list(dict.fromkeys(tuple(chain) for chain in chains.values()))

    def _groups(self) -> list[Unit]:
        """Groups, and the sequences that belong to none, as sorted tuples of nodes."""
        waits = {sequence: len(self.before[sequence[0]]) for sequence in self.sequences}
        least = CONVERGENT if max(waits.values(), default=0) >= CONVERGENT and len(waits) > 1 else 2
        if sum(count >= least for count in waits.values()) < 2:
            least = 2
        heads = {sequence for sequence, count in waits.items() if count >= least}
        group_of: dict[Unit, Unit] = {sequence: sequence for sequence in heads}
        for sequence in reversed(self.sequences):  # readers come later in the list: their group is known
            later = {group_of.get(self.sequence_of[node]) for node in self.after[sequence[-1]]}
            if sequence not in heads and len(later) == 1 and None not in later:
                group_of[sequence] = next(iter(later)) or sequence
        groups: dict[Unit, list[int]] = {}
        for sequence in self.sequences:
            groups.setdefault(group_of.get(sequence, sequence), []).extend(sequence)
        return [tuple(sorted(nodes)) for nodes in groups.values()]

    def _parts(self, unit: Unit) -> list[Unit]:
        inside = list(dict.fromkeys(self.sequence_of[node] for node in unit))
        if len(inside) > 1:
            return inside
        return [(node,) for node in unit]

    def _schedule(self, units: Sequence[Unit], limit: int | None) -> tuple[tuple[int, ...], int] | None:
        """The order of units with the lowest peak, none above the limit; None where there are too many states."""
        inputs = sum(self.graph.sizes[value] for value in self.graph.inputs)
        unit_of = {node: number for number, unit in enumerate(units) for node in unit}
        needs = [
            {unit_of[earlier] for node in unit for earlier in self.before[node] if earlier in unit_of} - {number}
            for number, unit in enumerate(units)
        ]
        states: dict[frozenset[int], tuple[int, int, tuple[int, ...]]] = {frozenset(): (inputs, inputs, ())}
        looked_at = 0
        for _ in units:
            found: dict[frozenset[int], tuple[int, int, tuple[int, ...]]] = {}
            for done, (peak, live, order) in states.items():
                run = set(order)
                for number, unit in enumerate(units):
                    if number in done or not needs[number] <= done:
                        continue
                    inner = self._inner_order(unit, run)
                    new_peak, new_live = self._replay(inner, run, live)
                    new_peak = max(peak, new_peak)
                    key = done | {number}
                    if (limit is None or new_peak <= limit) and (key not in found or new_peak < found[key][0]):
                        found[key] = (new_peak, new_live, (*order, *inner))
            looked_at += len(found)
            if looked_at > MOST_STATES or not found:
                return None
            states = found
        ((peak, _, order),) = states.values()
        return order, peak

    def _inner_order(self, unit: Unit, run: set[int]) -> Unit:
        """A unit's own order: a sequence's is given, a group's depends on which of the values it reads die in it."""
        parts = self._parts(unit)
        if len(parts) == len(unit):
            return unit
        inside, read = set(unit), {value for node in unit for value in self.graph.nodes[node].reads}
        dying = frozenset(v for v in read if v not in self.graph.outputs and self.readers[v] <= run | inside)
        key = (unit, dying)
        if key not in self.inner_orders:
            self.inner_orders[key] = self._order_group(parts, run)
        return self.inner_orders[key]

    def _order_group(self, parts: list[Unit], run: set[int]) -> Unit:
        """Dynamic programming over the sequences of a group; the order given where there are too many states."""
        inside = {node: number for number, part in enumerate(parts) for node in part}
        needs = [
            {inside[b] for node in part for b in self.before[node] if b in inside} - {number}
            for number, part in enumerate(parts)
        ]
        states: dict[frozenset[int], tuple[int, int, Unit]] = {frozenset(): (0, 0, ())}
        looked_at = 0
        for _ in parts:
            found: dict[frozenset[int], tuple[int, int, Unit]] = {}
            for done, (peak, live, order) in states.items():
                for number, part in enumerate(parts):
                    if number in done or not needs[number] <= done:
                        continue
                    new_peak, new_live = self._replay(part, run | set(order), live)
                    new_peak, key = max(peak, new_peak), done | {number}
                    if key not in found or new_peak < found[key][0]:
                        found[key] = (new_peak, new_live, (*order, *part))
            looked_at += len(found)
            if looked_at > MOST_STATES:
                return tuple(node for part in parts for node in part)
            states = found
        ((_, _, order),) = states.values()
        return order

    def _replay(self, order: Sequence[int], run: set[int], live: int) -> tuple[int, int]:
        """The peak while some nodes run after others, and what is alive when they have."""
        graph, run, peak = self.graph, set(run), live
        for index in order:
            node = graph.nodes[index]
            live += sum(graph.sizes[value] for value in node.writes)
            peak = max(peak, live)
            run.add(index)
            touched = {*node.reads, *node.writes} - graph.outputs
            live -= sum(graph.sizes[value] for value in touched if self.readers[value] <= run)
        return peak, live

    def _at_peak(self, order: Sequence[int], units: Sequence[Unit]) -> set[Unit]:
        """Units to expand: the one running at the peak, or those that make or read what is alive there."""
        unit_of = {node: unit for unit in units for node in unit}
        run: set[int] = set()
        live = sum(self.graph.sizes[value] for value in self.graph.inputs)
        peaks: list[int] = []
        for index in order:
            peak, live = self._replay([index], run, live)
            run.add(index)
            peaks.append(peak)
        if not peaks:
            return set()
        at = peaks.index(max(peaks))
        running = unit_of[order[at]]
        if len(running) > 1:
            return {running}
        position = {node: place for place, node in enumerate(order)}
        alive = [
            value
            for value, readers in enumerate(self.readers)
            if position.get(self.maker.get(value, -1), -1) <= at and any(position[reader] >= at for reader in readers)
        ]
        makers = {self.maker[value] for value in alive if value in self.maker}
        touching = makers | {reader for value in alive for reader in self.readers[value]}
        return {unit_of[node] for node in touching if len(unit_of[node]) > 1}
