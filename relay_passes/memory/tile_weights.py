"""Compute layers in tiles of output channels, so that the weights of a tile fit a fast memory that all do not fit.

Rewrite:
    y = conv(x)
      ->  y.channels_0_16 = conv_channels_0_16(x); y.channels_16_32 = conv_channels_16_32(x); ...
          y = join_conv(y.channels_0_16, y.channels_16_32, ...)
    Each tile has its channels of the weights, so `AssignMemories` decides about the copy of each: while a tile runs,
    the weights of the next are copied into the other of two buffers. A kernel that can write pixels with gaps writes
    its tile to its place in y; then nothing is joined.
Leaves alone: layers in row sequences or column strips, with groups or with further operands; weights whose direct
    read costs little; layers for which no tiles make the run faster. No bit of a result changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import tvm
from tvm import relax

from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.analysis.output_channels import computing_channels, layer_channels
from relay_passes.backend import Backend
from relay_passes.dataflow import static_shape, with_main
from relay_passes.memory import strip_composites
from relay_passes.memory.main_writer import MainWriter
from relay_passes.searched import Searched
from relay_passes.solvers.memories.assignment import Assignment
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.search import assign, assign_quickly
from relay_passes.solvers.memories.state import Score
from tvm_ext.core.decisions.composites import (
    ColumnStrip,
    JoinedTiles,
    ModelTensor,
    RowSplit,
    SourceNodes,
    StorageLayout,
)
from tvm_ext.core.row_access import Columns

LEAST_GAIN = 0.01
"""Fraction of the predicted time. Direct reads that cost less are left, and tiles that gain less are not taken."""
MOST_TILES = 32
GRANULE = 4
"""Number of channels that kernels compute at a time: a tile of other sizes would take more instructions."""
MOST_LAYERS = 4
"""Most layers of a model for which tiles are tried, those that lose the most time first."""


@dataclass(frozen=True, kw_only=True)
class AssignedModule:
    """A module, its problem of several memories, and a solution.

    hosts: the host of each value that lies among the rows of another value.
    """

    known: Searched
    problem: AssignmentProblem
    hosts: Mapping[int, int]
    found: Assignment

    @cached_property
    def score(self) -> Score:
        return Score(self.problem.overflow(self.found), self.problem.predicted_cycles(self.found))


Planned = Callable[[Searched, Callable[[AssignmentProblem], Assignment]], AssignedModule]
"""Makes the plan of a module with a search for assignments."""


def with_tiles(plan: AssignedModule, backend: Backend, planned: Planned) -> AssignedModule:
    """Return the plan with layers in tiles where that makes the run faster, or else the plan itself.

    Tiles are ranked by quick assignments; the assignment of the best is then searched.
    """
    layers = [layer for _, layer in sorted(_losing(plan, backend), key=lambda one: -one[0])[:MOST_LAYERS]]
    if not layers:
        return plan
    quick = planned(plan.known, assign_quickly)
    taken = dict[str, int]()
    for layer in layers:
        for tile in layer.tile_sizes(plan):
            chosen = {**taken, layer.name: tile}
            module = tiled(plan.known.mod, plan.known.operators, backend, chosen)
            tried = planned(Searched(mod=module, backend=backend), assign_quickly) if module else None
            if tried and tried.score < quick.score:
                quick, taken = tried, chosen
    if not taken:
        return plan
    best = planned(quick.known, assign)
    return best if best.score < Score(plan.score.overflow, plan.score.cycles * (1 - LEAST_GAIN)) else plan


@dataclass(frozen=True, kw_only=True)
class _Layer:
    """A layer that may be computed in tiles. name: of its composite."""

    name: str
    index: int
    channels: int
    weights_bytes: int

    def tile_sizes(self, plan: AssignedModule) -> Iterator[int]:
        """Yield numbers of channels: tiles of which two fit what a memory has free, or what it has in all."""
        problem = plan.problem
        used, found = problem.usage(plan.found), set[int]()
        for memory in (*problem.near, problem.default_memory):
            if problem.time.has_dma(problem.stored, memory):
                limit = problem.limits[memory]
                for room in (limit - used[memory][self.index], limit, limit // 2):
                    tile = room // 2 * self.channels // self.weights_bytes // GRANULE * GRANULE
                    if tile >= GRANULE:
                        count = max(2, -(-self.channels // tile))
                        tile = -(-self.channels // count)
                        found.add(min(-(-tile // GRANULE) * GRANULE, self.channels))
        yield from sorted(t for t in found if t < self.channels <= t * MOST_TILES)


def _losing(plan: AssignedModule, backend: Backend) -> Iterator[tuple[float, _Layer]]:
    """Yield the layers whose weights do not fit well, with the cycles that they lose for certain.

    These read their weights where they are stored, or a copy that takes more than half of its memory.
    """
    problem, operators = plan.problem, plan.known.operators
    memories = [m for m in (*problem.near, problem.default_memory) if problem.time.has_dma(problem.stored, m)]
    for index, step in enumerate(problem.steps):
        composite = operators.composites[index]
        there = [m for m in memories if problem.reaches(index, m)]
        if composite is None or not there or not step.weights_read_bytes:
            continue
        if not step.movable or step.processor:
            continue
        if RowSplit.read(composite).sequence or ColumnStrip.read(composite).columns is not None:
            continue
        copy, lost = plan.found.weights.get(index), 0.0
        if copy is None:
            fast = min(problem.weights_cycles(index, memory) for memory in there)
            lost = problem.weights_cycles(index, problem.stored) - fast
        loses = lost >= LEAST_GAIN * plan.score.cycles
        crowds = copy is not None and 2 * step.weights_bytes > problem.limits[copy.memory]
        channels = layer_channels(composite, backend.elementwise) if loses or crowds else 0
        if channels:
            name = operators.steps[index][0].value.op.name_hint
            yield lost, _Layer(name=name, index=index, channels=channels, weights_bytes=step.weights_bytes)


def in_tiles(problem: AssignmentProblem, operators: OperatorGraph) -> tuple[AssignmentProblem, dict[int, int]]:
    """Return the problem in which tiles are known as such, and the host of each tile's result.

    Tiles whose kernel can write pixels with gaps are written to their places in the joined value. This value takes
    bytes from the first tile on. It is made by the step that joins, which costs nothing else.
    """
    steps, sizes, begun, hosts = [*problem.steps], [*problem.sizes], {**problem.begun}, dict[int, int]()
    for index, composite in enumerate(operators.composites):
        if composite is None or not JoinedTiles.read(composite).tiles:
            continue
        parts, (whole,) = [*steps[index].reads], steps[index].writes
        makers = [problem.makers[part] for part in parts]
        for maker in makers[1:]:
            steps[maker] = replace(steps[maker], continues=True)
        if not all(_can_write_apart(operators, maker) for maker in makers):
            continue
        hosts |= dict.fromkeys(parts, whole)
        begun[whole] = makers[0]
        for part, maker in zip(parts, makers, strict=True):
            steps[maker], sizes[part] = replace(steps[maker], writes={}, shared={}), 0
        steps[index] = replace(steps[index], cycles=0.0, reads={}, shared={}, kernel=steps[makers[0]].kernel)
    return replace(problem, steps=tuple(steps), sizes=tuple(sizes), begun=begun), hosts


def _can_write_apart(operators: OperatorGraph, step: int) -> bool:
    """Return True where the results of a step are one pixel, or pixels that its kernel can write with gaps."""
    composite, shape = operators.composites[step], static_shape(operators.steps[step][0].var)
    is_pixel = math.prod(shape[:-1]) == 1
    return is_pixel or (composite is not None and operators.backend.footprint(composite).writes_apart)


def tiled(
    mod: tvm.IRModule, operators: OperatorGraph, backend: Backend, tiles: Mapping[str, int]
) -> tvm.IRModule | None:
    """Return the module with layers in tiles, or None where a float tile would add up in another order.

    tiles: number of channels of a tile by the layer's composite.
    """
    module = mod.clone()
    main = MainWriter(module, operators)
    for (computing, *views), composite in zip(operators.steps, operators.composites, strict=True):
        size = tiles.get(computing.value.op.name_hint)
        if composite is None or size is None:
            main.bound.append(computing)
        elif not _write(main, computing, composite, size, backend):
            return None
        main.bound += views
    return with_main(module, main.function())


def _write(
    main: MainWriter, computing: relax.VarBinding, composite: relax.Function, size: int, backend: Backend
) -> bool:
    """Write a layer's tiles and join them. Return False where a tile's kernel may round differently."""
    name, call = computing.value.op.name_hint, computing.value
    shape, parts = static_shape(computing.var), list[relax.Var]()
    whole, tensor = backend.footprint(composite), ModelTensor.read(composite).name or computing.var.name
    for begin in range(0, shape[-1], size):
        made: Columns = begin, min(begin + size, shape[-1])
        ending = f"channels_{made[0]}_{made[1]}"
        function = computing_channels(composite, made)
        assert function is not None, "the layer's channels were separated before"
        footprint = backend.footprint(function)
        if footprint.computes_floats and footprint.kernel != whole.kernel:
            return False
        function = ModelTensor(name=f"{tensor}.{ending}").write(function)
        parts.append(
            main.bind(f"{computing.var.name}.{ending}", main.call(f"{name}_{ending}", function, call.args, call.span))
        )
    nodes, layout = SourceNodes.read(composite).nodes, StorageLayout.read(composite)
    joining = strip_composites.joining(parts, nodes, layout, len(shape) - 1)
    joining = JoinedTiles(tiles=len(parts)).write(ModelTensor.read(composite).write(joining))
    main.bound.append(relax.VarBinding(computing.var, main.call(f"join_{name}", joining, parts, call.span)))
    return True
