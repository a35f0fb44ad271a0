"""Emit the signals between processors, and `<model>_push.h` for rows that an interrupt handler delivers."""

from __future__ import annotations

from collections.abc import Iterable

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
    """Return the texts of `<model>_signals.h` and `<model>_signals.c`."""
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
        *polled(channels, platform),
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
    """Return the struct of the caller's pointers that other processors need in a run; empty if they need none."""
    names = handed_over(parallel, plan)
    members = [f"const {port.c_type} *{port.name};" for port in interface.inputs if port.name in names]
    members += [f"{port.c_type} *{port.name};" for port in interface.outputs if port.name in names]
    if not members:
        return ""
    return f"/* The caller's tensors, in this run. */\n{_struct(interface)} {{\n{block(members)}\n}};"


def _handed_object(interface: Interface) -> str:
    """Return the name of the struct's object; a pipeline has one for each phase."""
    return f"{interface.model}_handed{f'[{interface.in_flight}]' if interface.is_pipeline else ''}"


_PHASE = "_Alignas(TVM_EXT_SIGNAL_LINE_BYTES) uint32_t"
"""C type of a phase, which has a cache line of its own."""


def _phase_names(parallel: ParallelProgram, model: str) -> list[str]:
    return [phase_name(model, steps.processor) for steps in parallel.lists[1:]] if parallel.phases else []


def _flow(parallel: ParallelProgram, model: str) -> str:
    """Return the variables in which each processor tracks its position among the inputs of a pipeline."""
    members = [
        "uint32_t in_flight; /* inputs put and not taken */",
        "uint32_t put;       /* phase of the next input to put */",
        "uint32_t take;      /* phase of the next input to take */",
        "uint32_t taken;     /* phase of the input that was taken last */",
    ]
    note = "/* Inputs in flight. Only the caller's processor uses this struct. Successive inputs have successive\n"
    note += "   phases; tensors that two processors use have an offset for each phase. */"
    own = [f"extern {_PHASE} {name};" for name in _phase_names(parallel, model)]
    struct = (
        f"struct {flow_name(model)} {{\n{block(members)}\n}};\nextern struct {flow_name(model)} {flow_name(model)};"
    )
    return "\n".join(["", note, struct, "", "/* Phase of the next input, one for each processor. */", *own])


def _struct(interface: Interface) -> str:
    return f"struct {interface.model}_handed"


def polled(channels: Iterable[tuple[str, str]], platform: Platform) -> list[str]:
    """Return the lines that make processors poll if a mailbox raises no event. channels: (source, target)."""
    kinds = {signal.kind for pair in channels if (signal := platform.signal_between(*pair))}
    if "mailbox" not in kinds:
        return []
    note = "/* A mailbox raises no event of its own: processors poll. */"
    return [f"{note}\n#ifndef TVM_EXT_SIGNAL_IDLE\n#define TVM_EXT_SIGNAL_IDLE(channel) ((void)0)\n#endif\n"]


PUSH_FULL = -5
"""Status of a push for which the queue has no space."""
PUSH_HEADERS = ("tvm_ext_push.h", SIGNAL_HEADER)


def pushed_ports(interface: Interface) -> list[Port]:
    """Return the inputs whose rows may be pushed; none if any input's rows are read more than once."""
    found = [port for direction, port in streamed(interface) if direction == "read" and interface.io == "stream"]
    return [] if any(port.stream and port.stream.strips for port in found) else found


def emit_push(interface: Interface) -> dict[str, str]:
    """Return the push header; nothing for a model without streamed inputs."""
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
    """Return the push header of a model that needs some rows more than once: an #error."""
    assert port.stream is not None, "it is streamed"
    return (
        f"/* No rows of {model} can be pushed: pushed rows come once, but a run reads those of {port.name} "
        f"{len(port.stream.strips)} times. */\n"
        f'#error "{model}_push.h: a run reads rows of {port.name} more than once, but pushed rows come '
        f'once. Compile the model without --reread, or supply rows from a stored frame ({model}_io)."\n'
    )


def _capacity(port: Port) -> int:
    """Return the capacity of a push queue: twice the rows of one call, rounded up to a power of two.

    One half fills while the run reads the other half.
    """
    assert port.stream is not None, "the port is streamed"
    return 1 << (2 * port.stream.rows_per_call - 1).bit_length()
