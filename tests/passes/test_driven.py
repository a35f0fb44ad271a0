"""Times of a core that starts accelerators and waits for them, against events played one by one; better orders."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from codegen_c.lowering.driver_waits import with_waits
from codegen_c.program.steps import DriverWait, KernelCall
from relay_passes.solvers.processors.assign import assign_processors
from relay_passes.solvers.processors.driven import Driving, driven, driven_makespan
from relay_passes.solvers.processors.problem import ProcessorProblem, Route
from tests.arena.programs import call, program
from tests.arena.test_validate_drivers import started
from tests.support.processor_problems import problem_of, whole
from tvm_ext.core.time_model import CALL_CYCLES, Event, finish_cycles

DRIVING = Driving(accelerators=frozenset([1]), call_time=CALL_CYCLES)


def random_tasks(seed: int, count: int) -> tuple[ProcessorProblem, list[tuple[int, int]]]:
    random = Random(seed)
    tasks = [
        [whole(0, random.randrange(10, 400)), *([whole(1, CALL_CYCLES + random.randrange(10, 200))] * (n % 3 > 0))]
        for n in range(count)
    ]
    edges = [(one, other) for other in range(count) for one in range(other) if random.random() < 0.3]
    return problem_of(tasks, edges), edges


def played(
    problem: ProcessorProblem, edges: Sequence[tuple[int, int]], forms: Sequence[int], order: Sequence[int]
) -> float:
    """Cycles of the same tasks as steps of a program with its waits, by the model that predicts programs."""
    sizes = {f"v{task}": 16 for task in range(len(forms))} | {"y": 16}
    steps: list[KernelCall] = []
    for task in order:
        reads = " ".join(f"v{one}" for one, other in edges if other == task)
        make = started if problem.tasks[task].forms[forms[task]].parts[0].processor else call
        steps.append(make(f"t{task}", reads, f"v{task}"))
    events: list[Event] = []
    for step in with_waits(program(sizes, *steps, inputs="", outputs="")).steps:
        if isinstance(step, DriverWait):
            events.append(Event(kind="wait", unit="npu"))
            continue
        part = problem.tasks[int(step.name[1:])].forms[forms[int(step.name[1:])]].parts[0]
        driven_by = {"kind": "start", "unit": "npu", "cycles": part.time - CALL_CYCLES}
        events.append(Event(**driven_by) if part.processor else Event(kind="run", cycles=part.time))  # pyright: ignore[reportArgumentType]
    return finish_cycles(events)


@pytest.mark.parametrize("seed", range(20))
def test_makespan_is_that_of_the_program(seed: int) -> None:
    problem, edges = random_tasks(seed, 7)
    random = Random(seed)
    forms = [random.randrange(len(task.forms)) for task in problem.tasks]
    assert driven_makespan(problem, DRIVING, forms, range(7)) == played(problem, edges, forms, range(7))


@pytest.mark.parametrize("seed", range(20))
def test_found_orders_are_better_and_right(seed: int) -> None:
    problem, edges = random_tasks(seed, 7)
    found = assign_processors(problem, "makespan", use_solver=False)
    assert found is not None
    better = driven(problem, DRIVING, found)
    assert sorted(better.sequence) == list(range(7))
    place = {task: number for number, task in enumerate(better.sequence)}
    assert all(place[one] < place[other] for one, other in edges)
    assert found.bound <= better.value == played(problem, edges, better.forms, better.sequence)
    assert better.value <= driven_makespan(problem, DRIVING, found.forms, found.sequence)
    kept = driven(problem, DRIVING, found, in_order=True)
    assert kept.sequence == found.sequence and kept.value >= better.value


def test_a_call_moves_before_work_that_would_delay_it() -> None:
    """The core computes 30 and 500 beside; the second call needs the first, and starts before the 500."""
    tasks = [[whole(1, 124)], [whole(0, 30)], [whole(0, 500)], [whole(1, 124)]]
    problem = problem_of(tasks, [(0, 3)])
    found = assign_processors(problem, "makespan", use_solver=False)
    assert found is not None
    late = driven_makespan(problem, DRIVING, found.forms, (0, 1, 2, 3))
    better = driven(problem, DRIVING, found)
    assert (late, better.sequence.index(3) < better.sequence.index(2)) == (24 + 30 + 500 + 24 + 124, True)
    assert better.value == 124 + 24 + 500 + 24


def test_moves_take_the_core_s_time_once() -> None:
    """A value that two calls read goes to their memory once, and what they make comes back for the core."""
    tasks = [[whole(0, 100)], [whole(1, 50)], [whole(1, 50)], [whole(0, 10)]]
    route = Route(transfer_time=7)
    problem = problem_of(tasks, [(0, 1), (0, 2), (1, 3), (2, 3)], route=route)
    total = driven_makespan(problem, DRIVING, (0, 0, 0, 0), (0, 1, 2, 3))
    assert total == 100 + 7 + 50 + 50 + 7 + 7 + 10
