"""Tables of a profile: its layers, and a note on the estimate."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from tvm_ext.profiling.device_profile import NOT_AVAILABLE, DeviceProfile
from tvm_ext.profiling.profile import NOTE, LayerProfile, Profile
from tvm_ext.report.cells import FoldingTable, escape, number


def profile_tables(profile: Profile) -> list[RenderableType]:
    """Return a table with a row for each layer and their sum, and a note on the estimate."""
    title = f"{profile.model} on {profile.platform}, estimated at {profile.clock_hz / 1e6:g} MHz"
    table = FoldingTable(title=escape(title), title_justify="left")
    memories = list(profile.memories())
    for heading in ("layer", "kernel"):
        table.add_column(heading)
    for heading in ("instructions", "cycles", "ms", "%", "stack B"):
        table.add_column(heading, justify="right")
    for memory in memories:
        table.add_column(f"{escape(memory)} B\nread,\nwritten", justify="right")
    for layer in profile.layers:
        table.add_row(
            escape(layer.name), escape(layer.kernel or "-"), number(layer.num_instructions),
            *_cycles(profile, layer.cycles), number(layer.stack_bytes),
            *(_moved(layer, memory) for memory in memories),
        )  # fmt: skip
    table.add_section()
    table.add_row(
        "total", "", number(profile.num_instructions), *_cycles(profile, profile.cycles),
        number(profile.stack_bytes),
    )  # fmt: skip
    branches = [Text(profile.branches_note)] if profile.branches_note else []
    return [table, *branches, Text(f"{NOTE} {profile.core_source}. {profile.core_bound}")]


def device_tables(profile: DeviceProfile) -> list[RenderableType]:
    """Return a table with a row for each measured layer and their sum, and a note on missing measurements."""
    title = f"{profile.model} on {profile.platform}, measured by {profile.program}"
    table = FoldingTable("layer", "kernel", title=escape(title), title_justify="left")
    for heading in ("calls", "cycles", "ms", "%"):
        table.add_column(heading, justify="right")
    for layer in profile.layers:
        share = f"{layer.cycles / profile.cycles:.1%}" if profile.cycles else "-"
        milliseconds = f"{profile.milliseconds(layer.cycles):,.3f}"
        table.add_row(
            escape(layer.name), escape(layer.kernel or "-"), number(layer.calls), number(layer.cycles), milliseconds,
            share,
        )  # fmt: skip
    table.add_section()
    table.add_row("total", "", "", number(profile.cycles), f"{profile.milliseconds(profile.cycles):,.3f}", "")
    run = f"The whole run: {number(profile.total_cycles)} cycles, {number(profile.stack_bytes)} B of stack."
    return [table, Text(f"{run} Not available on a device: {', '.join(NOT_AVAILABLE)}.")]


def _cycles(profile: Profile, cycles: float) -> tuple[str, str, str]:
    share = cycles / profile.cycles if profile.cycles else 0.0
    return number(round(cycles)), f"{profile.milliseconds(cycles):,.3f}", f"{share:.1%}"


def _moved(layer: LayerProfile, name: str) -> str:
    found = next((memory for memory in layer.memories if memory.name == name), None)
    return f"{found.loaded_bytes:,}\n{found.stored_bytes:,}" if found else "-"
