"""`<model>_push.h`: rows of streamed inputs that an interrupt handler pushes, beside those that a run asks for."""

from __future__ import annotations

from codegen_c.emit.signals import SIGNAL_HEADER
from codegen_c.emit.stream import describe_rows, streamed
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port

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
