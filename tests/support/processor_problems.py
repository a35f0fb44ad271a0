"""Problems of sharing tasks among processors, and what the best of a small one is, counted in ways of its own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product
from random import Random

from relay_passes.solvers.processors.problem import (
    FormPart,
    ProcessorProblem,
    Route,
    Task,
    TaskForm,
    TaskValue,
)


def whole(processor: int, time: int, energy: int | None = None) -> TaskForm:
    """A task on one processor."""
    return TaskForm(parts=(FormPart(processor=processor, time=time, energy=energy),))


def halves(*times: int) -> TaskForm:
    """A task in equal parts on processors 0, 1 and so on."""
    share = 1000 // len(times)
    return TaskForm(parts=tuple(FormPart(processor=p, time=time, share=share) for p, time in enumerate(times)))


def problem_of(
    tasks: Sequence[Sequence[TaskForm]],
    edges: Sequence[tuple[int, int]] = (),
    *,
    route: Route = Route(),  # noqa: B008
    size_bytes: int = 10,
    processors: int = 2,
) -> ProcessorProblem:
    """Tasks by their forms; a task's value is read by all it has edges to."""
    readers: dict[int, list[int]] = {}
    for maker, reader in edges:
        readers.setdefault(maker, []).append(reader)
    return ProcessorProblem(
        names=tuple(f"cpu{p}" for p in range(processors)), powers=(1,) * processors,
        tasks=tuple(Task(forms=tuple(forms), weights_bytes=size_bytes) for forms in tasks),
        values=tuple(TaskValue(maker=m, readers=tuple(r), size_bytes=size_bytes) for m, r in sorted(readers.items())),
        routes={(p, q): route for p in range(processors) for q in range(processors) if p != q},
    )  # fmt: skip


def random_problem(
    seed: int,
    tasks: int,
    *,
    processors: int = 2,
    splits: bool = True,
    transfers: bool = True,
    equal: bool = False,
    series_parallel: bool = False,
) -> ProcessorProblem:
    """A random graph; some tasks cannot run everywhere.

    equal: processors are equally fast, signals short. series_parallel: branches that fork and meet again, as networks
    have them; else values are read by any tasks that come soon.
    """
    random = Random(seed)
    speed = [1.0 if equal else random.choice((0.5, 1.0, 1.0, 2.0)) for _ in range(processors)]
    made: list[Task] = []
    for _ in range(tasks):
        work = random.randrange(5, 100)
        able = [p for p in range(processors) if equal or random.random() < 0.9] or [random.randrange(processors)]
        times = {p: max(1, int(work * speed[p] * (1 if equal else random.uniform(0.7, 1.4)))) for p in able}
        forms = [whole(p, time, random.choice((None, 3 * time))) for p, time in times.items()]
        if splits and len(able) > 1 and random.random() < 0.4:
            share = random.choice((300, 500, 700))
            parts = [(p, s) for p, s in zip(able[:2], (share, 1000 - share), strict=True)]
            forms.append(
                TaskForm(
                    parts=tuple(
                        FormPart(processor=p, time=times[p] * s // 1000 + 2, share=s) for p, s in parts
                    )
                )
            )  # fmt: skip
        made.append(Task(forms=tuple(forms), weights_bytes=random.randrange(1000)))
    values = (_series_parallel_values if series_parallel else _random_values)(random, tasks)
    routes = {
        (p, q): Route(
            signal_time=random.randrange(1, 4) if equal else random.randrange(12),
            transfer_time=random.randrange(4) if transfers else 0,
            time_per_byte=random.choice((0.0, 0.1, 0.5)) if transfers else 0.0,
            energy_per_byte=random.choice((0.0, 0.7)),
            has_dma=random.random() < 0.3,
        )
        for p in range(processors)
        for q in range(processors)
        if p != q
    }  # fmt: skip
    powers = tuple(random.randrange(1, 6) for _ in range(processors))
    return ProcessorProblem(
        names=tuple(f"cpu{p}" for p in range(processors)), powers=powers, tasks=tuple(made), values=tuple(values),
        routes=routes,
    )  # fmt: skip


def _random_values(random: Random, tasks: int) -> list[TaskValue]:
    values: list[TaskValue] = []
    for maker in range(tasks - 1):
        later = range(maker + 1, min(tasks, maker + 1 + random.choice((2, 4, 8))))
        for _ in range(random.choice((1, 1, 1, 2))):
            readers = sorted({random.choice(later) for _ in range(random.choice((1, 1, 2, 3)))})
            values.append(TaskValue(maker=maker, readers=tuple(readers), size_bytes=random.randrange(1, 64)))
    return values


def _series_parallel_values(random: Random, tasks: int) -> list[TaskValue]:
    """A value of each task but the last, read by all that follow it."""
    readers: dict[int, list[int]] = {}
    for maker, reader in _series_parallel_edges(random, 0, tasks):
        readers.setdefault(maker, []).append(reader)
    return [
        TaskValue(maker=maker, readers=tuple(sorted(own)), size_bytes=random.randrange(1, 64))
        for maker, own in sorted(readers.items())
    ]


def _series_parallel_edges(random: Random, begin: int, end: int) -> list[tuple[int, int]]:
    """Edges among tasks [begin, end) of a graph that one of them begins and one ends."""
    if end - begin < 4:
        return [(task, task + 1) for task in range(begin, end - 1)]
    if random.random() < 0.4:
        middle = random.randrange(begin + 1, end)
        halves = _series_parallel_edges(random, begin, middle), _series_parallel_edges(random, middle, end)
        return [*halves[0], (middle - 1, middle), *halves[1]]
    count = min(random.choice((2, 2, 3)), end - begin - 2)
    cuts = [begin + 1, *sorted(random.sample(range(begin + 2, end - 1), count - 1)), end - 1]
    edges = [(begin, end - 1)] if random.random() < 0.3 else []
    for first, behind in pairwise(cuts):
        edges += [(begin, first), *_series_parallel_edges(random, first, behind), (behind - 1, end - 1)]
    return edges


Lists = dict[int, list[int]]
"""Tasks of each processor, in order."""


def run(problem: ProcessorProblem, forms: Sequence[int], lists: Lists) -> int | None:
    """Makespan of given lists by running all processors beside each other; None if they wait for each other."""
    parts = {
        (task, part.processor): part
        for task, form in enumerate(forms)
        for part in problem.tasks[task].forms[form].parts
    }
    done: dict[tuple[int, int], int] = {}
    there: dict[tuple[int, int, int], int] = {}
    clock, channel, place = dict.fromkeys(lists, 0), {}, dict.fromkeys(lists, 0)
    moved = True
    while moved:
        moved = False
        for q in lists:
            while place[q] < len(lists[q]):
                task = lists[q][place[q]]
                read = [v for v, value in enumerate(problem.values) if task in value.readers]
                pieces = [(v, p) for v in read for t, p in parts if t == problem.values[v].maker]
                if any((problem.values[v].maker, p) not in done for v, p in pieces):
                    break
                moved, wait, wanted = True, 0, []
                for v, p in pieces:
                    end = done[problem.values[v].maker, p]
                    if p == q:
                        wait = max(wait, end)
                    elif (v, p, q) in there:
                        wait = max(wait, there[v, p, q])
                    else:
                        wanted.append((end + problem.routes[p, q].signal_time, end, v, p))
                for _, end, v, p in sorted(wanted):
                    route = problem.routes[p, q]
                    share = parts[problem.values[v].maker, p].share
                    bytes_ = math.ceil(problem.values[v].size_bytes * share / 1000)
                    time = route.transfer_time + math.ceil(route.time_per_byte * bytes_)
                    if time and route.has_dma:
                        channel[p, q] = max(channel.get((p, q), 0), end) + time
                        there[v, p, q] = channel[p, q] + route.signal_time
                    elif time:
                        clock[q] = max(clock[q], end + route.signal_time) + time
                        there[v, p, q] = clock[q]
                    else:
                        there[v, p, q] = end + route.signal_time
                    wait = max(wait, there[v, p, q])
                clock[q] = max(clock[q], wait) + parts[task, q].time
                done[task, q] = clock[q]
                place[q] += 1
    return max(clock.values()) if all(place[q] == len(lists[q]) for q in lists) else None


def energy(problem: ProcessorProblem, forms: Sequence[int]) -> int:
    """Energy of chosen forms, every piece once for each processor that reads it."""
    total, crossed = 0, set()
    chosen = [task.forms[form].parts for task, form in zip(problem.tasks, forms, strict=True)]
    for parts in chosen:
        total += sum(p.time * problem.powers[p.processor] if p.energy is None else p.energy for p in parts)
    for v, way, bytes_, time in _crossed(problem, chosen):
        assert (v, way) not in crossed
        crossed.add((v, way))
        route = problem.routes[way]
        total += math.ceil(route.energy_per_byte * bytes_) + (0 if route.has_dma else time * problem.powers[way[1]])
    return total


def interval(problem: ProcessorProblem, forms: Sequence[int]) -> int | None:
    """Interval of a pipeline; None if stages have no order, by trying all orders."""
    chosen = [task.forms[form].parts for task, form in zip(problem.tasks, forms, strict=True)]
    loads: dict[object, int] = {}
    for parts in chosen:
        for part in parts:
            loads[part.processor] = loads.get(part.processor, 0) + part.time
    crossed = list(_crossed(problem, chosen))
    for _, way, _, time in crossed:
        carrier = way if problem.routes[way].has_dma else way[1]
        loads[carrier] = loads.get(carrier, 0) + time
    orders = permutations(range(len(problem.names)))
    if not any(all(order.index(p) < order.index(q) for _, (p, q), _, _ in crossed) for order in orders):
        return None
    return max(loads.values())


def _crossed(
    problem: ProcessorProblem, chosen: Sequence[Sequence[FormPart]]
) -> Iterator[tuple[int, tuple[int, int], int, int]]:
    for v, value in enumerate(problem.values):
        for part in chosen[value.maker]:
            for q in {p.processor for reader in value.readers for p in chosen[reader]} - {part.processor}:
                route = problem.routes[part.processor, q]
                bytes_ = math.ceil(value.size_bytes * part.share / 1000)
                time = route.transfer_time + math.ceil(route.time_per_byte * bytes_)
                yield v, (part.processor, q), bytes_, time


def best_by_trying_all(problem: ProcessorProblem, objective: str) -> int | None:
    """The least value over all forms, and for the makespan over all lists."""
    least: int | None = None
    for forms in product(*(range(len(task.forms)) for task in problem.tasks)):
        if objective == "makespan":
            values = (run(problem, forms, lists) for lists in _all_lists(problem, forms))
            value = min((one for one in values if one is not None), default=None)
        else:
            value = (energy if objective == "energy" else interval)(problem, forms)
        if value is not None and (least is None or value < least):
            least = value
    return least


def _all_lists(problem: ProcessorProblem, forms: Sequence[int]) -> Iterator[Lists]:
    own: list[list[int]] = [[] for _ in problem.names]
    for task, form in enumerate(forms):
        for part in problem.tasks[task].forms[form].parts:
            own[part.processor].append(task)
    for orders in product(*map(permutations, own)):
        yield {q: list(order) for q, order in enumerate(orders)}
