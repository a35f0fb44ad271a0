"""Parallel programs and plans in few words, and one program of four steps that two processors may share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import Await, Entry, Notify, ParallelProgram, RunStep, StepList
from codegen_c.program.program import Program
from codegen_c.program.steps import scratch_bytes
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected

NAMES = ("cpu0", "cpu1", "cpu2")


def listed(made: Program, *texts: str) -> ParallelProgram:
    """Lists in words: `3` runs step 3, `!5>1` sends signal 5 to list 1, `?5<0` awaits it from list 0."""
    return ParallelProgram(
        program=made,
        lists=tuple(
            StepList(processor=name, entries=tuple(map(entry, text.split())))
            for name, text in zip(NAMES, texts, strict=False)
        ),
    )


def entry(word: str) -> Entry:
    if word[0] == "!":
        signal, target = word[1:].split(">")
        return Notify(signal=int(signal), target=int(target))
    if word[0] == "?":
        signal, source = word[1:].split("<")
        return Await(signal=int(signal), source=int(source))
    return RunStep(index=int(word))


def placed(made: Program, **offsets: int) -> MemoryPlan:
    """Everything beside everything, but for what has an offset here. A caller holds what has a negative one."""
    sizes = {name: tensor.num_bytes for name, tensor in made.tensors.items() if not tensor.part}
    sizes |= {f"{step.name}_scratch": scratch_bytes(step) for step in made.steps if scratch_bytes(step)}
    places: dict[str, Placement] = {}
    end = 0
    for name, size in sizes.items():
        offset = offsets.get(name, end)
        end += -(-size // 16) * 16
        if offset >= 0:
            places[name] = Placement(
                name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1,
                is_scratch=name.endswith("_scratch"),
            )  # fmt: skip
    for name, tensor in made.tensors.items():
        if tensor.part and tensor.part.tensor in places:
            whole = places[tensor.part.tensor]
            places[name] = replace(
                whole, name=name, offset=whole.offset + tensor.part.first, num_bytes=tensor.num_bytes,
                part_of=whole.name,
            )  # fmt: skip
    return MemoryPlan(
        placements=places, arenas=(Arena(memory="ram", num_bytes=end + 64, lower_bound_bytes=0, peak_step=0),)
    )


def rejected(parallel: ParallelProgram, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate_order(parallel, plan)
    return str(raised.value)


DIAMOND = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b", scratch_bytes=16),
    call("s2", "a", "c", scratch_bytes=16),
    call("s3", "b c", "y"),
)
"""s1 and s2 may run at once."""

APART = placed(DIAMOND)
