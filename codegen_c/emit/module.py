"""Emit `module/`: entry points by which programs in other languages run a package, and how it is linked with them.

Only targets whose programs are loaded as a module have it, such as targets of browsers.
"""

from __future__ import annotations

from codegen_c.emit.firmware import stack_bytes_of
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.selftest import ports, run_arguments, streams
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from codegen_c.targets.registry import startup_of
from tvm_ext.core.platform import Memory, Platform

_ENTRIES = ("run", "reset", "num_inputs", "num_outputs", "input", "output", "input_bytes", "output_bytes")


def has_module(interface: Interface, platform: Platform) -> bool:
    """Return True if the package is also linked as a module.

    Inputs and outputs that the model reads and writes row by row have no address, and several processors no module.
    """
    startup = startup_of(platform) if platform.board else None
    return startup is not None and bool(startup.module_suffix) and interface.io != "stream" and not interface.servers


def module_source(model: str) -> str:
    """Return the name of the C file."""
    return f"module/{model}_module.c"


def module_file(model: str, platform: Platform) -> str:
    """Return the name of the linked module."""
    return f"{model}{startup_of(platform).module_suffix}"


def emit_module(interface: Interface, platform: Platform) -> dict[str, str]:
    """Return the file of entry points; none if the package is not linked as a module."""
    if not has_module(interface, platform):
        return {}
    return {module_source(interface.model): entry_points(interface, platform.memory(platform.activations))}


def entry_points(interface: Interface, memory: Memory | None = None) -> str:
    """Return the C of the entry points. Rows of streamed ports are copied from and to whole buffers.

    memory: where instances and buffers are; by default where the compiler has its variables.
    """
    return render(
        "module.c.j2",
        model=interface.model,
        run=interface.run,
        io=interface.io,
        context=interface.holds_context,
        resets=interface.state_bytes > 0,
        streams=streams(interface),
        section=define_section(interface.model, memory, zeroed=True).strip() if memory else "",
        section_macro=section_macro(interface.model, memory.name) if memory else "",
        arguments=run_arguments(interface, "input_", "output_", "&instance"),
        sides=[
            ("input", ports(interface, "inputs", "input_", "&instance")),
            ("output", ports(interface, "outputs", "output_", "&instance")),
        ],
    )


def module_link_flags(platform: Platform) -> list[str]:
    """Return the flags that link a module, after those of the compiler."""
    startup = startup_of(platform)
    stack = str(stack_bytes_of(platform))
    exports = [startup.module_export.replace("NAME", f"tvm_ext_{name}") for name in _ENTRIES]
    own = [flag.replace("STACK_BYTES", stack) for flag in startup.module_flags]
    return ["-nostartfiles", "-Wl,--gc-sections", *own, *exports]
