"""The quantities that need no schedules: the energy of forms, the loads of processors, and the order of stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relay_passes.solvers.processors.problem import ProcessorProblem


def energy_of(problem: ProcessorProblem, forms: Sequence[int]) -> int:
    """Return the energy of a run: of busy processors, and of transfers."""
    chosen = [task.forms[form] for task, form in zip(problem.tasks, forms, strict=True)]
    energy = sum(problem.energy_of(part) for form in chosen for part in form.parts)
    return energy + sum(
        problem.transfer_energy(value, part, target) for value, part, target in problem.crossings(tuple(forms))
    )


def interval_of(problem: ProcessorProblem, forms: Sequence[int]) -> int | None:
    """Return the time between successive inputs of a pipeline: the largest load of a processor, or of a DMA.

    None where a value returns to a processor that an earlier stage depends on, because such processors form no stages.
    """
    loads, channels = [0] * len(problem.names), dict[tuple[int, int], int]()
    for task, form in zip(problem.tasks, forms, strict=True):
        for part in task.forms[form].parts:
            loads[part.processor] += part.time
    edges = set[tuple[int, int]]()
    for value, part, target in problem.crossings(tuple(forms)):
        way = (part.processor, target)
        edges.add(way)
        time = problem.transfer_time(value, part, target)
        if problem.routes[way].has_dma:
            channels[way] = channels.get(way, 0) + time
        else:
            loads[target] += time
    if stage_order(len(problem.names), edges) is None:
        return None
    return max([*loads, *channels.values()], default=0)


def stage_order(count: int, edges: Iterable[tuple[int, int]]) -> tuple[int, ...] | None:
    """Return the processors in an order in which values only move forward, or None if there is none."""
    left, order, behind = list(range(count)), list[int](), set(edges)
    while left:
        free = next((p for p in left if not any(q == p and o in left for o, q in behind)), None)
        if free is None:
            return None
        order.append(free)
        left.remove(free)
    return tuple(order)
