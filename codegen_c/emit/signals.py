"""Emit the signals between processors, and `<model>_push.h` for rows that an interrupt handler delivers."""

from __future__ import annotations

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.c_text.text import block
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.lists import channel_name, flow_name, handed_over, phase_name
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.stream import describe_rows, streamed
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port
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
        *(["", held, f"extern {_struct(interface)} {_handed_object(interface)};"] if held else []),
        *([_flow(parallel, model)] if parallel.phases else []),
        "\n#endif\n",
    ]
    memory = platform.memory(platform.activations)
    macro = section_macro(model, memory.name)
    source = [
        banner(origin, f"{model}: signals between processors."),
        f'#include "{model}_signals.h"\n',
        define_section(model, memory, zeroed=True),
        *(f"{macro} tvm_ext_channel {channel_name(model, *pair)};" for pair in channels),
        *([f"{macro} {_struct(interface)} {_handed_object(interface)};"] if held else []),
        *([f"{macro} struct {flow_name(model)} {flow_name(model)};"] if parallel.phases else []),
        *(f"{macro} {_PHASE} {name};" for name in _phase_names(parallel, model)),
        "",
    ]
    return {f"{model}_signals.h": "\n".join(header), f"{model}_signals.c": "\n".join(source)}


def _handed(parallel: ParallelProgram, plan: MemoryPlan, interface: Interface) -> str:
    """The struct of pointers that the caller hands to a run, for other processors; empty where they need none."""
    names = handed_over(parallel, plan)
    members = [f"const {port.c_type} *{port.name};" for port in interface.inputs if port.name in names]
    members += [f"{port.c_type} *{port.name};" for port in interface.outputs if port.name in names]
    if not members:
        return ""
    return f"/* The caller's tensors, in this run. */\n{_struct(interface)} {{\n{block(members)}\n}};"


def _handed_object(interface: Interface) -> str:
    """Name of its object; of a pipeline there is one for each phase."""
    return f"{interface.model}_handed{f'[{interface.in_flight}]' if interface.is_pipeline else ''}"


_PHASE = "_Alignas(TVM_EXT_SIGNAL_LINE_BYTES) uint32_t"
"""C type of a phase, in a cache line of its own."""


def _phase_names(parallel: ParallelProgram, model: str) -> list[str]:
    return [phase_name(model, steps.processor) for steps in parallel.lists[1:]] if parallel.phases else []


def _flow(parallel: ParallelProgram, model: str) -> str:
    """Variables in which each processor keeps its place among the inputs of a pipeline."""
    members = [
        "uint32_t in_flight; /* inputs put and not taken */",
        "uint32_t put;       /* phase of the next input to put */",
        "uint32_t take;      /* phase of the next one to take */",
        "uint32_t taken;     /* phase of the one that was taken last */",
    ]
    note = (
        "/* Inputs under way, of the caller's processor alone. Successive inputs have successive phases, and tensors\n"
    )
    note += "   that two processors touch have a place for each. */"
    own = [f"extern {_PHASE} {name};" for name in _phase_names(parallel, model)]
    struct = (
        f"struct {flow_name(model)} {{\n{block(members)}\n}};\nextern struct {flow_name(model)} {flow_name(model)};"
    )
    return "\n".join(["", note, struct, "", "/* Phase of the next input, each its processor's own. */", *own])


def _struct(interface: Interface) -> str:
    return f"struct {interface.model}_handed"


def _polled(channels: dict[tuple[str, str], tuple[int, ...]], platform: Platform) -> list[str]:
    """Lines that let processors look again and again, where a mailbox raises no event."""
    kinds = {signal.kind for pair in channels if (signal := platform.signal_between(*pair))}
    if "mailbox" not in kinds:
        return []
    note = "/* A mailbox raises no event of itself: processors look again and again. */"
    return [f"{note}\n#ifndef TVM_EXT_SIGNAL_IDLE\n#define TVM_EXT_SIGNAL_IDLE(channel) ((void)0)\n#endif\n"]


PUSH_FULL = -5
"""Answer of a push for which there is no room."""
PUSH_HEADERS = ("tvm_ext_push.h", SIGNAL_HEADER)


def pushed_ports(interface: Interface) -> list[Port]:
    """Inputs whose rows may be pushed; none where those of any are asked for more than once."""
    found = [port for direction, port in streamed(interface) if direction == "read" and interface.io == "stream"]
    return [] if any(port.stream and port.stream.strips for port in found) else found


def emit_push(interface: Interface) -> dict[str, str]:
    """The header; nothing for a model without streamed inputs."""
    asked_again = [port for port in interface.inputs if port.stream and port.stream.strips]
    if asked_again:
        return {f"{interface.model}_push.h": _refused(interface.model, asked_again[0])}
    ports = pushed_ports(interface)
    if not ports:
        return {}
    described = [
        {
            "name": port.name, "c_type": port.c_type, "macro": interface.port_macro(port, "").rstrip("_"),
            "capacity": _capacity(port), "suffix": f"_{port.name}" if len(ports) > 1 else "",
            "rows": describe_rows(port),
        }
        for port in ports
    ]  # fmt: skip
    text = render("push.h.j2", model=interface.model, full=PUSH_FULL, ports=described)
    return {f"{interface.model}_push.h": text}


def _refused(model: str, port: Port) -> str:
    """The header of a model that cannot be given rows which come once."""
    assert port.stream is not None, "it is streamed"
    return (
        f"/* No rows of {model} can be pushed: they come once, and a run asks for those of {port.name} "
        f"{len(port.stream.strips)} times. */\n"
        f'#error "{model}_push.h: rows of {port.name} are asked for more than once, and rows that are pushed come '
        f'once. Compile the model without --reread, or hand rows over from where the frame is kept ({model}_io)."\n'
    )


def _capacity(port: Port) -> int:
    """Twice the rows that a run asks for together, as a power of two: one half fills while the run takes the other."""
    assert port.stream is not None, "the port is streamed"
    return 1 << (2 * port.stream.rows_per_call - 1).bit_length()
