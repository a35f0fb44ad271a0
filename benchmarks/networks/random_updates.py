"""Random problems of several memories: networks of the shapes that the zoo has, on platforms that nobody makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from tvm_ext.core.kernel_time import DOUBLE_WORDS, KernelTime
from tvm_ext.core.platform import Memory, Platform
from tvm_ext.core.time_model import TimeModel

NEAREST = ("dtcm", "tcm")
TIGHT = 0.15
"""Part of the networks that do not fit in the default memory alone."""


def random_platform(random: np.random.Generator) -> Platform:
    """Fast memories before a slower one, weights in a slower one still, with a DMA between most of them or without."""
    platform = Platform.load("always_on")
    rates = {"sram": 2.0 ** random.integers(0, 3), "flash": 2.0 ** random.integers(-2, 2)}
    latencies = {"sram": int(random.integers(1, 12)), "flash": int(random.integers(8, 60))}
    near = NEAREST[: int(random.integers(1, 3)) if random.random() < 0.5 else 1]
    rates |= {name: 8.0 / (1 + index) for index, name in enumerate(near)}
    latencies |= {name: 2 * index for index, name in enumerate(near)}
    known = {memory.name: memory for memory in platform.memories}

    def memory(name: str) -> Memory:
        base = known.get(name, known["dtcm"])
        rate = rates.get(name, base.read_bytes_per_cycle)
        writes = rate if base.kind == "ram" else 0
        return replace(
            base, name=name, read_bytes_per_cycle=rate, write_bytes_per_cycle=writes,
            latency_cycles=latencies.get(name, base.latency_cycles),
            section=f".bss.{name}" if name in near else base.section,
        )  # fmt: skip

    names = ("code", *near, "sram", "flash")
    with_dma = random.random() < 0.85
    link = platform.links[0]
    links = [
        replace(link, target=name, bytes_per_cycle=max(rates.get(name, 4), 0.25), latency_cycles=latencies.get(name, 0))
        for name in names
    ]
    pairs = [(a, b) for a in ("sram", "flash", *near) for b in ("sram", *near) if a != b]
    links += [
        replace(
            link, source=a, target=b, bytes_per_cycle=min(rates[a], rates[b]),
            latency_cycles=max(latencies[a], latencies[b]) + 12, dma=True,
        )
        for a, b in pairs
        if with_dma
    ]  # fmt: skip
    return replace(platform, memories=tuple(memory(name) for name in names), links=tuple(links))


def random_update(seed: int, num_steps: int) -> AssignmentProblem:
    """Steps of layers whose images shrink as their channels grow, with connections back, and limits of all memories."""
    random = np.random.default_rng(seed)
    platform = random_platform(random)
    sizes, steps = [int(random.integers(1, 40)) * 512], list[Step]()
    pixels, channels, back = int(random.integers(6, 40)) ** 2, int(random.integers(3, 24)), random.uniform(0, 0.5)
    macs_a_cycle = 2.0 ** random.uniform(1, 5)
    for index in range(num_steps):
        kind = random.choice(4, p=(0.35, 0.35, 0.15, 0.15))  # pointwise, depthwise, convolution, elementwise
        if kind != 3 and random.random() < 4 / num_steps and pixels > 8:
            pixels, channels = max(1, pixels // 4), channels * 2
        wide = channels * int(random.choice((1, 1, 2, 4, 6))) if kind == 0 else channels
        size = min(pixels * wide, 400_000)
        sizes.append(size)
        reach = max(0, index - int(random.integers(1, 4 + num_steps // 4)))
        reads = {index if random.random() < 0.9 else reach}
        if kind == 3 or random.random() < back * 0.3:
            reads.add(int(random.integers(reach, index + 1)))
        value, taps = max(reads), (1, 9, 9, 1)[kind]
        macs = size * taps * (1 if kind in (1, 3) else max(1, sizes[value] // max(1, pixels)))
        weights = 0 if kind == 3 else wide * taps * (1 if kind == 1 else max(1, sizes[value] // max(1, pixels)))
        weights = min(weights, 60_000)
        scratch = int(random.choice((0, 0, 256, 1024, 4096))) if kind in (0, 2) else 0
        again = 1 if kind == 3 else taps * random.uniform(0.3, 1) if kind != 0 else random.uniform(1, 8)
        steps.append(
            Step(
                cycles=min(macs, 4_000_000) / macs_a_cycle + 200,
                reads={one: int(sizes[one] * (again if one == value else 1)) + 1 for one in sorted(reads)},
                writes={index + 1: size}, kernel=KernelTime.of(DOUBLE_WORDS), weights_bytes=weights,
                weights_read_bytes=int(weights * random.choice((1, 2, 8, max(1, min(pixels, 64))))),
                scratch_bytes=scratch, scratch_access_bytes=scratch * int(random.integers(2, 40)),
                shared={value: min(sizes[value], size)} if kind == 3 else {}, movable=bool(random.random() < 0.97),
            )
        )  # fmt: skip
    read = {value for step in steps for value in step.reads}
    near = tuple(memory.name for memory in platform.memories if memory.name in NEAREST)
    problem = AssignmentProblem(
        steps=tuple(steps), sizes=tuple(sizes), outputs=frozenset(set(range(1, len(sizes))) - read), home="sram",
        near=near, limits={}, stored="flash", time=TimeModel(platform=platform),
    )  # fmt: skip
    return within_peak(problem, random, tight=TIGHT)


def within_peak(problem: AssignmentProblem, random: np.random.Generator, *, tight: float = 0.0) -> AssignmentProblem:
    """The problem with near memories from a 16th of its peak on.

    tight: likelihood that home is smaller than the peak, too.
    """
    roomy = replace(problem, limits={"sram": 1 << 30, **dict.fromkeys(problem.near, 0)})
    peak = max(roomy.usage(roomy.at_home())["sram"])
    limits = {name: int(peak * 2.0 ** random.uniform(-4, 0.5)) for name in problem.near}
    home = int(peak * random.uniform(0.8, 1)) if random.random() < tight else 1 << 30
    return replace(problem, limits={"sram": home, **limits})
