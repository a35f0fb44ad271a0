"""Program -> MemoryPlan: when each tensor lives, and where in which memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from codegen_c.arena.bound import live_bytes
from codegen_c.arena.direction import with_directions
from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement, scratch_name
from codegen_c.arena.overlap import overlaps
from codegen_c.arena.problem import Buffer
from codegen_c.arena.solve import optimise
from codegen_c.program import Program, reads, scratch_bytes, writes
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform

ALIGNMENT_BYTES = 16


def lifetimes(program: Program) -> dict[str, tuple[int, int]]:
    """Steps [begin, end) during which each tensor's bytes matter; inputs from the first on, outputs to the last."""
    num_steps = max(len(program.steps), 1)
    begin = {name: 0 for name in program.inputs}
    end = {name: 1 for name in program.inputs}
    for index, step in enumerate(program.steps):
        for name in writes(step):
            begin.setdefault(name, index)
            end[name] = index + 1
        for name in reads(step):
            end[name] = index + 1
    end |= {name: num_steps for name in program.outputs}
    return {name: (begin[name], end[name]) for name in begin}


def plan_memory(
    program: Program, *, activations: str, held_by_caller: Iterable[str] = ()
) -> tuple[Program, MemoryPlan]:
    """Offsets for all tensors of a program and its kernels' scratch, and the program with the row order they ask for.

    activations: memory of the scratch. held_by_caller: tensors that get no place here.
    """
    outside = set(held_by_caller)
    wanted = [
        (name, program.tensors[name].memory, program.tensors[name].num_bytes, span, False)
        for name, span in lifetimes(program).items()
        if name not in outside
    ]
    wanted += [
        (scratch_name(step.name), activations, scratch_bytes(step), (index, index + 1), True)
        for index, step in enumerate(program.steps)
        if scratch_bytes(step)
    ]
    near = overlaps(program)
    pairs = {pair for step in near for pair in (*step.ascending, *step.descending)}
    alive = {name: span for name, span in lifetimes(program).items() if name not in outside}
    placements: dict[str, Placement] = {}
    arenas: list[Arena] = []
    for memory in dict.fromkeys([activations, *(item[1] for item in wanted)]):
        items = [item for item in wanted if item[1] == memory]
        index = {item[0]: number for number, item in enumerate(items)}
        buffers = [Buffer(begin=b, end=e, size=size, alignment=ALIGNMENT_BYTES) for _, _, size, (b, e), _ in items]
        choices = [
            tuple({(index[a], index[b]): n for (a, b), n in way.items() if a in index and b in index} for way in ways)
            for ways in ((step.ascending, step.descending) for step in near)
        ]
        live = live_bytes(program, alive, pairs, memory, scratch=memory == activations)
        found = optimise(buffers, choices, max(live))
        for item, buffer, offset in zip(items, buffers, found.offsets, strict=True):
            placements[item[0]] = Placement(
                name=item[0], memory=memory, offset=offset, num_bytes=buffer.size, begin=buffer.begin,
                end=buffer.end, is_scratch=item[4],
            )  # fmt: skip
        arenas.append(
            Arena(
                memory=memory,
                num_bytes=found.num_bytes,
                lower_bound_bytes=max(live),
                proved=found.proved,
                peak_step=live.index(max(live)),
            )
        )
    return with_directions(program, placements), MemoryPlan(placements=placements, arenas=tuple(arenas))


def _alive(placement: Placement, step: int) -> bool:
    return placement.begin <= step < placement.end


def check_capacity(
    program: Program, plan: MemoryPlan, platform: Platform, limits: Mapping[str, int] | None = None
) -> None:
    """Raises DoesNotFit if an arena or the weights exceed a memory: names the step, what is alive there, the memory.

    limits: bytes that an arena may take, where that is less than its memory holds.
    """
    for arena in plan.arenas:
        memory = platform.memory(arena.memory)
        limit = min(memory.capacity_bytes, (limits or {}).get(memory.name, memory.capacity_bytes))
        if arena.num_bytes <= limit:
            continue
        alive = [p for p in plan.placements.values() if p.memory == arena.memory and _alive(p, arena.peak_step)]
        listed = ", ".join(f"{p.name} ({p.num_bytes} B)" for p in sorted(alive, key=lambda p: -p.num_bytes))
        step = program.steps[arena.peak_step].name if program.steps else program.name
        raise DoesNotFit(
            f"{step}: {arena.lower_bound_bytes} B are alive at step {arena.peak_step} ({listed}) and the arena needs "
            f"{arena.num_bytes} B; {memory.name} of {platform.name} "
            f"{'holds' if limit == memory.capacity_bytes else 'may give'} {limit} B. "
            "Try a larger memory, a smaller input, or an int8 model."
        )
    by_memory: dict[str, int] = {}
    for constant in program.constants.values():
        by_memory[constant.memory] = by_memory.get(constant.memory, 0) + constant.data.nbytes
    for name, num_bytes in by_memory.items():
        if num_bytes > platform.memory(name).capacity_bytes:
            raise DoesNotFit(
                f"{program.name}: its weights are {num_bytes} B; {name} of {platform.name} holds "
                f"{platform.memory(name).capacity_bytes} B. Try a larger memory or an int8 model."
            )
