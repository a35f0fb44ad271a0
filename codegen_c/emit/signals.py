"""`<model>_signals.h` and `.c`: the channels between processors, and what the platform does to wake one."""

from __future__ import annotations

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import block
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.lists import channel_name, handed_in
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.program.interface import Interface
from codegen_c.program.parallel import ParallelProgram
from tvm_ext.core.platform import Platform

SIGNAL_HEADER = "tvm_ext_signal.h"


def emit_signals(
    parallel: ParallelProgram, plan: MemoryPlan, interface: Interface, origin: Origin, platform: Platform
) -> dict[str, str]:
    """Texts of `<model>_signals.h` and `<model>_signals.c`."""
    model, guard = interface.model, f"{interface.model.upper()}_SIGNALS_H"
    channels = {
        (parallel.lists[source].processor, parallel.lists[target].processor): signals
        for (source, target), signals in sorted(parallel.channels().items())
    }
    declared = [
        f"/* {pair[0]} to {pair[1]}: {len(signals)} a run. */\nextern tvm_ext_channel {channel_name(model, *pair)};"
        for pair, signals in channels.items()
    ]
    held = _handed(parallel, plan, interface)
    header = [
        banner(origin, f"{model}: signals between processors."),
        f"#ifndef {guard}\n#define {guard}\n",
        *(_polled(channels, platform)),
        f'#include "{SIGNAL_HEADER}"\n',
        *declared,
        *(["", held, f"extern {_struct(interface)} {interface.model}_handed;"] if held else []),
        "\n#endif\n",
    ]
    memory = platform.memory(platform.activations)
    macro = section_macro(model, memory.name)
    source = [
        banner(origin, f"{model}: signals between processors."),
        f'#include "{model}_signals.h"\n',
        define_section(model, memory, zeroed=True),
        *(f"{macro} tvm_ext_channel {channel_name(model, *pair)};" for pair in channels),
        *([f"{macro} {_struct(interface)} {model}_handed;"] if held else []),
        "",
    ]
    return {f"{model}_signals.h": "\n".join(header), f"{model}_signals.c": "\n".join(source)}


def _handed(parallel: ParallelProgram, plan: MemoryPlan, interface: Interface) -> str:
    """The struct of pointers that the caller hands to a run, for other processors; empty where they need none."""
    names = {name for number in range(1, len(parallel.lists)) for name in handed_in(parallel, plan, number)}
    members = [f"const {port.c_type} *{port.name};" for port in interface.inputs if port.name in names]
    members += [f"{port.c_type} *{port.name};" for port in interface.outputs if port.name in names]
    if not members:
        return ""
    return f"/* The caller's tensors, in this run. */\n{_struct(interface)} {{\n{block(members)}\n}};"


def _struct(interface: Interface) -> str:
    return f"struct {interface.model}_handed"


def _polled(channels: dict[tuple[str, str], tuple[int, ...]], platform: Platform) -> list[str]:
    """Lines that let processors look again and again, where a mailbox raises no event."""
    kinds = {signal.kind for pair in channels if (signal := platform.signal_between(*pair))}
    if "mailbox" not in kinds:
        return []
    note = "/* A mailbox raises no event of itself: processors look again and again. */"
    return [f"{note}\n#ifndef TVM_EXT_SIGNAL_IDLE\n#define TVM_EXT_SIGNAL_IDLE(channel) ((void)0)\n#endif\n"]
