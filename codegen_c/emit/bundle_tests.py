"""Self-test and firmware of a bundle: those of its models, called in turn, and looks at states in between."""

from __future__ import annotations

from collections.abc import Sequence

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.firmware import board_files, firmware_part
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from tvm_ext.core.platform import Platform


def emit_bundle_selftest(bundle: Bundle, *, compares: bool) -> dict[str, str]:
    """`<bundle>_selftest.h/.c`, and a program for the host. compares: whether the models' self-tests do."""
    interfaces = [member.interface for member in bundle.members]
    values = {
        "bundle": bundle.name,
        "compares": compares,
        "models": _models(interfaces),
        "kept": [one.model for one in interfaces if one.state_bytes and not one.holds_context],
    }
    names = ("selftest.h", "selftest.c", "selftest_main.c")
    return {f"{bundle.name}_{name}": render(f"bundle_{name}.j2", **values) for name in names}


def emit_bundle_firmware(bundle: Bundle, platform: Platform, *, compares: bool) -> dict[str, str]:
    """Files under `board/`. Raises BadPlatform as `emit_firmware` does."""
    moves = any(member.program.moves() for member in bundle.members)
    values = {
        "bundle": bundle.name,
        "compares": compares,
        "models": _models([m.interface for m in bundle.members]),
    }
    parts = {
        f"firmware_{member.model}.c": firmware_part(
            member.interface, platform, moves=bool(member.program.moves()), in_bundle=True
        )
        for member in bundle.members
    }
    own = {"firmware.c": render("bundle_firmware.c.j2", **values), "models.h": render("bundle_models.h.j2", **values)}
    return board_files(platform, parts | own, moves=moves)


def _models(interfaces: Sequence[Interface]) -> list[dict[str, str | int]]:
    """Fields of models for the templates."""
    return [
        {
            "name": one.model,
            "context": one.holds_context,
            "input_bytes": sum(port.num_bytes for port in one.inputs),
            "output_bytes": sum(port.num_bytes for port in one.outputs),
        }
        for one in interfaces
    ]
