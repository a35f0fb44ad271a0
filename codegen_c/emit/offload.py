"""Accelerator interfaces: the header that declares each, and the reference in `<model>_offload_reference.c`.

A header depends on the platform only, so all packages for one platform contain the same header.
"""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.c_text.text import C_TYPES, block
from codegen_c.emit.banner import Origin, banner
from codegen_c.kernels.offload.driver import FORMS, OFFLOAD_HEADER, form_name
from codegen_c.program.program import Program, drivers_of
from tvm_ext.core.platform import Offload, Platform, Processor

REFERENCE_HEADER = "tvm_ext_offload_reference.h"
LAYER_HEADERS = ("tvm_ext_offload_call.h", "tvm_ext_offload_floats.h", "tvm_ext_offload_integers.h")
REQUANTIZE_HEADERS = ("tvm_ext_requantize.h", "tvm_ext_requantize_tflite.h")


def reference_file(model: str) -> str:
    """Return the name of the file that implements the accelerator interfaces in C."""
    return f"{model}_offload_reference.c"


def runtime_headers(program: Program) -> list[str]:
    """Return the runtime headers that the reference needs."""
    return [OFFLOAD_HEADER, REFERENCE_HEADER, *LAYER_HEADERS, *REQUANTIZE_HEADERS] if drivers_of(program) else []


def emit_offload(program: Program, model: str, origin: Origin, platform: Platform) -> dict[str, str]:
    """Return the headers of the accelerators that a program calls, and the reference; nothing without such calls."""
    used = [platform.processor_named(name) for name in sorted(drivers_of(program))]
    if not used:
        return {}
    headers = {one.offload.header: _header(one, one.offload) for one in used if one.offload}
    return {**headers, reference_file(model): _reference(model, origin, used)}


def _header(processor: Processor, offload: Offload) -> str:
    guard = offload.header.upper().replace(".", "_").replace("-", "_")
    starts = [
        f"/* Starts a layer of kind {form}, and returns at once. */\n{_signature(offload, start, form)};\n"
        for start, form in _starts(offload).items()
    ]
    return "\n".join(
        [
            f"/* Interface of {processor.name}, which you implement. {OFFLOAD_HEADER} describes the arguments. */",
            f"#ifndef {guard}\n#define {guard}\n",
            f'#include "{OFFLOAD_HEADER}"\n',
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            *starts,
            f"/* Blocks until {processor.name} has finished the last started layer and its writes are visible.\n"
            "   Returns 0 for success; a run returns the first other value of a wait. */",
            f"int32_t {offload.wait}(void);\n",
            "#ifdef __cplusplus\n}\n#endif\n",
            "#endif\n",
        ]
    )


def _starts(offload: Offload) -> dict[str, str]:
    """Return the functions that start a layer, with the form of layer that each takes."""
    return {entry.start: form_name(entry) for entry in offload.operators}


def _element(offload: Offload, start: str) -> str:
    """Return the C type of the elements that a function takes; `void` if it takes several types."""
    types = {dtype for entry in offload.operators if entry.start == start for dtype in entry.types}
    return C_TYPES[types.pop()] if len(types) == 1 else "void"


def _signature(offload: Offload, start: str, name: str) -> str:
    element, form = _element(offload, start), FORMS[name]
    parameters = [
        f"const {form.struct} *layer", *(f"const {element} *{one}" for one in form.inputs),
        *(f"const {ctype} *{role}" for role, ctype in form.constants), f"{element} *output",
    ]  # fmt: skip
    return f"void {start}(\n{block(_filled(parameters))})"


def _filled(parameters: Sequence[str]) -> list[str]:
    head, tail = ", ".join(parameters[:4]), ", ".join(parameters[4:])
    return [f"{head},", tail] if tail else [head]


def _reference(model: str, origin: Origin, used: Sequence[Processor]) -> str:
    parts = [
        banner(origin, f"{model}: stands in for the drivers of accelerators, to verify and to test; link your own."),
        "\n".join(
            [*(f'#include "{one.offload.header}"' for one in used if one.offload), f'#include "{REFERENCE_HEADER}"']
        ),
        "",
    ]
    for one in used:
        assert one.offload is not None, "it has a driver"
        unit = f"{model}_{one.name}"
        parts.append(f"static tvm_ext_reference_unit {unit};\n")
        for start, name in _starts(one.offload).items():
            form = FORMS[name]
            places = zip(("input", "other"), form.inputs, strict=False)
            constants = ", ".join(f".{role} = {role}" for role, _ in form.constants)
            members = [
                f".kind = TVM_EXT_REFERENCE_{name.upper()},", ".layer = layer,",
                *(f".{place} = {given}," for place, given in places),
                *([f".constants = {{{constants}}},"] if constants else []), ".output = output,",
            ]  # fmt: skip
            body = [
                "const tvm_ext_reference_call call = {", *(f"    {member}" for member in members), "};",
                f"tvm_ext_reference_start(&{unit}, &call);",
            ]  # fmt: skip
            parts.append(f"{_signature(one.offload, start, name)}\n{{\n{block(body)}\n}}\n")
        parts.append(f"int32_t {one.offload.wait}(void)\n{{\n    return tvm_ext_reference_wait(&{unit});\n}}\n")
    counts = [f"{model}_{one.name}" for one in used]
    parts += [_count("starts", counts), _count("waits", counts)]
    return "\n".join(parts)


def _count(what: str, units: Sequence[str]) -> str:
    """Return the definition of the function that counts the calls of the accelerators' functions."""
    name = f"tvm_ext_offload_{what}"
    total = " + ".join(f"{unit}.{what}" for unit in units)
    return f"uint32_t {name}(void);\nuint32_t {name}(void)\n{{\n    return {total};\n}}\n"
