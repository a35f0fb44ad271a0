"""Plan the memory of a program: lifetimes, reuse between tensors, and an offset for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from types import MappingProxyType

from codegen_c.arena.at_once import AtOnce, at_once
from codegen_c.arena.bound import live_bytes
from codegen_c.arena.lifetimes import extents, extents_while, lifetimes
from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement, peak_placements, scratch_name
from codegen_c.arena.overlap import Overlaps, distances, overlaps, too_near
from codegen_c.arena.planners import AllocationProblem, with_planners
from codegen_c.arena.problem import Buffer, Gap
from codegen_c.arena.same_offset import with_same_offsets
from codegen_c.arena.solve import Solution, optimise, optimise_at_once
from codegen_c.program.parallel import StepOrder
from codegen_c.program.program import Program, parts_of
from codegen_c.program.steps import (
    AffineRow,
    KernelCall,
    Loop,
    RowRange,
    Step,
    scratch_bytes,
    scratch_memory,
)
from codegen_c.program.tensors import Tensor
from tvm_ext.core.alignment import ALIGNMENT_BYTES, STATE_ALIGNMENT_BYTES
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.core.platform import STATE_MEMORY, Platform


@dataclass(frozen=True, kw_only=True)
class _Item:
    """A tensor or scratch that needs an offset of its own."""

    name: str
    memory: str
    buffer: Buffer
    is_scratch: bool = False


def plan_memory(
    program: Program,
    *,
    activations: str,
    held_by_caller: Iterable[str] = (),
    pinned: Mapping[str, int] | None = None,
    kept: Collection[str] = (),
    order: StepOrder | None = None,
    phased: Collection[str] = (),
    alignments: Mapping[str, int] = MappingProxyType({}),
) -> tuple[Program, MemoryPlan]:
    """Return the program and a plan with an offset for every tensor and the scratch of every kernel.

    Each memory is a packing of rectangles: bytes by steps. `lifetimes` gives the steps, `overlaps` the pairs that may
    share some bytes although both are live, and `optimise` (`arena/solve.py`) the offsets. Parts of other tensors get
    the offset inside their whole.

    The returned program has loops over single rows where an overlap needs them. activations: memory of scratch that
    names none. held_by_caller: tensors in the caller's memory, which get no offset. pinned: tensor -> its required
    offset. kept: tensors that no other tensor may ever overlap. order: order of the steps of several processors, or
    None for the program's own order. phased: tensors of a pipeline with a copy for each input in flight, which no other
    tensor may ever overlap either. alignments: memory of the platform -> alignment of its tensors in bytes, 16 by
    default. Raises BadOptions if pinned tensors overlap.
    """
    kept = [*kept, *phased]
    pins, outside = pinned or {}, set(held_by_caller)
    alive = {name: span for name, span in lifetimes(program).items() if name not in outside}
    alive |= {name: (0, max(len(program.steps), 1)) for name in kept}
    uses = at_once(program, order, kept) if order else None
    planned = _planned(program, alive, activations, pins, kept, alignments, uses)
    # Try again with intermediates in the free bytes of states, which needs a smaller arena but maybe larger states.
    if uses:  # another processor may use a state at a step in which this processor does not
        return planned
    sharing = with_intermediates_in_states(program, alive, {*pins, *kept})
    if sharing is program:
        return planned
    shared = _planned(sharing, alive, activations, pins, kept, alignments)
    if shared[1].state_bytes > planned[1].state_bytes:  # states would take more memory to retain and to save
        return planned
    return min(planned, shared, key=lambda found: found[1].arena_bytes)


def _planned(
    program: Program,
    alive: Mapping[str, tuple[int, int]],
    activations: str,
    pins: Mapping[str, int],
    kept: Collection[str],
    alignments: Mapping[str, int],
    uses: AtOnce | None = None,
) -> tuple[Program, MemoryPlan]:
    """Return the plan with every tensor in the memory that it names."""
    of_memory = {**alignments, STATE_MEMORY: STATE_ALIGNMENT_BYTES}
    items = [*_tensors(program, alive, pins, kept, of_memory), *_scratch(program, activations, of_memory)]
    may_overlap = [step.without(kept) for step in overlaps(program)]
    may_overlap = uses.kept(may_overlap) if uses else may_overlap
    placements: dict[str, Placement] = {}
    arenas: list[Arena] = []
    for memory in dict.fromkeys([activations, *(item.memory for item in items)]):
        inside = [item for item in items if item.memory == memory]
        pairs = {pair for step in may_overlap for pair in (*step.ascending, *step.descending)}
        live = live_bytes(program, alive, pairs, memory, default=activations, kept=kept)
        placed, arena = _placed(program, memory, inside, may_overlap, live, uses)
        placements |= placed
        arenas.append(replace(arena, alignment_bytes=alignments.get(arena.inside, ALIGNMENT_BYTES)))
    placements |= _parts(program, placements, alive)
    return with_directions(program, placements), MemoryPlan(placements=placements, arenas=tuple(arenas))


Pairs = frozenset[tuple[str, str]]
_NO_PAIRS: Pairs = frozenset()


def _placed(
    program: Program,
    memory: str,
    items: Sequence[_Item],
    may_overlap: Sequence[Overlaps],
    live: Sequence[int],
    uses: AtOnce | None,
) -> tuple[dict[str, Placement], Arena]:
    """Return the placements of a memory's items, and its arena.

    may_overlap: pairs of tensors that may overlap, with their distances, for each step that allows any. live: most live
    bytes at each step.
    The output of a kernel that returns to rows may overlap an input only at the same offset, which no distance states.
    If the first packing shifts the two, all is packed again without their overlap. If that takes more bytes, the two
    are also packed as one buffer (`arena/same_offset.py`), and the smaller packing is taken.
    """

    def packed(apart: Pairs, same: Pairs) -> tuple[Solution, str]:
        return _packed(memory, items, may_overlap, max(live), uses, apart, same)

    def settled(found: tuple[Solution, str], *, joins: bool) -> tuple[Solution, str]:
        apart, same = _NO_PAIRS, _NO_PAIRS
        while refused := too_near(program, _offsets(items, found[0])) - apart:
            new = refused - same if joins else _NO_PAIRS
            # A pair that is refused though it should have the same offset could not be joined.
            apart, same = apart | (refused - new), (same - refused) | new
            found = packed(apart, same)
        return found

    first = packed(_NO_PAIRS, _NO_PAIRS)
    best = settled(first, joins=False)
    if best[0].num_bytes > first[0].num_bytes and not uses:
        best = min(best, settled(first, joins=True), key=lambda found: found[0].num_bytes)
    (solution, planner), offsets = best, _offsets(items, best[0])
    placements = {
        item.name: Placement(
            name=item.name, memory=memory, offset=offsets[item.name], num_bytes=item.buffer.size,
            begin=item.buffer.begin, end=item.buffer.end, is_scratch=item.is_scratch,
        )
        for item in items
    }  # fmt: skip
    arena = Arena(
        memory=memory, num_bytes=solution.num_bytes, lower_bound_bytes=max(live),
        # The first packing may overlap more than the best, so what bounds the first bounds the best too.
        proved=solution.num_bytes <= first[0].lower_bound_bytes, peak_step=live.index(max(live)),
        container=container if (container := program.platform_memory(memory)) != memory else "", planner=planner,
    )  # fmt: skip
    return placements, arena


def _offsets(items: Sequence[_Item], found: Solution) -> dict[str, int]:
    return {item.name: offset for item, offset in zip(items, found.offsets, strict=True)}


def _packed(
    memory: str,
    items: Sequence[_Item],
    may_overlap: Sequence[Overlaps],
    bound: int,
    uses: AtOnce | None,
    apart: Pairs,
    same: Pairs,
) -> tuple[Solution, str]:
    """Return offsets of a memory's items, and the planner of another distribution that found them, or an empty name.

    apart: pairs that must not overlap after all. same: pairs that should have the same offset.
    """
    steps = [step.without((), apart) for step in may_overlap]
    _check_pins(items, {pair for step in steps for pair in (*step.ascending, *step.descending)}, uses)
    index = {item.name: number for number, item in enumerate(items)}
    choices = [
        tuple(
            {(index[a], index[b]): n for (a, b), n in one.items() if a in index and b in index}
            for one in (step.ascending, step.descending)
        )
        for step in steps
    ]
    buffers = [item.buffer for item in items]
    if uses:
        return optimise_at_once(buffers, uses.pairs(list(index)), choices, uses.groups(index, buffers), bound), ""
    joined = with_same_offsets(buffers, choices, {(index[a], index[b]) for a, b in same if a in index and b in index})
    found = optimise(joined.buffers, joined.choices, bound)
    names = tuple(items[inside[0]].name for inside in joined.members)
    found, planner = with_planners(
        AllocationProblem(
            memory=memory, names=names, buffers=tuple(joined.buffers), lower_bound_bytes=bound,
            num_bytes=found.num_bytes,
        ),
        found,
    )  # fmt: skip
    return replace(found, offsets=joined.offsets(found.offsets)), planner


def _tensors(
    program: Program,
    alive: Mapping[str, tuple[int, int]],
    pins: Mapping[str, int],
    kept: Collection[str],
    alignments: Mapping[str, int],
) -> list[_Item]:
    """Return an item for each tensor that is not a part, with gaps in which only some of its bytes are live."""
    needed = extents_while(program, alive, kept)
    items: list[_Item] = []
    for name, (begin, end) in alive.items():
        tensor = program.tensors[name]
        if tensor.part:
            continue
        gaps = tuple(
            Gap(begin=begin + index, end=begin + index + 1, low=low, high=high)
            for index, (low, high) in enumerate(needed.get(name, ()))
            if high - low < tensor.num_bytes
        )
        alignment = max(alignments.get(tensor.memory, ALIGNMENT_BYTES), tensor.element_bytes)
        buffer = Buffer(
            begin=begin, end=end, size=tensor.num_bytes, alignment=alignment, offset=pins.get(name), gaps=gaps
        )
        items.append(_Item(name=name, memory=tensor.memory, buffer=buffer))
    return items


def _scratch(program: Program, default: str, alignments: Mapping[str, int]) -> list[_Item]:
    """Return an item for the scratch of each step that needs any."""
    return [
        _Item(
            name=scratch_name(step.name),
            memory=(memory := scratch_memory(step, default)),
            buffer=Buffer(
                begin=index, end=index + 1, size=scratch_bytes(step), alignment=alignments.get(memory, ALIGNMENT_BYTES)
            ),
            is_scratch=True,
        )
        for index, step in enumerate(program.steps)
        if scratch_bytes(step)
    ]


def _parts(
    program: Program, placements: Mapping[str, Placement], alive: Mapping[str, tuple[int, int]]
) -> dict[str, Placement]:
    """Return the placements of parts inside their whole. A part of a tensor in the caller's memory has none."""
    found: dict[str, Placement] = {}
    for name, (begin, end) in alive.items():
        tensor = program.tensors[name]
        whole = placements.get(tensor.part.tensor) if tensor.part else None
        if tensor.part and whole:
            found[name] = Placement(
                name=name, memory=whole.memory, offset=whole.offset + tensor.part.first * tensor.element_bytes,
                num_bytes=tensor.num_bytes, begin=begin, end=end, part_of=whole.name,
            )  # fmt: skip
    return found


def _check_pins(items: Sequence[_Item], pairs: Collection[tuple[str, str]], uses: AtOnce | None) -> None:
    """Raise BadOptions if two pinned tensors need the same bytes at the same time, or if a pin is not aligned."""
    fixed = [item for item in items if item.buffer.offset is not None]
    for one in fixed:
        if (one.buffer.offset or 0) % one.buffer.alignment:
            raise BadOptions(
                f"pin {one.name}={one.buffer.offset}: offsets in {one.memory} must be multiples of "
                f"{one.buffer.alignment} bytes. Choose such an offset."
            )
    for one, other in permutations(fixed, 2):
        begin, next_begin = one.buffer.offset or 0, other.buffer.offset or 0
        if one.memory != other.memory or (one.name, other.name) in pairs or (other.name, one.name) in pairs:
            continue
        at_one_time = uses.meet(one.name, other.name) if uses else one.buffer.overlaps(other.buffer)
        if begin <= next_begin < begin + one.buffer.size and at_one_time:
            raise BadOptions(
                f"pin {other.name}={next_begin}: {one.name} is pinned to bytes {begin} to {begin + one.buffer.size} of "
                f"{one.memory} and is needed at the same time. Move one of them."
            )


def check_capacity(
    program: Program, plan: MemoryPlan, platform: Platform, limits: Mapping[str, int] | None = None
) -> None:
    """Raise DoesNotFit if an arena or the weights exceed a memory, with the step and the tensors that are live there.

    limits: bytes that arenas may take in a memory, if fewer than it holds.
    """
    for arena in plan.arenas:
        memory = platform.memory(arena.inside)
        limit = min(memory.usable_bytes, (limits or {}).get(memory.name, memory.usable_bytes))
        needed = plan.bytes_in(memory.name)
        if needed <= limit:
            continue
        listed = ", ".join(f"{p.name} ({p.num_bytes} B)" for p in peak_placements(plan, arena))
        step = program.steps[arena.peak_step].name if program.steps else program.name
        beside = f" beside {needed - arena.num_bytes} B of others" if needed > arena.num_bytes else ""
        raise DoesNotFit(
            f"{step}: {arena.lower_bound_bytes} B are live at step {arena.peak_step} ({listed}) and the "
            f"{arena.memory if arena.container else 'arena'} "
            f"needs {arena.num_bytes} B{beside}; {memory.name} of {platform.name} "
            f"{'holds' if limit == memory.capacity_bytes else 'may give'} {limit} B, {needed - limit} B less. "
            "Try a larger memory, a smaller input, or an int8 model."
        )
    by_memory: dict[str, int] = {}
    for constant in program.constant_objects:
        by_memory[constant.memory] = by_memory.get(constant.memory, 0) + constant.data.nbytes
    for name, num_bytes in by_memory.items():
        memory = platform.memory(name)
        if num_bytes > memory.usable_bytes:
            raise DoesNotFit(
                f"{program.name}: its weights are {num_bytes} B; {name} of {platform.name} "
                f"{'may give' if memory.reserved_bytes else 'holds'} {memory.usable_bytes} B. "
                "Try a larger memory or an int8 model."
            )


def with_directions(program: Program, placements: Mapping[str, Placement]) -> Program:
    """Return the program with loops over single rows, last row first, where the planned overlap needs that order."""
    return replace(program, steps=tuple(_directed(step, program, placements) for step in program.steps))


def _directed(step: Step, program: Program, placements: Mapping[str, Placement]) -> Step:
    if not isinstance(step, KernelCall) or step.implementation.spatial is None:
        return step
    if not any(_lies_below(step, position, program, placements) for position in range(len(step.inputs))):
        return step
    last = step.implementation.spatial.output_rows - 1
    rows = RowRange(begin=AffineRow(base=last, step=-1), end=AffineRow(base=last + 1, step=-1))
    return Loop(name=step.name, count=last + 1, body=(replace(step, rows=rows),))


def _lies_below(step: KernelCall, position: int, program: Program, placements: Mapping[str, Placement]) -> bool:
    """Return True if the output may overlap an input only because the last row is computed first.

    The output then begins above the input, or with it if the first output row reads no input row.
    """
    source, output = (placements.get(name) for name in (step.inputs[position], step.outputs[0]))
    if source is None or output is None or source.memory != output.memory:
        return False
    if source.offset != output.offset:
        return source.offset < output.offset < source.offset + source.num_bytes
    tensor = program.tensors[source.name]
    seen = replace(tensor, shape=step.seen_shape(position, tensor))
    up, down = distances(step.implementation, position, seen, program.tensors[output.name])
    return up > 0 and down == 0


@dataclass(kw_only=True)
class _FreeSpace:
    """Bytes of a state that are free at some steps. taken: bytes that intermediates take at each step."""

    num_bytes: int
    is_free: list[bool]
    taken: list[int] = field(default_factory=list[int])

    def admits(self, begin: int, end: int, num_bytes: int) -> bool:
        """Return True if `num_bytes` more are free at all steps [begin, end)."""
        return all(self.is_free[i] and self.taken[i] + num_bytes <= self.num_bytes for i in range(begin, end))

    def take(self, begin: int, end: int, num_bytes: int) -> None:
        """Reserve bytes at steps [begin, end)."""
        for index in range(begin, end):
            self.taken[index] += num_bytes


def with_intermediates_in_states(
    program: Program, alive: Mapping[str, tuple[int, int]], stay: Collection[str]
) -> Program:
    """Return the program with as many intermediates as possible in free bytes of its states, the largest first.

    alive: steps in which tensors with an offset are live. stay: tensors that must not move.
    """
    spaces = _free_spaces(program)
    if not spaces:
        return program
    wholes = parts_of(program)
    candidates = [
        tensor
        for name in alive
        if _may_move(tensor := program.tensors[name], program) and name not in stay and name not in wholes
    ]
    guests: dict[str, Tensor] = {}
    for tensor in sorted(candidates, key=lambda tensor: -tensor.num_bytes):
        begin, end = alive[tensor.name]
        num_bytes = -(-tensor.num_bytes // STATE_ALIGNMENT_BYTES) * STATE_ALIGNMENT_BYTES
        space = next((space for space in spaces if space.admits(begin, end, num_bytes)), None)
        if space:
            space.take(begin, end, num_bytes)
            guests[tensor.name] = replace(tensor, memory=STATE_MEMORY)
    return replace(program, tensors={**program.tensors, **guests})


def _free_spaces(program: Program) -> list[_FreeSpace]:
    """Return the free bytes of states, the smallest first, so that large ones stay free for large tensors."""
    needed, num_steps = extents(program), len(program.steps)
    spaces: list[_FreeSpace] = []
    for state in program.states:
        num_bytes = program.tensors[state.tensor].num_bytes
        kept = program.kept_bytes(state)
        if kept < num_bytes:
            is_free = [high <= kept for _, high in needed[state.tensor]]
            spaces.append(_FreeSpace(num_bytes=num_bytes - kept, is_free=is_free, taken=[0] * num_steps))
    return sorted(spaces, key=lambda space: space.num_bytes)


def _may_move(tensor: Tensor, program: Program) -> bool:
    alone = tensor.part is None and tensor.ring is None
    return alone and tensor.role == "intermediate" and tensor.memory == program.state_home
