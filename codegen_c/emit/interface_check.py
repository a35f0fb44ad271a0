"""A C file that compiles only where a package's header says what its report says: sizes, types, functions."""

from __future__ import annotations

from codegen_c.emit.header import (
    accessor_signature,
    reset_signature,
    serve_signature,
    signature,
    state_place_signature,
    take_signature,
)
from codegen_c.emit.stream import callback_signature, streamed
from codegen_c.program.interface import Interface


def emit_interface_check(interface: Interface) -> str:
    """Text of the file. A second declaration of a function must agree with the first one in every type."""
    ports = (*interface.inputs, *interface.outputs)
    lines = ["#include <stddef.h>", f'#include "{interface.model}.h"']
    lines += [_equal(interface.size_macro(port), port.num_elements) for port in ports]
    lines += [f"{signature(interface)};", *(f"{serve_signature(interface, name)};" for name in interface.servers)]
    if interface.is_pipeline:
        lines += [_equal(interface.in_flight_name, interface.in_flight)]
        lines += [f"{signature(interface, interface.put)};", f"{take_signature(interface)};"]
    if interface.state_bytes:
        lines += [_equal(interface.state_bytes_name, interface.state_bytes)]
        lines += [_equal(interface.warm_up_name, interface.warm_up_runs)] if interface.warm_up_runs else []
        lines += [f"{reset_signature(interface)};", f"{state_place_signature(interface)};"]
    if interface.holds_context:
        lines += [_equal(interface.context_bytes_name, interface.context_bytes)]
        lines += [_equal(f"sizeof({interface.context_type})", interface.context_bytes)]
    if interface.io == "arena":
        lines += [f"{accessor_signature(interface, port)};" for port in ports]
    if interface.io == "stream":
        lines += _stream_lines(interface)
    return "\n".join([*lines, ""])


def _stream_lines(interface: Interface) -> list[str]:
    """Rows of each port, and the functions of the io struct: which there are, their order and their types."""
    lines: list[str] = []
    members = [(direction, port, f"{direction}_{port.name}") for direction, port in streamed(interface)]
    for index, (direction, port, name) in enumerate(members):
        assert port.stream is not None, "the port is streamed"
        lines += [_equal(interface.rows_macro(port), port.stream.rows)]
        lines += [_equal(interface.row_macro(port), port.num_elements // port.stream.rows)]
        lines += [_equal(interface.columns_macro(port), port.num_columns)] if port.stream.strips else []
        lines += [_equal(f"offsetof({interface.io_struct}, {name})", f"{index + 1} * sizeof(void *)")]
        kind = callback_signature(direction, port, "(*)")
        lines += [_equal(f"_Generic((({interface.io_struct} *)0)->{name}, {kind}: 1, default: 0)", 1)]
    return [*lines, _equal(f"sizeof({interface.io_struct})", f"{len(members) + 1} * sizeof(void *)")]


def _equal(left: str, right: int | str) -> str:
    return f'_Static_assert({left} == {right}, "{left.split("(")[0]}");'
