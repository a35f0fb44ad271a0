"""Emit `<model>.h`: typed pointers, sizes, status, labels and quantization functions; and a file that checks it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import numpy as np

from codegen_c.c_text.text import MOST_COLUMNS, block, comment, comment_block, float_literal, string_literal
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.stream import callback_signature, describe_rows, describe_strips, streamed
from codegen_c.program.interface import Interface, Port
from codegen_c.program.status import EMPTY, FULL, MISALIGNED, NOT_READY, NOT_RESET


def emit_header(
    interface: Interface, origin: Origin, kept_api: str = "", arenas: Mapping[str, int] = MappingProxyType({})
) -> str:
    """Return the text of `<model>.h`.

    kept_api: declarations of the intermediate values that are kept (`codegen_c.emit.memory`). arenas: bytes of arenas
    and states in each memory that holds any.
    """
    guard = f"{interface.model.upper()}_H"
    sizes = [line for port in (*interface.inputs, *interface.outputs) for line in _port_macros(interface, port)]
    sizes += [
        line
        for _, port in streamed(interface)
        if port.stream
        for line in (
            f"#define {interface.rows_macro(port)} {port.stream.rows}",
            f"#define {interface.row_macro(port)} {port.num_elements // port.stream.rows}",
            *([f"#define {interface.columns_macro(port)} {port.num_columns}"] if port.stream.strips else []),
        )
    ]
    api = {"arena": partial(_arena_api, memories=arenas), "caller": _caller_api, "stream": _stream_api}[interface.io]
    return "\n".join(
        [
            banner(origin, f"{interface.model}: public interface of the model."),
            f"#ifndef {guard}\n#define {guard}\n",
            "#include <stdbool.h>\n#include <stdint.h>\n",
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            "/* Size, shape and type of inputs and outputs. If quantized, real = scale * (value - zero point). */",
            *sizes,
            "",
            *_facts(interface, origin, arenas),
            _statuses(interface),
            *([labels_api(interface)] if interface.labels else []),
            *([functions] if (functions := quantize_functions(interface)) else []),
            *([_context_api(interface)] if interface.holds_context else []),
            api(interface),
            *([_pipeline_api(interface)] if interface.is_pipeline else []),
            *([_serve_api(interface)] if interface.servers else []),
            *([_state_api(interface)] if interface.state_bytes else []),
            *([kept_api] if kept_api else []),
            "#ifdef __cplusplus\n}\n#endif\n",
            "#endif\n",
        ]
    )


def _port_macros(interface: Interface, port: Port) -> list[str]:
    """Return the macros of a tensor: the facts with which an application fills or reads it."""
    shape, quantization = ", ".join(map(str, port.shape)), port.quantization
    values = {"SIZE": str(port.num_elements), "BYTES": str(port.num_bytes)}
    values |= {"RANK": str(len(port.shape)), "TYPE": port.c_type}
    if shape:  # C has no empty initializer
        values["SHAPE"] = f"{{{shape}}}"
    if quantization:
        values |= {"SCALE": float_literal(quantization.scale), "ZERO_POINT": f"({quantization.zero_point})"}
    return [f"#define {interface.port_macro(port, key)} {value}" for key, value in values.items()]


def _facts(interface: Interface, origin: Origin, arenas: Mapping[str, int]) -> list[str]:
    """Return the macros of the package: its memory, and the hash of the model's file."""
    macros = [f"#define {interface.arena_bytes_macro()} {sum(arenas.values())}u"]
    macros += [f"#define {interface.arena_bytes_macro(memory)} {count}u" for memory, count in arenas.items()]
    return [
        "/* Bytes of the arenas and states, in total and per memory, and the SHA-256 of the model's file. */",
        *macros,
        _defined(interface.sha256_macro, f'"{origin.sha256}"'),
        "",
    ]


def _defined(macro: str, value: str) -> str:
    """Return a macro's definition, in two lines if one line is too long."""
    line = f"#define {macro} {value}"
    return line if len(line) <= MOST_COLUMNS else f"#define {macro} \\\n    {value}"


def _statuses(interface: Interface) -> str:
    """Return the definition of `<model>_status`; its extreme values make it as wide as int32_t for every compiler."""
    known = [(interface.ok, 0, "success")]
    if interface.state_bytes:
        known += [(interface.not_reset, NOT_RESET, f"the state is not initialized: call {interface.reset} first")]
    if interface.warm_up_runs:
        known += [(interface.not_ready, NOT_READY, "the window is not full yet: ignore the outputs")]
    if interface.checks_alignment:
        alignment = interface.context_alignment_name
        known += [(interface.misaligned, MISALIGNED, f"the instance does not lie at a multiple of {alignment}")]
    if interface.is_pipeline:
        known += [(interface.full, FULL, "take outputs before you put another input")]
        known += [(interface.empty, EMPTY, "no input is in flight, so there are no outputs")]
    values = [f"{name} = {number}, /* {note} */" for name, number, note in known]
    values += [f"{interface.status_type}_least = INT32_MIN, /* these two values make the enum as wide as int32_t */"]
    values += [f"{interface.status_type}_most = INT32_MAX"]
    note = "Status that the functions return."
    if interface.io == "stream":
        note = "Status that the functions return. Other values come from functions of the application."
    return f"{comment_block([note])}\ntypedef enum {{\n{block(values)}\n}} {interface.status_type};\n"


def describe(port: Port) -> str:
    """Return `describe_type` of a port, then its name in the model and the values that the model takes it for."""
    taken_as = f", which takes {port.taken_as}" if port.taken_as else ""
    return f"{describe_type(port)}, in the model {comment(port.source)}{taken_as}"


def describe_type(port: Port) -> str:
    """Return a text such as `float32[1, 49, 10, 1] NHWC, real = 0.5847 * (value - 83)`."""
    text = f"{port.dtype}[{', '.join(map(str, port.shape))}]{f' {port.layout}' if port.layout else ''}"
    if port.quantization:
        zero_point = port.quantization.zero_point
        value = f"(value {'+' if zero_point < 0 else '-'} {abs(zero_point)})" if zero_point else "value"
        text += f", real = {port.quantization.scale!r} * {value}"
    return text


def signature(interface: Interface, function: str = "") -> str:
    """Return `<model>_status <model>_run(...)`, without a semicolon. function: another name of the same arguments."""
    name = function or interface.run
    arguments: list[str] = []
    if interface.io == "stream":
        arguments = [f"const {interface.io_struct} *io"]
    elif interface.io == "caller":
        arguments = [f"const {port.c_type} *{port.name}" for port in interface.inputs]
        arguments += [f"{port.c_type} *{port.name}" for port in interface.outputs]
    one_line = f"{interface.status_type} {name}({_parameters(interface, *arguments)})"
    if len(one_line) <= 100:
        return one_line
    return f"{interface.status_type} {name}(\n" + block(_parameters(interface, *arguments).replace(", ", ",\n")) + ")"


def accessor_signature(interface: Interface, port: Port, function: str = "") -> str:
    """Return `float *<model>_<input>(void)`; outputs are const. function: another name of the same type."""
    name = function or interface.accessor(port)
    if port in interface.outputs:
        return f"const {port.c_type} *{name}({_parameters(interface, const=True)})"
    return f"{port.c_type} *{name}({_parameters(interface)})"


def reset_signature(interface: Interface) -> str:
    """Return `void <model>_reset(void)`."""
    return f"void {interface.reset}({_parameters(interface)})"


def take_signature(interface: Interface) -> str:
    """Return `<model>_status <model>_take(void)`."""
    return f"{interface.status_type} {interface.take}(void)"


def serve_signature(interface: Interface, processor: str) -> str:
    """Return `void <model>_serve_<processor>(void)`."""
    return f"void {interface.serve(processor)}(void)"


def state_place_signature(interface: Interface) -> str:
    """Return `void *<model>_state_place(void)`."""
    return f"void *{interface.state_place}({_parameters(interface)})"


def _parameters(interface: Interface, *others: str, const: bool = False) -> str:
    """Return the parameters of a function; the instance comes first if the caller holds it."""
    own = [f"{'const ' if const else ''}{interface.context_type} *context"] if interface.holds_context else []
    return ", ".join([*own, *others]) or "void"


def _arena_api(interface: Interface, memories: Iterable[str]) -> str:
    inputs = [f"Write the input here before each run: {describe(port)}." for port in interface.inputs]
    outputs = [f"Read the output here after a run: {describe(port)}." for port in interface.outputs]
    ports = zip((*interface.inputs, *interface.outputs), (*inputs, *outputs), strict=True)
    accessors = [f"{comment_block([note])}\n{accessor_signature(interface, port)};\n" for port, note in ports]
    run = (
        "/* Run one inference. It overwrites the inputs, because their memory is reused: write the inputs before\n"
        f"   every run. {_reentrancy(interface)} */\n"
    )
    return "\n".join([*accessors, *_plain_accessors(interface, memories), f"{run}{signature(interface)};\n"])


def _plain_accessors(interface: Interface, memories: Iterable[str]) -> list[str]:
    """Return `<model>_input` and `<model>_output`, whose names do not depend on the model's tensor names.

    If a memory of the platform has the same name, the name belongs to its arena and the accessor is left out.
    """
    arenas = {f"{interface.model}_{memory}" for memory in memories}
    found = {name: port for name, port in interface.plain_accessors().items() if name not in arenas}
    note = ["/* The same buffers under fixed names, which do not depend on the model's tensor names. */"]
    handed = "context" if interface.holds_context else ""
    return (note if found else []) + [
        f"static inline {accessor_signature(interface, port, name)}\n"
        f"{{\n{block([f'return {interface.accessor(port)}({handed});'])}\n}}\n"
        for name, port in found.items()
    ]


def _caller_api(interface: Interface) -> str:
    notes = [f"{port.name}: {describe(port)}." for port in (*interface.inputs, *interface.outputs)]
    head = f"Run one inference. Inputs and outputs must not overlap. {_reentrancy(interface)}"
    return f"{comment_block([head, *notes])}\n{signature(interface)};\n"


def _stream_api(interface: Interface) -> str:
    members = ["void *context; /* passed to each function */"]
    for direction, port in streamed(interface):
        verb = "Fill rows of the input" if direction == "read" else "Consume rows of the output"
        name = f"(*{direction}_{port.name})"
        members += [f"/* {verb}: {describe_rows(port)}; {describe(port)}. */"]
        members += comment_block([strips]).split("\n") if (strips := describe_strips(port)) else []
        members += [f"{callback_signature(direction, port, name)};"]
    head = (
        "/* Functions of the application that supply inputs and consume outputs. `rows` points to the rows\n"
        "   [row_begin, row_end), which are contiguous and valid only during the call. The rows of each tensor come\n"
        "   in order, each row once, up to the last row that an output depends on. A function returns 0 for success;\n"
        "   after any other value no function is called again, and the run returns that value. */\n"
    )
    if any(port.stream and port.stream.strips for port in interface.inputs):
        head += (
            "/* Where a function takes columns, `rows` holds only the pixels [column_begin, column_end) of each\n"
            "   row, directly followed by those of the next row. */\n"
        )
    struct = f"{head}typedef struct {{\n{block(members)}\n}} {interface.io_struct};\n"
    run = (
        "/* Run one inference. It calls the functions of `io` whenever rows are needed or complete.\n"
        f"   {_reentrancy(interface)} */\n"
    )
    return f"{struct}\n{run}{signature(interface)};\n"


def _serve_api(interface: Interface) -> str:
    note = (
        f"/* {_listed(interface.servers)} of a run. {interface.run} signals these functions, and returns only when\n"
        "   all of them are done. Each function blocks until the next run begins, and returns after its own part.\n"
        "   Call it in an endless loop on its processor. Zero the memory before any of them starts. */\n"
    )
    if interface.is_pipeline:
        note = (
            f"/* {_listed(interface.servers)} of the pipeline. Each function blocks until it has an input, and\n"
            "   returns after its own part. Call it in an endless loop on its processor. Zero the memory before any\n"
            "   of them starts. */\n"
        )
    return note + "".join(f"{serve_signature(interface, processor)};\n" for processor in interface.servers)


def _pipeline_api(interface: Interface) -> str:
    held = (
        "Inputs and outputs belong to the pipeline from the put to the matching take."
        if interface.io == "caller"
        else "Get the pointer to an input before each put, once there is space for it. Get the pointer to an output "
        "after the take; the output is valid until the next put."
    )
    notes = [
        f"A pipeline. {interface.put} starts an input; {interface.take} waits for the outputs of the oldest input in "
        f"flight. Up to {interface.in_flight} inputs may be in flight. The fastest order is to put one input, then to "
        "alternate between a put of the next input and a take of the previous outputs, and to take the rest last.",
        held,
        f"Both return 0 for success. {interface.put} does nothing and returns {interface.full} if outputs must be "
        f"taken first. {interface.take} returns {interface.empty} if no input is in flight. {interface.run} does both "
        f"for one input, and returns {interface.full} if other inputs are in flight.",
        *_kept_in_stages(interface),
    ]
    return (
        f"{comment_block(notes)}\n"
        f"#define {interface.in_flight_name} {interface.in_flight}u\n"
        f"{signature(interface, interface.put)};\n"
        f"{take_signature(interface)};\n"
    )


def _kept_in_stages(interface: Interface) -> list[str]:
    """Return the notes on the states of a pipeline."""
    if not interface.state_bytes:
        return []
    waits = f" {interface.take} returns {interface.not_ready} for the first inputs." if interface.warm_up_runs else ""
    return [
        f"Each input continues from the state of the previous input.{waits} {interface.reset} discards inputs in "
        "flight and their outputs. Save and restore the state only while no input is in flight."
    ]


def _listed(processors: Sequence[str]) -> str:
    """Return `The part of cpu1` or `The parts of cpu1 and cpu2`."""
    return f"The part{'s' if len(processors) > 1 else ''} of {' and '.join(processors)}"


def _reentrancy(interface: Interface) -> str:
    if interface.holds_context:
        return "Reentrant: instances may run at the same time, each in one run at a time."
    return "Not reentrant: the arenas are static."


def _context_api(interface: Interface) -> str:
    kept = f" and the state of {interface.state_bytes} B" if interface.state_bytes else ""
    alignment, member = interface.context_alignment_bytes, f"uint8_t bytes[{interface.context_bytes_name}];"
    return (
        f"/* An instance of the model: the arenas{kept}, for one stream, thread or task. Declare one instance\n"
        "   for each of these, in any memory of that alignment. A function uses its instance and constants only.\n"
        f"   {'Reset it before its first run.' if interface.state_bytes else 'It needs no initialization.'} */\n"
        f"#define {interface.context_bytes_name} {interface.context_bytes}u\n"
        f"#define {interface.context_alignment_name} {alignment}u\n"
        "typedef struct {\n#ifdef __cplusplus\n"
        f"    alignas({interface.context_alignment_name}) {member}\n#else\n"
        f"    _Alignas({interface.context_alignment_name}) {member}\n#endif\n"
        f"}} {interface.context_type};\n"
    )


def _state_api(interface: Interface) -> str:
    instance = "context" if interface.holds_context else ""
    return (
        f"/* State: {interface.state_bytes} B that a run keeps for the next run. Call {interface.reset}({instance})\n"
        f"   before the first run and to start over; without a reset, a run returns {interface.not_reset}.\n"
        "   After an error the state is undefined: reset it or restore a saved one.\n"
        "   To save the state, copy all of its bytes; to restore it, copy them back:\n"
        f"   memcpy(saved, {interface.state_place}({instance}), {interface.state_bytes_name});\n"
        "   A state fits only the build that saved it; a run rejects a state of another layout. */\n"
        f"#define {interface.state_bytes_name} {interface.state_bytes}u\n"
        f"{_warm_up(interface)}"
        f"{reset_signature(interface)};\n"
        f"{state_place_signature(interface)};\n"
    )


def _warm_up(interface: Interface) -> str:
    if not interface.warm_up_runs:
        return ""
    return (
        f"/* The first {interface.warm_up_runs} runs after a reset return {interface.not_ready}: the window is not\n"
        "   full, and the outputs are undefined. Later runs return what the model returns for the whole window. */\n"
        f"#define {interface.warm_up_name} {interface.warm_up_runs}\n"
    )


def labels_api(interface: Interface) -> str:
    """Return the declaration of the labels for the header."""
    return (
        "/* Names of the classes, in the order of the output's last axis: UTF-8. */\n"
        f"#define {interface.num_labels_macro} {len(interface.labels)}\n"
        f"extern const char *const {interface.labels_name}[{interface.num_labels_macro}];\n"
    )


def emit_labels(interface: Interface, origin: Origin) -> dict[str, str]:
    """Return the text of `<model>_labels.c`; no file without labels."""
    if not interface.labels:
        return {}
    model = interface.model
    lines = [f"{string_literal(label)}," for label in interface.labels]
    text = "\n".join(
        [
            banner(origin, f"{model}: names of the classes."),
            f'#include "{model}.h"\n',
            f"const char *const {interface.labels_name}[{interface.num_labels_macro}] = {{\n{block(lines)}\n}};\n",
        ]
    )
    return {f"{model}_labels.c": text}


_WIDEST_BITS = 16
"""Widest integers whose differences from any zero point are exact in float32."""


def convertible(port: Port) -> bool:
    """Return True for a port with conversion functions: of 8 or 16 bits, or of int32 with zero point 0."""
    if port.quantization is None:
        return False
    return np.iinfo(port.dtype).bits <= _WIDEST_BITS or (port.dtype == "int32" and not port.quantization.zero_point)


def quantize_functions(interface: Interface) -> str:
    """Return the conversion functions of quantized ports, which follow the header's macros; empty if there are none."""
    ports = [port for port in (*interface.inputs, *interface.outputs) if convertible(port)]
    if not ports:
        return ""
    return "\n".join([_nearest(interface), *(text for port in ports for text in _functions(interface, port))])


def _nearest(interface: Interface) -> str:
    """Return the C function that rounds to steps from the zero point; it compares without `==`, for -Wfloat-equal."""
    up, down = "rest >= 0.5f", "rest <= -0.5f"
    halves = "away from zero, as TensorFlow Lite's QUANTIZE rounds them"
    if interface.rounding == "onnx":
        halves = "to even numbers, as ONNX's QuantizeLinear rounds them"
        odd = "((whole % 2) != 0)"
        up, down = (
            f"(rest {sign} {half}) || ((rest {sign}= {half}) && {odd})"
            for sign, half in ((">", "0.5f"), ("<", "-0.5f"))
        )
    body = [
        "int32_t whole = 0;",
        "if (steps >= (float)most) {", block("whole = most;"), "}",
        "if (steps <= (float)least) {", block("whole = least;"), "}",
        "if ((steps > (float)least) && (steps < (float)most)) {",
        block([
            "whole = (int32_t)steps;", "const float rest = steps - (float)whole;",
            f"const bool is_above = {up};", f"const bool is_below = {down};",
            "whole += is_above ? 1 : 0;", "whole -= is_below ? 1 : 0;",
        ]),
        "}", "return whole;",
    ]  # fmt: skip
    return (
        "/* Convert real numbers to the integers of quantized inputs and outputs, and back. Halves are rounded\n"
        f"   {halves}. Values outside of the type's range\n"
        "   saturate, and NaN becomes the zero point. */\n"
        f"static inline int32_t {interface.nearest}(float steps, int32_t least, int32_t most)\n{{\n{block(body)}\n}}\n"
    )


def _functions(interface: Interface, port: Port) -> list[str]:
    quantization, limits = port.quantization, np.iinfo(port.dtype)
    assert quantization is not None, "the port is quantized"
    scale, zero_point = interface.port_macro(port, "SCALE"), interface.port_macro(port, "ZERO_POINT")
    least, most = (str(int(bound) - quantization.zero_point) for bound in (limits.min, limits.max))
    if limits.bits == 32:
        least, most = "INT32_MIN", "INT32_MAX"
    # A zero point of 0 is not added: an operation without an effect is one too many for MISRA (2.2).
    nearest = f"{interface.nearest}(real / {scale}, {least}, {most})"
    shifted = [f"int32_t value = {nearest};", f"value += {zero_point};", f"return ({port.c_type})value;"]
    shift = f" - {zero_point}" if quantization.zero_point else ""
    if not shift:
        shifted = [f"return ({port.c_type}){nearest};"]
    stands_for = [f"const int32_t steps = (int32_t)value{shift};", f"return {scale} * (float)steps;"]
    return [
        f"static inline {port.c_type} {interface.quantize(port)}(float real)\n{{\n{block(shifted)}\n}}\n",
        f"static inline float {interface.dequantize(port)}({port.c_type} value)\n{{\n{block(stands_for)}\n}}\n",
    ]


def emit_interface_check(interface: Interface) -> str:
    """Return the text of a file that checks the header: its second declarations must agree with the first ones."""
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
    """Return checks of each port's rows, and of the io struct: its functions, their order and their types."""
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
