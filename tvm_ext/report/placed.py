"""Parts of report.json that say where everything lies and what a step reads: pictures of memories and of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codegen_c.arena.memory_plan import Placement
from codegen_c.backend.build import Compiled
from codegen_c.program.program import Program
from codegen_c.program.steps import Step, Transfer, calls, processor_of, reads, transfers_of
from tvm_ext.core.options import BuildOptions


def arenas_of(compiled: Compiled, options: BuildOptions, live: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
    """One entry for each memory's arena. inside: the platform's memory; limit_bytes: what tensors there may take.

    live_bytes: at most alive at one moment of each step, in bytes; the largest is the lower bound.
    """
    limits = options.limits_bytes(compiled.platform)
    return [
        {
            "memory": arena.memory,
            "inside": arena.inside,
            "num_bytes": arena.num_bytes,
            "lower_bound_bytes": arena.lower_bound_bytes,
            "proved": arena.proved,
            "peak_step": arena.peak_step,
            "limit_bytes": limits.get(arena.inside),
            "live_bytes": list(live[arena.memory]),
            **({"planner": arena.planner} if arena.planner else {}),
        }
        for arena in compiled.plan.arenas
        if arena.num_bytes
    ]


def placed_tensors(compiled: Compiled) -> list[dict[str, Any]]:
    """Everything with a place, by memory and offset: bytes [offset, offset + num_bytes) in steps [begin, end).

    kind: input, output, intermediate, state, scratch, weights (a copy of constants), copy (moved from another memory).
    part_of: the tensor in whose bytes it lies.
    """
    kinds = _kinds(compiled.program)
    places = sorted(compiled.plan.placements.values(), key=lambda p: (p.memory, p.offset, p.begin, p.name))
    return [_placed(compiled.program, place, kinds) for place in places]


def read_by(compiled: Compiled, step: Step) -> dict[str, Any]:
    """Keys of a step: the tensors it reads, and the processor that runs it."""
    return {"reads": list(reads(step)), "processor": processor_of(step) or compiled.platform.processor.name}


def _placed(program: Program, place: Placement, kinds: Mapping[str, str]) -> dict[str, Any]:
    tensor = None if place.is_scratch else program.tensors[place.name]
    kept = next((state.source for state in program.states if state.tensor == place.name), None)
    return {
        "name": kept or (tensor.source if tensor else None),
        "c_name": place.name,
        "kind": "scratch" if tensor is None else kinds.get(place.name, "intermediate"),
        "shape": list(tensor.shape) if tensor else None,
        "dtype": tensor.dtype if tensor else None,
        "memory": place.memory,
        "offset": place.offset,
        "num_bytes": place.num_bytes,
        "begin": place.begin,
        "end": place.end,
        "part_of": place.part_of,
    }


def _kinds(program: Program) -> dict[str, str]:
    """Kinds of the tensors that are more than values between two operators."""
    found = {name: "state" for name in (*program.kept, *filter(None, (program.ready, program.warmed_up)))}
    for transfer in _transfers(program):
        found.setdefault(transfer.target, "weights" if transfer.source_is_constant else "copy")
    return found | dict.fromkeys(program.inputs, "input") | dict.fromkeys(program.outputs, "output")


def _transfers(program: Program) -> list[Transfer]:
    """Transfers of constants, and those from one memory to another."""
    constants = [
        transfer
        for step in program.steps
        for call in calls(step)
        for transfer in transfers_of(call)
        if transfer.source_is_constant
    ]
    return [*constants, *program.moves()]
