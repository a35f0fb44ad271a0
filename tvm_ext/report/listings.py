"""Tables that do not come from a report: platforms, Pareto fronts, sweeps, and operators by back end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from rich.console import RenderableType
from rich.padding import Padding

from tvm_ext.report.cells import FoldingTable, binary, escape, number


def platform_table(platforms: Iterable[Mapping[str, Any]]) -> FoldingTable:
    """Return a table of name, processors, memories and QEMU machine of each platform.

    platforms: contents of the platforms' files.
    """
    table = FoldingTable("platform", "processors", "memories", "QEMU machine", title="Cores", title_justify="left")
    for platform in platforms:
        processors = "\n".join(_processor(processor) for processor in platform["processors"])
        memories = "\n".join(f"{memory['name']} {binary(memory['capacity_bytes'])}" for memory in platform["memories"])
        machine = _machine(platform.get("board"))
        table.add_row(platform["name"], processors, memories, machine)
    return table


def board_table(platforms: Iterable[Mapping[str, Any]]) -> FoldingTable:
    """Return a table of core, clock and memory of each chip or board, and the QEMU machine with its core.

    platforms: contents of the boards' files.
    """
    table = FoldingTable("board", "core", title="Boards", title_justify="left")
    for heading in ("MHz", "RAM", "flash"):
        table.add_column(heading, justify="right")
    table.add_column("in QEMU")
    for platform in platforms:
        first, *others = platform["processors"]
        core = f"{core_name(first, platform)}{f' x{len(others) + 1}' if others else ''}"
        sizes = [
            binary(sum(memory["capacity_bytes"] for memory in platform["memories"] if memory["kind"] == kind))
            for kind in ("ram", "rom")
        ]
        machine = _machine(platform.get("board"))
        table.add_row(platform["name"], core, f"{first['clock_hz'] / 1e6:g}", *sizes, machine)
    return table


def _machine(board: Mapping[str, Any] | None) -> str:
    return "-" if board is None else board.get("qemu_machine") or "a process"


def platform_details(platform: Mapping[str, Any]) -> list[RenderableType]:
    """Return processors and memories of a platform's file, and the sources of their numbers."""
    names = ", ".join(escape(alias) for alias in platform.get("aliases", ()))
    parts: list[RenderableType] = [f"[bold]{platform['name']}[/bold]: {escape(platform['description'])}"]
    parts += [f"Other names: {names}"] if names else []
    parts += [_processors_table(platform), _memories_table(platform)]
    parts.append(f"By default tensors are in {platform['activations']} and weights in {platform['weights']}.")
    if board := platform.get("board"):
        note = ", which has the same core but other memories" if board.get("memories") else ""
        parts.append(f"In QEMU: {_machine(board)}{note}.")
    for title, key in (("Sources", "sources"), ("Derived or assumed", "assumptions")):
        statements = platform.get(key, ())
        parts += [f"[bold]{title}[/bold]"] if statements else []
        parts += [Padding(escape(statement), (0, 0, 0, 2)) for statement in statements]
    return parts


def _processors_table(platform: Mapping[str, Any]) -> FoldingTable:
    table = FoldingTable("processor", "core")
    table.add_column("MHz", justify="right")
    table.add_column("FPU")
    table.add_column("kernels")
    for one in platform["processors"]:
        fpu, simd = one.get("fpu", "none"), one.get("simd", "none")
        table.add_row(one["name"], core_name(one, platform), f"{one['clock_hz'] / 1e6:g}", fpu, simd)
    return table


def _memories_table(platform: Mapping[str, Any]) -> FoldingTable:
    """Return a table of memories and of the bytes reserved for the application, narrow enough for 80 columns."""
    table = FoldingTable("memory", "kind", padding=(0, 1, 0, 0))
    for heading in ("bytes", "reserved", "B/cycle", "latency"):
        table.add_column(heading, justify="right")
    table.add_column("section")
    table.add_column("address")
    for memory in platform["memories"]:
        reserved, address = memory.get("reserved_bytes", 0), memory.get("address")
        table.add_row(
            memory["name"], memory["kind"], binary(memory["capacity_bytes"]),
            binary(reserved) if reserved else "-", f"{memory['read_bytes_per_cycle']:g}",
            f"{memory.get('latency_cycles', 0)}", memory.get("section") or "-",
            "-" if address is None else f"{address:08x}",
        )  # fmt: skip
    return table


def core_name(processor: Mapping[str, Any], platform: Mapping[str, Any]) -> str:
    """Return the core's name as its designer writes it.

    The name is the processor's key `core`, or else -mcpu in its flags, or else its architecture.
    """
    flags = (*platform["toolchain"].get("flags", ()), *processor.get("flags", ()))
    named = [flag.removeprefix("-mcpu=").partition("+")[0] for flag in flags if flag.startswith("-mcpu=")]
    name = processor.get("core") or (named[-1] if named else processor["isa"])
    text = str(name).upper() if str(name).startswith("rv") else str(name).title()
    return text.replace("plus", "+").replace("Plus", "+")


def _processor(processor: Mapping[str, Any]) -> str:
    """Return the architecture of a processor and its vector extension."""
    simd = processor.get("simd", "none")
    return processor["isa"] if simd in ("none", processor["isa"]) else f"{processor['isa']}\nwith {simd}"


class ParetoPoint(Protocol):
    """A point of `tvm_ext.estimates.pareto`."""

    @property
    def arena_bytes(self) -> int: ...
    @property
    def modelled_instructions(self) -> int: ...
    @property
    def method(self) -> str: ...


def pareto_table(points: Sequence[ParetoPoint]) -> FoldingTable:
    """Return a table of arena bytes, modelled instructions and method, one row for each point."""
    table = FoldingTable(title="RAM against instructions (modelled)", title_justify="left")
    for heading in ("arena B", "instructions", "times the fewest"):
        table.add_column(heading, justify="right")
    table.add_column("by")
    fewest = max(min(point.modelled_instructions for point in points), 1)
    for point in points:
        ratio = f"{point.modelled_instructions / fewest:.3f}"
        table.add_row(number(point.arena_bytes), number(point.modelled_instructions), ratio, point.method)
    return table


class FlashRow(Protocol):
    """A point of `tvm_ext.building.flash_pareto`."""

    @property
    def weights_bytes(self) -> int: ...
    @property
    def code_bytes(self) -> int: ...
    @property
    def flash_bytes(self) -> int: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def predicted_cycles(self) -> int: ...
    @property
    def instructions(self) -> int | None: ...
    @property
    def verified(self) -> Sequence[str]: ...
    @property
    def options(self) -> Sequence[str]: ...


def flash_table(points: Sequence[FlashRow]) -> FoldingTable:
    """Return a table of flash, cycles, arena bytes, verification and options, one row for each point."""
    table = FoldingTable(title="Flash against cycles (predicted)", title_justify="left")
    for heading in ("flash B", "constants B", "code B", "cycles", "times the fewest", "instructions", "arena B"):
        table.add_column(heading, justify="right")
    table.add_column("verified on")
    table.add_column("options")
    fewest = max(min(point.predicted_cycles for point in points), 1)
    for point in points:
        table.add_row(
            number(point.flash_bytes), number(point.weights_bytes), number(point.code_bytes),
            number(point.predicted_cycles), f"{point.predicted_cycles / fewest:.3f}", number(point.instructions),
            number(point.arena_bytes), ", ".join(point.verified) or "-", " ".join(point.options),
        )  # fmt: skip
    return table


def front_table(front: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], x: str, y: str) -> FoldingTable:
    """Return a table of the rows of a sweep that no other row beats in the columns x and y.

    The title states the number of all rows and of rows with an error. A column that begins with - is maximized.
    """
    columns = [column.removeprefix("-") for column in (x, y)]
    failed = sum(1 for row in rows if row.get("error"))
    title = f"Best of {len(rows)} candidates{f', {failed} of which failed' if failed else ''}"
    table = FoldingTable("model", "platform", "options", title=title, title_justify="left")
    for column in columns:
        table.add_column(escape(column), justify="right")
    for row in front:
        values = (f"{row[column]:,}" for column in columns)
        table.add_row(*(escape(str(row[key])) for key in ("model", "platform", "options")), *values)
    return table


def backend_table(report: Mapping[str, Any]) -> str:
    """Return a text table with a row for each operator: its back end and its microseconds on each; then totals."""
    names = [processor["name"] for processor in report["processors"]]
    rows = [["operator", "kind", "on", *(f"{name} us" for name in names)]]
    for operator in report["operators"]:
        times = [_microseconds(operator["seconds"][name]) for name in names]
        rows.append([operator["name"], operator["kind"], operator["processor"], *times])
    alone = [_microseconds(report["single_processor_seconds"][name]) for name in names]
    rows.append(["all on one back end", "", "", *alone])
    total, crossing = _microseconds(report["total_seconds"]), _microseconds(report["crossing_seconds"])
    return "\n".join([*_aligned(rows), f"total {total} us, {crossing} us of it between back ends; {report['note']}"])


def _microseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e6:,.1f}"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with aligned columns, texts to the left and numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = len(("operator", "kind", "on"))
    return [
        "  ".join(
            cell.ljust(width) if index < texts else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
