"""`<model>_profile.h`: hooks around each layer, which are nothing until `<MODEL>_PROFILE` is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall


def profiled_layers(program: Program) -> dict[str, int]:
    """Numbers of the kernel calls that have hooks, by name: all but the application's functions."""
    calls = [call for call in program.kernel_calls() if not call.implementation.callback]
    return {call.name: number for number, call in enumerate(calls)}


def emit_profile(program: Program, interface: Interface, origin: Origin) -> dict[str, str]:
    """The header's text under its name; nothing where the package has no hooks."""
    if not interface.has_hooks:
        return {}
    model = interface.model
    text = render("profile.h.j2", model=model, macro=model.upper(), layers=list(profiled_layers(program)))
    return {profile_header(model): f"{banner(origin, f'{model}: hooks that count the cycles of its layers.')}\n{text}"}


def profile_header(model: str) -> str:
    """Name of the header."""
    return f"{model}_profile.h"


def profile_definition(model: str) -> str:
    """Definition of what the hooks count into, for one file of the package."""
    macro = f"{model.upper()}_PROFILE"
    return f"#ifdef {macro}\n{model}_profile_layer {model}_profile[{macro}_LAYERS];\n#endif\n"


def hooked(call: KernelCall, lines: Sequence[str], layers: Mapping[str, int], model: str) -> list[str]:
    """Lines of a call between its hooks. layers: numbers of those that have any."""
    if call.name not in layers:
        return list(lines)
    macro, number = f"{model.upper()}_PROFILE_LAYER", layers[call.name]
    return [f"{macro}_BEGIN({number}u);", *lines, f"{macro}_END({number}u);"]
