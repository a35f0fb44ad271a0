"""`<model>_state.c`: a model's states between runs, their initial values, and the functions that access them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import C_TYPES, block, comment, filled, literal, loop
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.header import reset_signature, state_place_signature
from codegen_c.emit.lists import state_signature
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
    """Return the text of `<model>_state.c`; no file for a model without states. shared, bundle: as in `emit_memory`."""
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
            lines.append(f"{held}.{tensor.ring.write_index}[0] = 0u;")
    if program.warmed_up:
        lines.append(f"{held}.{program.warmed_up}[0] = 0u;")
    lines.append(f"{held}.{program.ready}[0] = {state_signature(program, plan)};")
    finite = all(np.isfinite(state.initial).all() for state in program.states if state.initial.dtype.kind == "f")
    includes = [*([] if finite else ["#include <math.h>", ""]), f'#include "{model}.h"', f'#include "{model}_memory.h"']
    text = "\n".join(
        [
            banner(origin, f"{model}: state that runs keep."),
            "\n".join([*includes, *([f'#include "{bundle}_memory.h"'] if STATE_MEMORY in common else []), ""]),
            f'_Static_assert({size} == {interface.state_bytes_name}, "state");\n',
            f"{reset_signature(interface)}\n{{\n{block([*tables, *found, *_dropped(interface), *lines])}\n}}\n",
            f"{state_place_signature(interface)}\n{{\n{block([*found, f'return {held}.bytes;'])}\n}}\n",
        ]
    )
    return {f"{model}_state.c": text}


def _dropped(interface: Interface) -> list[str]:
    """Return the lines that take all inputs in flight, because their stages still use the states."""
    if not interface.is_pipeline:
        return []
    return [f"while ({interface.take}() != {interface.empty}) {{", block("/* inputs in flight are lost */"), "}"]


def _is_even(elements: np.ndarray) -> bool:
    """Return True if all elements have the same bytes."""
    data = elements.view(np.uint8).reshape(elements.size, -1)
    return bool((data == data[:1]).all())


def _begun(tensor: Tensor, elements: np.ndarray, held: str) -> list[str]:
    value = literal(elements[:1])[0] if _is_even(elements) else f"{tensor.name}_begins[i]"
    place = f"{held}.{tensor.name}"
    return loop("i", elements.size, [f"{place}[i] = {value};"], ctype="size_t")


def _table(tensor: Tensor, elements: np.ndarray) -> list[str]:
    """Return the table of a state's initial elements; no lines if all elements are equal."""
    if _is_even(elements):
        return []
    name = f"{tensor.name}_begins[{elements.size}]"
    lines = filled(literal(elements), _LINE_LENGTH)
    return [f"static const {C_TYPES[str(elements.dtype)]} {name} = {{", block(lines), "};"]


def _elements(tensor: Tensor, state: KeptState) -> np.ndarray:
    """Return the initial elements of a state in the order of memory, as they lie before the first run."""
    if not tensor.ring:
        return np.ascontiguousarray(state.initial).reshape(-1)
    rows = np.ascontiguousarray(state.initial).reshape(tensor.ring.rows, -1)
    slots = np.zeros((tensor.ring.stored, rows.shape[1]), rows.dtype)
    found = np.roll(rows, -state.pushed, axis=0)
    for row in range(tensor.ring.rows):
        slots[(row + tensor.ring.shift) % tensor.ring.stored] = found[row]
    return slots.reshape(-1)
