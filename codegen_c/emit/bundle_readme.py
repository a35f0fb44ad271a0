"""README.md of a bundle: a view of its report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codegen_c.emit.bundle import Bundle
from codegen_c.emit.readme import usage, verified
from codegen_c.emit.templates import render


def emit_bundle_readme(bundle: Bundle, report: Mapping[str, Any]) -> str:
    """Text of README.md. report: what `report.json` holds."""
    models = [
        {
            "name": member.model,
            "source": report["models"][member.model]["model"]["source"],
            "sha256": report["models"][member.model]["model"]["sha256"],
            "verified": verified(report["models"][member.model]["verify"]),
            "usage": usage(member.interface),
            "report": report["models"][member.model],
            "instructions": (report["models"][member.model]["verify"]["qemu"] or {}).get("instructions"),
        }
        for member in bundle.members
    ]
    return render(
        "BUNDLE.md.j2", name=bundle.name, generator=report["generator"], platform=report["platform"], models=models,
        memories=[(one["name"], one["used_bytes"]) for one in report["memories"] if one["used_bytes"]],
        arenas=report["arenas"], states=report["states"], instances=report["instances"],
        at_once=report["bundle"]["at_once"], board=report["artifacts"]["elf"] is not None,
        code_bytes=report["code_bytes"], weights_bytes=report["weights_bytes"],
        functions=report["shared_functions"], constants=report["shared_constants"],
    )  # fmt: skip
