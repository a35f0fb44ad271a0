"""Emit README.md of a package or a bundle, for the engineer who receives it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from types import MappingProxyType
from typing import Any

from codegen_c.c_text.text import block
from codegen_c.emit.bundle import Bundle
from codegen_c.emit.forms.registry import usages
from codegen_c.emit.header import convertible, describe_type
from codegen_c.emit.memory import section_macro
from codegen_c.emit.offload import reference_file
from codegen_c.emit.stream import callback_signature, describe_rows, describe_strips, streamed
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port
from tvm_ext.core.printable import markdown_code

_COLUMNS = 118


def emit_readme(
    interface: Interface,
    report: Mapping[str, Any],
    own_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
    weights_files: Sequence[str] = (),
) -> str:
    """Return the text of README.md.

    report: contents of `report.json`. own_flags: compiler flags of the sources that run on other processors.
    weights_files: names of the C files of constants.
    """
    model, verify = interface.model, report["verify"]
    used = [(memory["name"], memory["used_bytes"]) for memory in report["memories"] if memory["used_bytes"]]
    arenas = [memory["name"] for memory in report["memories"] if memory["used_bytes"] and memory["kind"] == "ram"]
    ports = [{"name": p.name, "description": _describe(p)} for p in (*interface.inputs, *interface.outputs)]
    parts = ["", "_memory", "_weights", *(["_state"] if report["states"] else [])]
    parts += ["_signals"] if interface.servers else []
    sources = [f"`{model}{part}.c`" for part in parts]
    sources += [f"`{file}`" for file in (*weights_files[1:], *own_flags)]
    sources.append("and the headers beside them")
    return render(
        "README.md.j2", model=model, generator=report["generator"], source=markdown_code(report["model"]["source"]),
        sha256=report["model"]["sha256"], platform=report["platform"],
        verified=verified(verify, report.get("comparisons", ()), report["machine"]),
        sections=report["artifacts"].get("sections"), stands_in=stands_in(report["machine"]),
        reserved=[(one["name"], one["reserved_bytes"]) for one in report["memories"] if one["reserved_bytes"]],
        usage=usage(interface), conversions=_conversions(interface),
        state=_state(interface, report) if report["states"] else None,
        shared=_shared(interface, report) if interface.servers else None,
        driven=_driven(interface, report) if "driver_calls" in report else None,
        ports=ports, files=", ".join(sources), board=report["artifacts"]["elf"] is not None, memories=used,
        arena_bytes=report["arena_bytes"], lower_bound_bytes=report["lower_bound_bytes"],
        code_bytes=report["code_bytes"], stack_bytes=report["stack_bytes"],
        image=report["image"], forms={} if own_flags or interface.servers else usages(model),
        own_flags={file: " ".join(flags) for file, flags in own_flags.items()},
        section=section_macro(model, arenas[0] if arenas else "ram"),
        instructions=verify["qemu"]["instructions"] if verify["qemu"] else None,
        **_emulator_fields(report["machine"]),
    )  # fmt: skip


def stands_in(machine: Mapping[str, Any] | None) -> str:
    """Return a sentence on a QEMU machine that stands in for the chip; empty for the platform's own machine."""
    if not machine or not machine["memories"]:
        return ""
    sizes = ", ".join(f"{one['name']} {one['capacity_bytes']} B" for one in machine["memories"])
    return fill(
        f"QEMU's machine `{machine['name']}` executes the instructions of the core but is not the chip: firmware for "
        f"it is linked for the memories of that machine ({sizes}), and uses none of the chip's peripherals.",
        _COLUMNS, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def verified(
    verify: Mapping[str, Any], comparisons: Sequence[Mapping[str, Any]] = (), machine: Mapping[str, Any] | None = None
) -> str:
    """Return a sentence for each target on which the package was run, and on the reference it was compared with.

    comparisons: of the forms that the model was transformed into; the C is the last form. machine: from `machine_of`.
    """
    places = {"host": "on the host", "qemu": _place(machine), "runner": "on a device"}
    ran = {target: result for target, result in verify.items() if result}
    sentences = [
        f"Verified {places[target]} against {result['reference']}: {_largest(result['max_abs_error'])} over "
        f"{result['elements']} output elements."
        for target, result in ran.items()
    ]
    sentences += [f"Before that {one['form']} was compared with {one['against']}." for one in comparisons[:-1]]
    sentences += [f"**Warning:** {doubt}." for result in ran.values() for doubt in result.get("warnings", ())]
    own = next((result["own_reading"] for result in ran.values() if result.get("own_reading")), None)
    if own:
        sentences.append(f"**Compared with our own reading only:** {own}.")
    return " ".join(sentences)


def _place(machine: Mapping[str, Any] | None) -> str:
    """Return where an emulator ran the package. machine: from `machine_of`."""
    if machine is not None and machine["memories"]:
        return f"on a core with the same instructions in QEMU (`{machine['name']}`)"
    emulator = "QEMU" if machine is None else machine["emulator"]
    return "on the board in QEMU" if emulator == "QEMU" else f"in {emulator}"


def _emulator_fields(machine: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the fields of the template that name the emulator: where `make run` runs, and what counts instructions."""
    if machine is None:
        return {}
    model = f"on QEMU's model of the {'core' if machine['memories'] else 'board'}"
    counted = model if machine["emulator"] == "QEMU" else f"in {machine['emulator']}"
    return {"run_place": machine["run_place"], "counted": counted}


def _largest(difference: float | None) -> str:
    """Return the largest difference as text. None: JSON has no number for it, because some outputs are infinite."""
    return "a difference that is not finite" if difference is None else f"largest difference {difference:g}"


def usage(interface: Interface) -> str:
    """Return an example of a call; with an instance for each stream, thread or task if callers hold instances."""
    if not interface.holds_context:
        return _calls(interface)
    lines = [f"static {interface.context_type} context;  /* one for each stream, thread or task */"]
    lines += [f"{interface.reset}(&context);"] if interface.state_bytes else []
    return "\n".join([*lines, "", _calls(interface)])


def _calls(interface: Interface) -> str:
    context = ["&context"] if interface.holds_context else []
    if interface.io == "caller":
        buffers = [
            f"static {p.c_type} {p.name}[{interface.size_macro(p)}];" for p in (*interface.inputs, *interface.outputs)
        ]
        arguments = ", ".join([*context, *(p.name for p in (*interface.inputs, *interface.outputs))])
        return "\n".join([*buffers, "", _run_line(interface, arguments)])
    if interface.io == "stream":
        return _stream_usage(interface)

    def accessor(port: Port) -> str:
        return f"{interface.accessor(port)}({''.join(context)})"

    lines = [f"{p.c_type} *{p.name} = {accessor(p)};  /* fill before each run */" for p in interface.inputs]
    lines.append(_run_line(interface, "".join(context)))
    lines += [f"const {p.c_type} *{p.name} = {accessor(p)};" for p in interface.outputs]
    return "\n".join(lines)


def _conversions(interface: Interface) -> str:
    """Return an example of the functions that convert elements of the first quantized input and output.

    The example is empty if neither side has a quantized port.
    """
    ports = [next(filter(convertible, side), None) for side in (interface.inputs, interface.outputs)]
    read, written = ports
    lines = [f"{read.name}[i] = {interface.quantize(read)}(real);  /* rounds, saturates */"] if read else []
    lines += [f"float real_{written.name} = {interface.dequantize(written)}({written.name}[i]);"] if written else []
    return "\n".join(lines)


def _shared(interface: Interface, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the section on processors that share a run."""
    first, *others = [one for one in report["processors"] if "driver" not in one]
    return {
        "run": interface.run, "first": first["name"], "signals": report["signals"],
        "servers": [{**other, "function": interface.serve(other["name"])} for other in others],
        "processors": [{**one, "num_steps": len(one["steps"])} for one in report["processors"]],
        "makespan": report["makespan_instructions"], "single": report["single_processor_instructions"],
        "pipeline": _pipeline(interface, report) if interface.is_pipeline else None,
    }  # fmt: skip


def _pipeline(interface: Interface, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the part on successive inputs, with an example of a loop over them."""
    arguments, begins, advances = "", "uint32_t under_way = 0u;", list[str]()
    if interface.io == "caller":
        names = (*interface.inputs, *interface.outputs)
        arguments = ", ".join(f"{port.name}[put]" for port in names)
        note = f"/* one of {interface.in_flight} buffers, until its take */"
        fills = [f"fill({port.name}[put]);  {note}" for port in interface.inputs]
        results = [f"use({port.name}[put]);  /* output of the oldest input */" for port in interface.outputs]
        begins, advances = "uint32_t under_way = 0u, put = 0u;", [f"put = (put + 1u) % {interface.in_flight_name};"]
    else:
        fills = [f"fill({interface.accessor(port)}());" for port in interface.inputs]
        results = [f"use({interface.accessor(port)}());  /* of the previous input */" for port in interface.outputs]
    full = f"if (++under_way == {interface.in_flight_name}) {{"
    taken = block([f"{interface.take}();", *results, "under_way--;"])
    body = [*fills, f"{interface.put}({arguments});", *advances, full, taken, "}"]
    return {
        "put": interface.put, "take": interface.take, "in_flight": interface.in_flight,
        "usage": "\n".join([begins, "for (;;) {", block(body), "}"]),
        "interval": report["interval_instructions"], "stages": report["stage_instructions"],
    }  # fmt: skip


def _driven(interface: Interface, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the section on accelerators."""
    return {
        "accelerators": [one for one in report["processors"] if "driver" in one],
        "calls": report["driver_calls"], "reference": reference_file(interface.model),
    }  # fmt: skip


def _state(interface: Interface, report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the section on states."""
    states = report["states"]
    return {
        "reset": interface.reset, "run": interface.run, "place": interface.state_place,
        "instance": "&context" if interface.holds_context else "",
        "bytes_name": interface.state_bytes_name, "not_reset": interface.not_reset, "not_ready": interface.not_ready,
        "warm_up_name": interface.warm_up_name, "warm_up_runs": interface.warm_up_runs,
        "num_bytes": interface.state_bytes, "memory": states[0]["memory"], "retained": states[0]["retained"],
        "section": section_macro(interface.model, states[0]["memory"]), 
        "rows": [{**state, "name": markdown_code(state["name"])} for state in states],
    }  # fmt: skip


def _stream_usage(interface: Interface) -> str:
    """Return an example of attaching I/O code: a camera or another source of input rows, and a consumer of outputs."""
    texts: list[str] = []
    for direction, port in streamed(interface):
        name, macro = f"{direction}_{port.name}", interface.row_macro(port)
        line = f"&rows[(row - row_begin) * {macro}]"
        if direction == "read":
            note = "Your driver waits for a row and returns its address, or NULL if no row comes."
            in_strips = port.stream is not None and port.stream.strips != ()
            copied = f"memcpy({line}, row_of_{port.name}, {macro} * sizeof *rows);"
            if in_strips:
                copied = (
                    f"memcpy(&rows[(row - row_begin) * width], &row_of_{port.name}[column_begin * pixel], "
                    "width * sizeof *rows);"
                )
            body = [
                f"const {port.c_type} *const row_of_{port.name} = driver_{port.name}(context, row);",
                f"if (row_of_{port.name} == NULL) {{",
                block("return 1; /* after any value but 0 the run reads no more rows, and returns the same value */"),
                "}",
                copied,
            ]
        else:
            note = "A row is complete: your driver copies, sends or draws it. The row is valid only during the call."
            body = [f"driver_{port.name}(context, row, {line});"]
        loop = ["for (int32_t row = row_begin; row < row_end; ++row) {", block(body), "}", "return 0;"]
        if port.stream and port.stream.strips:
            note = "Your driver returns the address of the row. The run may ask for the same row several times. "
            note += describe_strips(port)
            loop = [
                f"const int32_t pixel = {macro} / {interface.columns_macro(port)};",
                "const int32_t width = (column_end - column_begin) * pixel;",
                *loop,
            ]
        signature = callback_signature(direction, port, name)
        texts.append(f"/* {note} */\nstatic {signature}\n{{\n{block(loop)}\n}}\n")
    members = [f".{direction}_{port.name} = {direction}_{port.name}," for direction, port in streamed(interface)]
    struct = f"const {interface.io_struct} io = {{\n{block(members)}\n}};"
    arguments = "&context, &io" if interface.holds_context else "&io"
    return "\n".join([*texts, struct, _run_line(interface, arguments)])


def _run_line(interface: Interface, arguments: str) -> str:
    return f"{interface.status_type} status = {interface.run}({arguments});  /* {interface.ok}: success */"


def _describe(port: Port) -> str:
    """Return the description of a port and of its stream, if it has one."""
    stream, described = port.stream, f"{describe_type(port)}, in the model {markdown_code(port.source)}"
    described += f", which takes {port.taken_as}" if port.taken_as else ""
    if stream is None:
        return described
    kept = f", of which {stream.rows_kept} are held at a time" if stream.rows_kept < stream.rows else ", held whole"
    together = f", up to {stream.rows_per_call} a call" if stream.rows_per_call > 1 else ""
    again = f". {describe_strips(port).removesuffix('.')}" if stream.strips else ""
    return f"{described}: {describe_rows(port)}{together}{kept}{again}"


def emit_bundle_readme(bundle: Bundle, report: Mapping[str, Any]) -> str:
    """Return the text of a bundle's README.md. report: contents of `report.json`."""
    machine = report["machine"]
    models = [_model(member.interface, report["models"][member.model], machine) for member in bundle.members]
    return render(
        "BUNDLE.md.j2", name=bundle.name, generator=report["generator"], platform=report["platform"], models=models,
        memories=[(one["name"], one["used_bytes"]) for one in report["memories"] if one["used_bytes"]],
        arenas=report["arenas"], states=report["states"], instances=report["instances"],
        variants=report["variants"],
        links=[{**link, **{end: markdown_code(link[end]) for end in ("source", "target")}} for link in report["links"]],
        linked_inputs=report["linked_inputs"], cores=bundle.other_cores, placement=report["placement"],
        elsewhere=[member.model for member in bundle.members if member.processors],
        round=report["round"],
        at_once=report["bundle"]["at_once"], board=report["artifacts"]["elf"] is not None,
        sections=report["artifacts"].get("sections"), stands_in=stands_in(machine),
        code_bytes=report["code_bytes"], weights_bytes=report["weights_bytes"],
        forms={} if bundle.other_cores else usages(bundle.name),
        functions=report["shared_functions"], constants=report["shared_constants"], **_emulator_fields(machine),
    )  # fmt: skip


def _model(interface: Interface, report: Mapping[str, Any], machine: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the fields of a model for the template. machine: from `machine_of`."""
    board: Mapping[str, Any] | None = report["verify"]["qemu"]
    return {
        "name": interface.model,
        "source": markdown_code(report["model"]["source"]),
        "sha256": report["model"]["sha256"],
        "verified": verified(report["verify"], report.get("comparisons", ()), machine),
        "usage": usage(interface),
        "instructions": board["instructions"] if board else None,
    }
