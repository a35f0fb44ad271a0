"""`image/`: a model as an image that a main program finds in memory, and the files that build and call an image.

`<model>_image.*` replace the library in the main program: the same functions, which call the loaded image. `head.c` and
`link.ld` build the image from the library's sources; the loader is the same in every package.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from codegen_c.emit.header import accessor_signature, reset_signature, signature, state_place_signature
from codegen_c.emit.memory import section_macro
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface, Port
from codegen_c.targets.registry import instruction_set_of, runtime_text, startup_of
from tvm_ext.core.alignment import ALIGNMENT_BYTES
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.platform import Platform

LOADER = ("tvm_ext_image.h", "tvm_ext_image.c")
MAKES = ("tvm_ext_image_math.c", "tvm_ext_image_hidden.h", "tvm_ext_image_seal.c")
HIDDEN_HEADER = "tvm_ext_image_hidden.h"
LINK_FLAGS = ("-Wl,-pie", "-Wl,--no-dynamic-linker", "-Wl,--build-id=none")
"""Flags of the C compiler that link an image: its address is unknown, and no loader relocates it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A function of an image.

    handed: arguments that are passed on. missing: result without an image; empty for void.
    """

    declared: str
    name: str
    handed: str
    missing: str

    def typed(self, number: int) -> str:
        """Return the declaration of the function's type, `function_<number>`."""
        return " ".join(self.declared.replace(f"{self.name}(", f"function_{number}(", 1).split())


def check_image(platform: Platform) -> None:
    """Raise BadOptions if the platform's code cannot be made to run at any address."""
    if platform.board is None or not startup_of(platform).image_flags:
        raise BadOptions(
            f"relocatable_image: {platform.name} has no board whose code can be made to run at any address; choose "
            "a platform that has one, such as cortex_m4, or remove the option."
        )


def image_flags(model: str, platform: Platform) -> list[str]:
    """Return the compiler flags for the sources of an image, in addition to those of the library."""
    sections = [f"-D{section_macro(model, memory.name)}=" for memory in platform.memories]
    return [*startup_of(platform).image_flags, "-fno-math-errno", "-include", HIDDEN_HEADER, *sections]


def entries(interface: Interface) -> list[Entry]:
    """Return the functions of an image in the order of its table."""
    ports = (*interface.inputs, *interface.outputs)
    extra = {"arena": [], "caller": [port.name for port in ports], "stream": ["io"]}[interface.io]
    run = ", ".join(["context", *extra])
    none = interface.as_status("TVM_EXT_IMAGE_NONE")
    found = [Entry(declared=signature(interface), name=interface.run, handed=run, missing=none)]
    if interface.state_bytes:
        reset, place = reset_signature(interface), state_place_signature(interface)
        found += [Entry(declared=reset, name=interface.reset, handed="context", missing="")]
        found += [Entry(declared=place, name=interface.state_place, handed="context", missing="NULL")]
    if interface.io == "arena":
        found += [
            Entry(
                declared=accessor_signature(interface, port), name=interface.accessor(port), handed="context",
                missing="NULL",
            )
            for port in ports
        ]  # fmt: skip
    return found


def interface_id(interface: Interface) -> tuple[int, int]:
    """Return 64 bits that identify functions and tensors: names, types, shapes, rows, and the presence of state.

    Scales and zero points are left out: a retrained network has different ones, and the image contains them.
    """
    said = {
        "io": interface.io,
        "states": interface.state_bytes > 0,
        "warms_up": interface.warm_up_runs > 0,
        "inputs": [_shape_of(port) for port in interface.inputs],
        "outputs": [_shape_of(port) for port in interface.outputs],
    }
    digest = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big")


def emit_image(interface: Interface, platform: Platform) -> dict[str, str]:
    """Return the files under `image/`. The platform has passed `check_image`, and callers hold the instances."""
    model = interface.model
    ports = (*interface.inputs, *interface.outputs)
    values = {
        "model": model,
        "alignment": ALIGNMENT_BYTES,
        "entries": entries(interface),
        "ports": [
            {
                "name": port.name,
                "size": interface.size_macro(port),
                "zero_point": port.quantization.zero_point if port.quantization else 0,
                "scale": _float(port.quantization.scale if port.quantization else 0.0),
            }
            for port in ports
        ],
        "id": [f"0x{word:08x}u" for word in interface_id(interface)],
        "state_bytes": interface.state_bytes_name if interface.state_bytes else "0u",
        "warm_up_runs": interface.warm_up_name if interface.warm_up_runs else "0u",
        "context_bytes": interface.context_bytes_name,
        "context_alignment": interface.context_alignment_name,
    }
    generated = {
        f"{model}_image.h": "image.h.j2",
        f"{model}_image.c": "image.c.j2",
        "head.c": "image_head.c.j2",
        "link.ld": "image.ld.j2",
        "board.c": "image_board.c.j2",
    }
    shipped = instruction_set_of(platform.processor)
    texts = {name: render(template, **values) for name, template in generated.items()}
    texts |= {name: runtime_text(name, shipped) for name in (*LOADER, *MAKES)}
    return {f"image/{name}": text for name, text in sorted(texts.items())}


def _shape_of(port: Port) -> list[object]:
    stream = port.stream
    strips = [list(map(list, stream.strips))] if stream and stream.strips else []
    return [port.name, port.dtype, list(port.shape), [stream.rows, list(stream.layout), *strips] if stream else None]


def _float(value: float) -> str:
    return f"{value:.9g}f" if "." in f"{value:.9g}" or "e" in f"{value:.9g}" else f"{value:.9g}.0f"
