"""Tables beside those of a report: platforms there are, points of bytes against instructions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from tvm_ext.report.cells import binary, escape, number
from tvm_ext.report.folding_table import FoldingTable


def platform_table(platforms: Iterable[Mapping[str, Any]]) -> FoldingTable:
    """Name, processors, memories and QEMU machine of each platform. platforms: tables as their files have them."""
    table = FoldingTable("platform", "processors", "memories", "QEMU machine", title="Platforms", title_justify="left")
    for platform in platforms:
        processors = "\n".join(_processor(processor) for processor in platform["processors"])
        memories = "\n".join(f"{memory['name']} {binary(memory['capacity_bytes'])}" for memory in platform["memories"])
        machine = platform["board"]["qemu_machine"] if "board" in platform else "-"
        table.add_row(platform["name"], processors, memories, machine)
    return table


def _processor(processor: Mapping[str, Any]) -> str:
    """Architecture of a processor, and the vectors that it has beside."""
    simd = processor.get("simd", "none")
    return processor["isa"] if simd in ("none", processor["isa"]) else f"{processor['isa']}\nwith {simd}"


class ParetoPoint(Protocol):
    """A point of `tvm_ext.pareto`."""

    @property
    def arena_bytes(self) -> int: ...
    @property
    def modelled_instructions(self) -> int: ...
    @property
    def method(self) -> str: ...


def pareto_table(points: Sequence[ParetoPoint]) -> FoldingTable:
    """Bytes, modelled instructions and how it was reached, one row per point."""
    table = FoldingTable(title="RAM against instructions (modelled)", title_justify="left")
    for heading in ("arena B", "instructions", "times the fewest"):
        table.add_column(heading, justify="right")
    table.add_column("by")
    fewest = max(min(point.modelled_instructions for point in points), 1)
    for point in points:
        ratio = f"{point.modelled_instructions / fewest:.3f}"
        table.add_row(number(point.arena_bytes), number(point.modelled_instructions), ratio, point.method)
    return table


def front_table(front: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], x: str, y: str) -> FoldingTable:
    """Rows of a sweep that no other beats in two columns; how many there are in all, and how many came to nothing."""
    columns = [column.removeprefix("-") for column in (x, y)]
    failed = sum(1 for row in rows if row.get("error"))
    title = f"Best of {len(rows)} candidates{f', {failed} of which came to nothing' if failed else ''}"
    table = FoldingTable("model", "platform", "options", title=title, title_justify="left")
    for column in columns:
        table.add_column(escape(column), justify="right")
    for row in front:
        figures = (f"{row[column]:,}" for column in columns)
        table.add_row(*(escape(str(row[key])) for key in ("model", "platform", "options")), *figures)
    return table
