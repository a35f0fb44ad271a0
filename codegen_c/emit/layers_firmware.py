"""Firmware that runs a program once, for who measures its steps: inputs from a file, outputs to another."""

from __future__ import annotations

from codegen_c.emit.firmware import board_files, print_layers
from codegen_c.emit.selftest import ports
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from tvm_ext.core.platform import Platform


def emit_layers_firmware(interface: Interface, platform: Platform) -> dict[str, str]:
    """Files under `board/`; inputs and outputs lie in the arena. Raises BadPlatform as `emit_firmware` does."""
    text = render(
        "layers_firmware.c.j2",
        model=interface.model,
        macro=interface.model.upper(),
        print_layers=print_layers(interface),
        inputs=ports(interface, "inputs", ""),
        outputs=ports(interface, "outputs", ""),
    )
    return board_files(platform, {"firmware.c": text}, moves=False)
