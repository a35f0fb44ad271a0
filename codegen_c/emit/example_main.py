"""Files of a new project beside its package: a program that runs the model once, and its build files."""

from __future__ import annotations

import numpy as np

from codegen_c.emit.header import convertible
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port


def emit_main(interface: Interface) -> str:
    """Return the text of main.c, which fills the inputs, runs the model and prints the outputs.

    The interface must have io `arena`.
    """
    inputs = [{**_port(interface, port), "value": _zero(interface, port)} for port in interface.inputs]
    outputs = [{**_port(interface, port), **_printed(interface, port)} for port in interface.outputs]
    return render(
        "main.c.j2", model=interface.model, inputs=inputs, outputs=outputs, run=interface.run, ok=interface.ok,
        reset=interface.reset if interface.state_bytes else "",
    )  # fmt: skip


def emit_project_cmake(model: str, package: str) -> str:
    """Return the text of CMakeLists.txt. package: the package's folder relative to the project's."""
    return render("project_CMakeLists.txt.j2", model=model, package=package)


def _port(interface: Interface, port: Port) -> dict[str, str]:
    return {
        "name": port.name, "c_type": port.c_type, "accessor": interface.accessor(port),
        "size": interface.size_macro(port),
    }  # fmt: skip


def _zero(interface: Interface, port: Port) -> str:
    """Return the C expression of the element that represents the number zero."""
    if convertible(port):
        return f"{interface.quantize(port)}(0.0f)"
    return "0.0f" if port.dtype == "float32" else "0"


def _printed(interface: Interface, port: Port) -> dict[str, str]:
    """Return the printf format and the C expression with which an element is printed."""
    element = f"{port.name}[i]"
    if convertible(port):
        return {"format": "%g", "value": f"(double){interface.dequantize(port)}({element})"}
    if np.issubdtype(np.dtype(port.dtype), np.floating):
        return {"format": "%g", "value": f"(double){element}"}
    return {"format": "%lld", "value": f"(long long){element}"}
