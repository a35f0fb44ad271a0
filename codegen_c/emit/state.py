"""`<model>_state.c`: a model's states between runs, their initial values, and the functions that reach them."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import C_TYPES, block, comment, filled, literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.header import reset_signature, state_place_signature
from codegen_c.emit.memory import arena_object, instance_pointer, union_name
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from codegen_c.program.tensors import KeptState, Tensor
from tvm_ext.core.platform import STATE_MEMORY

_LINE_LENGTH = 100


def emit_state(
    program: Program,
    plan: MemoryPlan,
    interface: Interface,
    origin: Origin,
    shared: Mapping[str, str] | None = None,
    bundle: str = "",
) -> dict[str, str]:
    """Text of `<model>_state.c`; no file for a model without states. shared, bundle: as `emit_memory` takes them."""
    if not program.states:
        return {}
    model = interface.model
    common = shared or {}
    held = arena_object(interface, STATE_MEMORY, common)
    found = instance_pointer(interface)
    tag = union_name(model, STATE_MEMORY)
    size = f"sizeof ((union {tag} *)0)->bytes" if interface.holds_context else f"sizeof {held}.bytes"
    tables: list[str] = []
    lines: list[str] = []
    for state in program.states:
        tensor = program.tensors[state.tensor]
        elements = _elements(tensor, state)
        tables += _table(tensor, elements)
        lines += [f"/* {comment(state.source)} */", *_begun(tensor, elements, held)]
        if tensor.ring:
            lines.append(f"{held}.{tensor.ring.turn}[0] = 0u;")
    if program.warmed_up:
        lines.append(f"{held}.{program.warmed_up}[0] = 0u;")
    lines.append(f"{held}.{program.ready}[0] = {signature(program, plan)};")
    finite = all(np.isfinite(state.initial).all() for state in program.states if state.initial.dtype.kind == "f")
    includes = [*([] if finite else ["#include <math.h>", ""]), f'#include "{model}.h"', f'#include "{model}_memory.h"']
    text = "\n".join(
        [
            banner(origin, f"{model}: what runs keep."),
            "\n".join([*includes, *([f'#include "{bundle}_memory.h"'] if STATE_MEMORY in common else []), ""]),
            f'_Static_assert({size} == {interface.state_bytes_name}, "state");\n',
            f"{reset_signature(interface)}\n{{\n{block([*tables, *found, *lines])}\n}}\n",
            f"{state_place_signature(interface)}\n{{\n{block([*found, f'return {held}.bytes;'])}\n}}\n",
        ]
    )
    return {f"{model}_state.c": text}


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


def run_ends(program: Program, interface: Interface) -> list[str]:
    """Lines that turn rings by the rows that were pushed, and say where the outputs are no answer yet."""
    lines: list[str] = []
    for state in program.states:
        ring = program.tensors[state.tensor].ring
        if ring and ring.turn:
            turn = f"{STATE_MEMORY}->{ring.turn}[0]"
            lines.append(f"{turn} = (uint16_t)(({turn} + {state.pushed}u) % {ring.stored}u);")
    if program.warmed_up:
        count = f"{STATE_MEMORY}->{program.warmed_up}[0]"
        answer = [f"{count}++;", f"return {interface.not_ready};"]
        lines += [f"if ({count} < {program.warm_up_runs}u) {{", block(answer), "}"]
    return lines


def _is_even(elements: np.ndarray) -> bool:
    """True where all elements have the same bytes."""
    data = elements.view(np.uint8).reshape(elements.size, -1)
    return bool((data == data[:1]).all())


def _begun(tensor: Tensor, elements: np.ndarray, held: str) -> list[str]:
    value = literal(elements[:1])[0] if _is_even(elements) else f"{tensor.name}_begins[i]"
    place = f"{held}.{tensor.name}"
    return [f"for (size_t i = 0u; i < {elements.size}u; i++) {{", block(f"{place}[i] = {value};"), "}"]


def _table(tensor: Tensor, elements: np.ndarray) -> list[str]:
    """The elements that a state begins with, where they are not all the same."""
    if _is_even(elements):
        return []
    name = f"{tensor.name}_begins[{elements.size}]"
    lines = filled(literal(elements), _LINE_LENGTH)
    return [f"static const {C_TYPES[str(elements.dtype)]} {name} = {{", block(lines), "};"]


def _elements(tensor: Tensor, state: KeptState) -> np.ndarray:
    """The elements that a state begins with, where they lie before the first run."""
    if not tensor.ring:
        return np.ascontiguousarray(state.initial).reshape(-1)
    rows = np.ascontiguousarray(state.initial).reshape(tensor.ring.rows, -1)
    slots = np.zeros((tensor.ring.stored, rows.shape[1]), rows.dtype)
    found = np.roll(rows, -state.pushed, axis=0)
    for row in range(tensor.ring.rows):
        slots[(row + tensor.ring.shift) % tensor.ring.stored] = found[row]
    return slots.reshape(-1)
