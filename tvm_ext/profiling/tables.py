"""A profile as tables: layers, and what the estimate is."""

from __future__ import annotations

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tvm_ext.profiling.profile import NOTE, LayerProfile, Profile
from tvm_ext.report.cells import number


def profile_tables(profile: Profile) -> list[RenderableType]:
    """A row for each layer and their sum, then a note on the estimate."""
    title = f"{profile.model} on {profile.platform}, estimated at {profile.clock_hz / 1e6:g} MHz"
    table = Table(title=escape(title), title_justify="left")
    memories = list(profile.memories())
    for heading in ("layer", "kernel"):
        table.add_column(heading, overflow="fold")
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
        "in all", "", number(profile.num_instructions), *_cycles(profile, profile.cycles),
        number(profile.stack_bytes),
    )  # fmt: skip
    return [table, Text(f"{NOTE} {profile.core_source}. {profile.core_bound}")]


def _cycles(profile: Profile, cycles: float) -> tuple[str, str, str]:
    share = cycles / profile.cycles if profile.cycles else 0.0
    return number(round(cycles)), f"{profile.milliseconds(cycles):,.3f}", f"{share:.1%}"


def _moved(layer: LayerProfile, name: str) -> str:
    found = next((memory for memory in layer.memories if memory.name == name), None)
    return f"{found.loaded_bytes:,}\n{found.stored_bytes:,}" if found else "-"
