"""README.md of a bundle: a view of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.forms.registry import usages
from codegen_c.emit.readme import stands_in, usage, verified
from codegen_c.emit.templates import render
from codegen_c.program.interface import Interface
from tvm_ext.core.printable import markdown_code


def emit_bundle_readme(bundle: Bundle, report: Mapping[str, Any]) -> str:
    """Text of README.md. report: what `report.json` holds."""
    machine = report["machine"]
    models = [_model(member.interface, report["models"][member.model], machine) for member in bundle.members]
    return render(
        "BUNDLE.md.j2", name=bundle.name, generator=report["generator"], platform=report["platform"], models=models,
        memories=[(one["name"], one["used_bytes"]) for one in report["memories"] if one["used_bytes"]],
        arenas=report["arenas"], states=report["states"], instances=report["instances"],
        variants=report["variants"],
        links=[{**link, **{end: markdown_code(link[end]) for end in ("source", "target")}} for link in report["links"]],
        linked_inputs=report["linked_inputs"],
        at_once=report["bundle"]["at_once"], board=report["artifacts"]["elf"] is not None,
        sections=report["artifacts"].get("sections"), stands_in=stands_in(machine),
        code_bytes=report["code_bytes"], weights_bytes=report["weights_bytes"],
        forms=usages(bundle.name), functions=report["shared_functions"], constants=report["shared_constants"],
    )  # fmt: skip


def _model(interface: Interface, report: Mapping[str, Any], machine: Mapping[str, Any] | None) -> dict[str, Any]:
    """Fields of a model for the template. machine: as `machine_of` has it."""
    board: Mapping[str, Any] | None = report["verify"]["qemu"]
    return {
        "name": interface.model,
        "source": markdown_code(report["model"]["source"]),
        "sha256": report["model"]["sha256"],
        "verified": verified(report["verify"], report.get("comparisons", ()), machine),
        "usage": usage(interface),
        "instructions": board["instructions"] if board else None,
    }
