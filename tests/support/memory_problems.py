"""Random graphs of operators over two memories, for the search that places their values, weights and scratch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import DOUBLE_WORDS, KernelTime, TimeModel


def always_on(dtcm_bytes: int = 0x1_0000, *, dma: bool = True) -> Platform:
    """The shipped platform with another fast memory, or without its DMA."""
    platform = Platform.load("always_on")
    memories = tuple(
        replace(memory, capacity_bytes=dtcm_bytes) if memory.name == "dtcm" else memory for memory in platform.memories
    )
    links = tuple(link for link in platform.links if dma or not link.dma)
    return replace(platform, memories=memories, links=links)


def random_problem(seed: int, num_steps: int, *, near_bytes: int = 24_000, dma: bool = True) -> AssignmentProblem:
    """Operators in a chain with connections that reach back, of the costs that convolutions have."""
    random = np.random.default_rng(seed)
    sizes, steps = [int(random.integers(1, 12)) * 1000], []
    for index in range(num_steps):
        reads = {index} if random.random() < 0.85 else {int(random.integers(index + 1))}
        if random.random() < 0.3:
            reads.add(int(random.integers(index + 1)))
        sizes.append(int(random.integers(1, 12)) * 1000)
        weights = int(random.integers(0, 3)) * int(random.integers(200, 9000))
        scratch = int(random.integers(0, 2)) * 600
        value = min(reads)
        steps.append(
            Step(
                cycles=float(random.integers(5_000, 120_000)),
                reads={value: int(sizes[value] * random.uniform(1, 9)) for value in sorted(reads)},
                writes={index + 1: sizes[index + 1]},
                kernel=KernelTime.of(DOUBLE_WORDS),
                weights_bytes=weights,
                weights_read_bytes=weights * int(random.integers(1, 60)),
                scratch_bytes=scratch,
                scratch_access_bytes=scratch * 20,
                shared={value: min(sizes[value], sizes[index + 1])} if random.random() < 0.3 else {},
                movable=bool(random.random() < 0.95),
            )
        )
    read = {value for step in steps for value in step.reads}
    return AssignmentProblem(
        steps=tuple(steps), sizes=tuple(sizes), outputs=frozenset(set(range(1, len(sizes))) - read),
        default_memory="sram",
        near=("dtcm",), limits={"sram": 1 << 30, "dtcm": near_bytes}, stored="flash",
        time=TimeModel(platform=always_on(dma=dma)),
    )  # fmt: skip


def on_two_cores(problem: AssignmentProblem, seed: int, *, dma: bool) -> AssignmentProblem:
    """The same steps on two cores by chance; the near memory belongs to the second, half as fast as the first."""
    platform, random = problem.time.platform, np.random.default_rng(seed)
    second = replace(platform.processor, name="cpu1", clock_hz=platform.processor.clock_hz // 2)
    others = [link for link in platform.links if link.target != "dtcm" or link.source != "cpu"]
    links = [link for link in others if dma or not link.dma]
    links += [replace(link, source="cpu1") for link in platform.links if link.source == "cpu"]
    cores = replace(platform, processors=(platform.processor, second), links=tuple(links))
    steps = [replace(step, processor="cpu1" if random.random() < 0.6 else "") for step in problem.steps]
    return replace(problem, steps=tuple(steps), time=TimeModel(platform=cores))


def in_sequences(problem: AssignmentProblem) -> AssignmentProblem:
    """The same with some steps that stand together, as those of a split sequence do."""
    steps = [
        replace(step, together=index % 5 in (2, 3) and index > 0, movable=index % 5 not in (1, 2, 3))
        for index, step in enumerate(problem.steps)
    ]
    return replace(problem, steps=tuple(steps))
