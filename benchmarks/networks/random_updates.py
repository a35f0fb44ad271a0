"""Random problems of several memories: networks of the shapes that the zoo has, on platforms that nobody makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from relay_passes.solvers.graph import Graph, Node
from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.recompute.in_rows import unrolled
from relay_passes.solvers.split.segments import RowFacts, Segments
from tvm_ext.core.platform import Memory, Platform
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.row_sequence import RowOperator, RowReader
from tvm_ext.core.time_model import DOUBLE_WORDS, CallCost, KernelTime, TimeModel

NEAREST = ("dtcm", "tcm")
MOST_BYTES = 400_000
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


@dataclass(frozen=True, kw_only=True)
class RandomUpdate:
    """A network on a platform. problem: its layers whole, in order; rows: what of them can run row by row."""

    problem: AssignmentProblem
    rows: RowFacts

    @cached_property
    def graph(self) -> Graph:
        problem = self.problem
        nodes = (
            Node(
                reads=tuple(step.reads), writes=tuple(step.writes), extra_bytes=step.scratch_bytes,
                shared_bytes=step.shared,
            )
            for step in problem.steps
        )  # fmt: skip
        return Graph(nodes=tuple(nodes), sizes=problem.sizes, inputs=frozenset({0}), outputs=problem.outputs)

    def segments(self, sequence: tuple[int, ...]) -> Segments:
        """The ways to cut a sequence of the layers, some of them again."""
        return Segments(unrolled(self.graph, sequence), self.rows.of(sequence))


@dataclass(frozen=True, kw_only=True)
class _Image:
    """A value: so many rows, each of so many pixels of channels, a byte each."""

    rows: int
    channels: int

    @property
    def size(self) -> int:
        return self.rows * self.rows * self.channels


def random_update(seed: int, num_steps: int) -> RandomUpdate:
    """Layers whose images shrink as their channels grow, with connections back, and limits of all memories."""
    random = np.random.default_rng(seed)
    platform = random_platform(random)
    images = [_Image(rows=int(random.integers(6, 57)) * 2, channels=int(random.integers(1, 24)))]
    steps, operators, added = list[Step](), list[RowOperator | None](), list[int]()
    back, macs_a_cycle = random.uniform(0, 0.5), 2.0 ** random.uniform(1, 5)
    channels = images[0].channels
    for index in range(num_steps):
        kind = random.choice(4, p=(0.35, 0.35, 0.15, 0.15))  # pointwise, depthwise, convolution, elementwise
        reach = max(0, index - int(random.integers(1, 4 + num_steps // 4)))
        value = index if random.random() < 0.9 else reach
        source = images[value]
        shrinks = kind != 3 and random.random() < 4 / num_steps and source.rows > 4
        channels = min(channels * 2, 256) if shrinks else channels
        stride, taps = 2 if shrinks else 1, (1, 3, 3, 1)[kind]
        wide = channels * int(random.choice((1, 1, 2, 4, 6))) if kind in (0, 2) else source.channels
        made = _Image(rows=-(-source.rows // stride), channels=min(wide, MOST_BYTES // source.rows**2 + 1))
        images.append(made)
        reads = {value: int(source.size * (taps * taps * random.uniform(0.3, 1) if kind else random.uniform(1, 8))) + 1}
        if kind == 3 or random.random() < back * 0.3:
            other = int(random.integers(reach, index + 1))
            reads.setdefault(other, images[other].size + 1)
        depth = 1 if kind in (1, 3) else source.channels
        weights = 0 if kind == 3 else min(made.channels * taps * taps * depth, 60_000)
        scratch = int(random.choice((0, 0, 256, 1024, 4096))) if kind in (0, 2) else 0
        steps.append(
            Step(
                cycles=min(made.size * taps * taps * depth, 4_000_000) / macs_a_cycle + 200,
                reads=reads, writes={index + 1: made.size}, kernel=KernelTime.of(DOUBLE_WORDS), weights_bytes=weights,
                weights_read_bytes=int(weights * random.choice((1, 2, 8, max(1, min(made.rows**2, 64))))),
                scratch_bytes=scratch, scratch_access_bytes=scratch * int(random.integers(2, 40)),
                shared={value: min(source.size, made.size)} if kind == 3 else {},
                movable=bool(random.random() < 0.97),
            )
        )  # fmt: skip
        operators.append(_by_rows([images[one] for one in reads], made, taps, stride))
        added.append(int(weights * random.uniform(0, 2)))
    read = {value for step in steps for value in step.reads}
    near = tuple(memory.name for memory in platform.memories if memory.name in NEAREST)
    problem = AssignmentProblem(
        steps=tuple(steps), sizes=tuple(image.size for image in images),
        outputs=frozenset(set(range(1, len(images))) - read), default_memory="sram",
        near=near, limits={}, stored="flash",
        time=TimeModel(platform=platform),
    )  # fmt: skip
    rows = RowFacts(
        operators=tuple(operators), accumulations=(None,) * num_steps,
        calls=lambda index, rows, _: CallCost(
            scratch_bytes=steps[index].scratch_bytes, added_instructions=added[index] // rows
        ),
    )  # fmt: skip
    return RandomUpdate(problem=within_peak(problem, random, tight=TIGHT), rows=rows)


def _by_rows(sources: Sequence[_Image], made: _Image, taps: int, stride: int) -> RowOperator | None:
    """A layer by rows, and those of its operands that each reads; None where these have different numbers of them."""
    if len({source.rows for source in sources}) > 1:
        return None
    access = RowAccess.sliding(sources[0].rows, made.rows, taps=taps, stride=stride, padding=taps // 2)
    readers = tuple(RowReader(access=access, lag=access.lag if taps == 1 else None) for _ in sources)
    return RowOperator(num_rows=made.rows, readers=readers)


def within_peak(problem: AssignmentProblem, random: np.random.Generator, *, tight: float = 0.0) -> AssignmentProblem:
    """The problem with near memories from a 16th of its peak on.

    tight: likelihood that home is smaller than the peak, too.
    """
    roomy = replace(problem, limits={"sram": 1 << 30, **dict.fromkeys(problem.near, 0)})
    peak = max(roomy.usage(roomy.at_home())["sram"])
    limits = {name: int(peak * 2.0 ** random.uniform(-4, 0.5)) for name in problem.near}
    home = int(peak * random.uniform(0.8, 1)) if random.random() < tight else 1 << 30
    return replace(problem, limits={"sram": home, **limits})
