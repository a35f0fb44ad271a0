"""Program -> MemoryPlan: when each tensor lives, and where in which memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from types import MappingProxyType

from codegen_c.arena.at_once import AtOnce, at_once
from codegen_c.arena.bound import live_bytes
from codegen_c.arena.direction import with_directions
from codegen_c.arena.guests import with_guests
from codegen_c.arena.lifetimes import extents_while, lifetimes
from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement, peak_placements, scratch_name
from codegen_c.arena.overlap import Overlaps, overlaps, too_near
from codegen_c.arena.planners import AllocationProblem, with_planners
from codegen_c.arena.problem import Buffer, Gap
from codegen_c.arena.solve import optimise
from codegen_c.arena.solve_at_once import optimise_at_once
from codegen_c.program.program import Program
from codegen_c.program.step_order import StepOrder
from codegen_c.program.steps import scratch_bytes, scratch_memory
from tvm_ext.core.alignment import ALIGNMENT_BYTES, STATE_ALIGNMENT_BYTES
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.core.platform import STATE_MEMORY, Platform


@dataclass(frozen=True, kw_only=True)
class _Item:
    """Something that needs a place of its own."""

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
    """Offsets for all tensors of a program and its kernels' scratch, and the program with the row order they ask for.

    activations: memory of scratch that has no other. held_by_caller: tensors that get no place here. pinned: tensor ->
    offset that it has to have. kept: tensors over whose bytes nothing else is ever put. order: of steps that several
    processors run, None for the program's own. phased: tensors of a pipeline with a place for each input in flight,
    which nothing else ever takes either. alignments: memory of the platform -> bytes of which what lies in it begins at
    a multiple, 16 for others. Raises BadOptions where pinned tensors meet.
    """
    kept = [*kept, *phased]
    pins, outside = pinned or {}, set(held_by_caller)
    alive = {name: span for name, span in lifetimes(program).items() if name not in outside}
    alive |= {name: (0, max(len(program.steps), 1)) for name in kept}
    uses = at_once(program, order, kept) if order else None
    planned = _planned(program, alive, activations, pins, kept, alignments, uses)
    if uses:  # what is free of a state at a step of one processor, another one may use
        return planned
    sharing = with_guests(program, alive, {*pins, *kept})
    if sharing is program:
        return planned
    shared = _planned(sharing, alive, activations, pins, kept, alignments)
    if shared[1].state_bytes > planned[1].state_bytes:  # more to save, and to retain
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
    """The plan with every tensor in the memory that it names."""
    of_memory = {**alignments, STATE_MEMORY: STATE_ALIGNMENT_BYTES}
    items = [*_tensors(program, alive, pins, kept, of_memory), *_scratch(program, activations, of_memory)]
    near = [step.without(kept) for step in overlaps(program)]
    near = uses.kept(near) if uses else near
    apart: set[tuple[str, str]] = set()
    while True:
        placements, arenas = _placed(program, items, near, alive, activations, apart, uses, kept)
        refused = too_near(program, {name: place.offset for name, place in placements.items()})
        if refused <= apart:
            break
        apart |= refused
    arenas = [replace(one, alignment_bytes=alignments.get(one.inside, ALIGNMENT_BYTES)) for one in arenas]
    placements |= _parts(program, placements, alive)
    return with_directions(program, placements), MemoryPlan(placements=placements, arenas=tuple(arenas))


def _placed(
    program: Program,
    items: Sequence[_Item],
    near: Sequence[Overlaps],
    alive: Mapping[str, tuple[int, int]],
    activations: str,
    apart: Collection[tuple[str, str]],
    uses: AtOnce | None,
    kept: Collection[str],
) -> tuple[dict[str, Placement], list[Arena]]:
    """A place for each item, where those that may overlap do so as far as `near` allows. apart: pairs that do not."""
    pairs = {pair for step in near for pair in (*step.ascending, *step.descending)}
    _check_pins(items, pairs - {*apart}, uses)
    placements: dict[str, Placement] = {}
    arenas: list[Arena] = []
    for memory in dict.fromkeys([activations, *(item.memory for item in items)]):
        inside = [item for item in items if item.memory == memory]
        index = {item.name: number for number, item in enumerate(inside)}
        choices = [
            tuple({(index[a], index[b]): n for (a, b), n in way.items() if a in index and b in index} for way in ways)
            for ways in ((step.ascending, step.descending) for step in (step.without((), apart) for step in near))
        ]
        live = live_bytes(program, alive, pairs, memory, default=activations, kept=kept)
        buffers = [item.buffer for item in inside]
        if uses:
            found = optimise_at_once(buffers, uses.pairs(list(index)), choices, max(live))
        else:
            found = optimise(buffers, choices, max(live))
        planner = ""
        if not uses:
            problem = AllocationProblem(
                memory=memory, names=tuple(index), buffers=tuple(buffers), lower_bound_bytes=max(live),
                num_bytes=found.num_bytes,
            )  # fmt: skip
            found, planner = with_planners(problem, found)
        for item, offset in zip(inside, found.offsets, strict=True):
            placements[item.name] = Placement(
                name=item.name, memory=memory, offset=offset, num_bytes=item.buffer.size, begin=item.buffer.begin,
                end=item.buffer.end, is_scratch=item.is_scratch,
            )  # fmt: skip
        arenas.append(
            Arena(
                memory=memory,
                num_bytes=found.num_bytes,
                lower_bound_bytes=max(live),
                proved=found.proved and (not apart or found.num_bytes == max(live)),
                peak_step=live.index(max(live)),
                home=home if (home := program.home(memory)) != memory else "",
                planner=planner,
            )
        )
    return placements, arenas


def _tensors(
    program: Program,
    alive: Mapping[str, tuple[int, int]],
    pins: Mapping[str, int],
    kept: Collection[str],
    alignments: Mapping[str, int],
) -> list[_Item]:
    """Live ranges of tensors that are no part of another one; of a tensor, only the bytes that matter take memory."""
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
    """Placements of parts inside their whole; none where the caller holds it."""
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
    """Raises BadOptions naming two pinned tensors that need the same bytes at one time, or one at no aligned place."""
    fixed = [item for item in items if item.buffer.offset is not None]
    for one in fixed:
        if (one.buffer.offset or 0) % one.buffer.alignment:
            raise BadOptions(
                f"pin {one.name}={one.buffer.offset}: {one.memory} of this platform has its tensors at multiples of "
                f"{one.buffer.alignment} bytes. Take one of these."
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
    """Raises DoesNotFit if an arena or the weights exceed a memory: names the step, what is alive there, the memory.

    limits: bytes that an arena may take, where that is less than its memory holds.
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
            f"{step}: {arena.lower_bound_bytes} B are alive at step {arena.peak_step} ({listed}) and the "
            f"{arena.memory if arena.home else 'arena'} "
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
