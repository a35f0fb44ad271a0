"""Table of layers whose kernels were measured: figures of each way, and the one that was taken."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from tvm_ext.report.cells import number
from tvm_ext.report.read_report import Report


def tuning_table(tuning: Report) -> RenderableType:
    """A row for each way of each measured layer, those that are taken marked; below, the sums before and after."""
    title = f"Kernels measured on {tuning['board']}: the fewest {tuning['metric']} are taken"
    table = Table("layer", "kernel", "block", title=escape(title), title_justify="left")
    for heading in ("modelled instr.", "instructions", "cycles", "scratch B"):
        table.add_column(heading, justify="right")
    table.add_column("", overflow="fold")
    for layer in tuning["layers"]:
        for row, candidate in enumerate(layer["candidates"]):
            way = f"{candidate['kernel']} {'x'.join(map(str, candidate['block']))}".strip()
            said = candidate["not_measured"] or ("taken" if way == layer["chosen"] else "")
            table.add_row(
                escape(", ".join(layer["steps"])) if row == 0 else "", escape(candidate["kernel"]),
                "x".join(map(str, candidate["block"])), number(candidate.get("modelled_instructions")),
                number(candidate.get("instructions")), number(candidate.get("estimated_cycles")),
                number(candidate.get("scratch_bytes")), escape(said),
                end_section=row == len(layer["candidates"]) - 1,
            )  # fmt: skip
    before, after = tuning["before"], tuning["after"]
    sums = [
        f"{number(before[key])} {name} before, {number(after[key])} after"
        for key, name in (("instructions", "instructions"), ("estimated_cycles", "estimated cycles"))
        if before[key] is not None
    ]
    lines = [f"{tuning['layers_measured']} layers with a choice: {'; '.join(sums)}."]
    notes = [Text(f"{tuning['notice']}.", style="yellow")] if tuning["notice"] else []
    return Group(table, *map(Text, lines), *notes)
