"""Summary of a report in one line or in a few facts, for consoles and notebooks. Missing values are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tvm_ext.core.printable import printable


def summary_line(report: Mapping[str, Any]) -> str:
    """Return name, platform, bytes and verification in one line."""
    return printable(f"{title(report)}: {', '.join(f'{name} {value}' for name, value in summary_facts(report))}")


def title(report: Mapping[str, Any]) -> str:
    """Return the name of the model or bundle and its platform."""
    named: Any = report.get("model") or report.get("bundle")
    name = named.get("name") if isinstance(named, dict) else None
    return f"{name or 'a package'} on {report.get('platform', 'a platform not named')}"


def elapsed_label(report: Mapping[str, Any]) -> str:
    """Return the label of QEMU's count of instructions.

    For a run on several cores it is the count from begin to end of the run, not the sum of all cores.
    """
    return "instructions" if report.get("makespan_instructions") is None else "elapsed instructions"


def summary_facts(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the most important values: bytes of RAM and flash, instructions, verification.

    Damaged values are left out.
    """
    facts = [
        (words, f"{value:,} B")
        for words, value in (
            ("arena", report.get("arena_bytes")), ("weights", report.get("weights_bytes")),
            ("code", report.get("code_bytes")), ("stack", report.get("stack_bytes")),
        )
        if isinstance(value, int)
    ]  # fmt: skip
    models: Any = report.get("models")
    if isinstance(models, dict):
        return [("models", ", ".join(map(str, models))), *facts]
    verify: Any = report.get("verify")
    results = {place: one for place, one in verify.items() if isinstance(one, dict)} if isinstance(verify, dict) else {}
    instructions = results.get("qemu", {}).get("instructions")
    if isinstance(instructions, int):
        facts.append((elapsed_label(report), f"{instructions:,}"))
    failed = [place for place, one in results.items() if one.get("passed") is not True]
    verdict = f"failed on {', '.join(failed)}" if failed else f"on {', '.join(results)}" if results else "nowhere"
    return [*facts, ("verified", verdict)]


def stand_in(report: Mapping[str, Any]) -> str:
    """Return the name of a QEMU machine that has the platform's core but other memories, else an empty text."""
    machine: Any = report.get("machine")
    return str(machine.get("name")) if isinstance(machine, dict) and machine.get("memories") else ""


def emulator_of(report: Mapping[str, Any]) -> str:
    """Return the name of the emulator that ran the package; older reports have QEMU only, and do not name it."""
    machine: Any = report.get("machine")
    return str(machine.get("emulator", "QEMU")) if isinstance(machine, dict) else "QEMU"
