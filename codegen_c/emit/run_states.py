"""Lines of a run about what runs keep: refused where it was never set, turned, counted while a window is not full."""

from __future__ import annotations

import zlib

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import block
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from tvm_ext.core.platform import STATE_MEMORY


def signature(program: Program, plan: MemoryPlan) -> str:
    """A number that only states of this very layout begin with, as C; never 0, as memory is before the first reset."""
    places = [plan.placements[name] for name in program.kept]
    turned = {state.tensor: f":{state.layout}" for state in program.states if state.layout}
    text = ";".join(
        f"{place.name}:{program.tensors[place.name].dtype}:{place.offset}:{place.num_bytes}{turned.get(place.name, '')}"
        for place in places
    )
    return f"0x{zlib.crc32(text.encode()) or 1:08x}u"


def run_begins(program: Program, plan: MemoryPlan, interface: Interface) -> list[str]:
    """Lines with which a run refuses states that were never set."""
    if not program.states:
        return []
    name = f"{STATE_MEMORY}->{program.ready}[0]"
    return [f"if ({name} != {signature(program, plan)}) {{", block(f"return {interface.not_reset};"), "}"]


def turn_lines(program: Program) -> dict[str, str]:
    """Line that turns each ring by the rows that were pushed, by the tensor that says how far it is turned."""
    lines: dict[str, str] = {}
    for state in program.states:
        ring = program.tensors[state.tensor].ring
        if ring and ring.turn:
            turn = f"{STATE_MEMORY}->{ring.turn}[0]"
            lines[ring.turn] = f"{turn} = (uint16_t)(({turn} + {state.pushed}u) % {ring.stored}u);"
    return lines


def run_ends(program: Program, interface: Interface) -> list[str]:
    """Lines that turn rings, and say where the outputs are no answer yet; in a pipeline each stage turns its own."""
    lines = [] if interface.is_pipeline else [*turn_lines(program).values()]
    if program.warmed_up:
        count = f"{STATE_MEMORY}->{program.warmed_up}[0]"
        answer = [f"{count}++;", f"return {interface.not_ready};"]
        lines += [f"if ({count} < {program.warm_up_runs}u) {{", block(answer), "}"]
    return lines
