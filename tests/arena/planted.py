"""Plans with a planted fault, and what the validator says of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.program.program import Program
from tvm_ext.core.errors import PlanRejected


def rejected(made: Program, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate(made, plan)
    return str(raised.value)


def planned(made: Program) -> MemoryPlan:
    return plan_memory(made, activations="ram")[1]


def placed(plan: MemoryPlan, **changes: dict[str, Any]) -> MemoryPlan:
    places = plan.placements | {name: replace(plan.placements[name], **change) for name, change in changes.items()}
    return replace(plan, placements=places, arenas=tuple(replace(a, num_bytes=a.num_bytes + 512) for a in plan.arenas))


def beside(sizes: dict[str, int], *, room: int = 1024) -> MemoryPlan:
    """Everything beside everything, in the order given, at multiples of 16."""
    places, offset = {}, 0
    for name, size in sizes.items():
        is_scratch = name.endswith("_scratch")
        places[name] = Placement(
            name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1, is_scratch=is_scratch
        )
        offset += -(-size // 16) * 16
    arena = Arena(memory="ram", num_bytes=offset + room, lower_bound_bytes=0, peak_step=0)
    return MemoryPlan(placements=places, arenas=(arena,))
