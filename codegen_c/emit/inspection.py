"""Emit hooks around layers, and files that hand over the result of each step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.memory import INSTANCE, union_name
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall


def profiled_layers(program: Program) -> dict[str, int]:
    """Return the numbers of the kernel calls that have hooks, by name: all except the application's functions."""
    calls = [call for call in program.kernel_calls() if not call.implementation.callback]
    return {call.name: number for number, call in enumerate(calls)}


def emit_profile(program: Program, interface: Interface, origin: Origin) -> dict[str, str]:
    """Return the profile header's text under its name; nothing if the package has no hooks."""
    if not interface.has_hooks:
        return {}
    model = interface.model
    text = render("profile.h.j2", model=model, macro=model.upper(), layers=list(profiled_layers(program)))
    return {profile_header(model): f"{banner(origin, f'{model}: hooks that count the cycles of its layers.')}\n{text}"}


def profile_header(model: str) -> str:
    """Return the name of the profile header."""
    return f"{model}_profile.h"


def profile_definition(model: str) -> str:
    """Return the definition of the hooks' counters, for one file of the package."""
    macro = f"{model.upper()}_PROFILE"
    return f"#ifdef {macro}\n{model}_profile_layer {model}_profile[{macro}_LAYERS];\n#endif\n"


def hooked(call: KernelCall, lines: Sequence[str], layers: Mapping[str, int], model: str) -> list[str]:
    """Return the lines of a call between its hooks. layers: numbers of the calls that have hooks."""
    if call.name not in layers:
        return list(lines)
    macro, number = f"{model.upper()}_PROFILE_LAYER", layers[call.name]
    return [f"{macro}_BEGIN({number}u);", *lines, f"{macro}_END({number}u);"]


HEADER = "tvm_ext_compare.h"
_SOURCE = "tvm_ext_compare.c"
_HEADER_TEXT = """\
#ifndef TVM_EXT_COMPARE_H
#define TVM_EXT_COMPARE_H

#include <stddef.h>

void tvm_ext_compare(size_t place, void *value, size_t bytes);

#endif
"""


def emit_compare(path: str, *, on_board: bool) -> dict[str, str]:
    """Return the comparison's files by name. path: the file of values, as `tvm_ext.comparison` lays it out."""
    source = render("compare.c.j2", path=json.dumps(path), on_board=on_board)
    return {HEADER: _HEADER_TEXT, f"board/{_SOURCE}" if on_board else _SOURCE: source}


def arena_inside(interface: Interface, memory: str) -> str:
    """Return the C expression of a memory's arena inside the run function of a package that is not in a bundle."""
    if interface.holds_context:
        return f"((struct {interface.model}_{INSTANCE} *)(void *)context->bytes)->{memory}"
    return union_name(interface.model, memory)


def compare_line(interface: Interface, memory: str, name: str, place: int) -> str:
    """Return the line of a run that hands a tensor over; it follows the step that writes the tensor."""
    arena = arena_inside(interface, memory)
    return f"    tvm_ext_compare({place}u, {arena}.{name}, sizeof {arena}.{name});"
