"""Tables of what was measured, kernels of layers and rows per call: figures of each way, and the one that was taken."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from tvm_ext.report.cells import escape, number
from tvm_ext.report.folding_table import FoldingTable
from tvm_ext.report.read_report import Report


def tuning_table(tuning: Report) -> RenderableType:
    """A row for each measured way of a layer, that which is taken marked; below, the sums before and after.

    Layers of one shape, which measured the same, stand together.
    """
    title = f"Kernels measured on {tuning['board']}: the fewest {tuning['metric']} are taken"
    table = FoldingTable("layer", "kernel", "block", title=escape(title), title_justify="left")
    for heading in ("modelled instr.", "instructions", "cycles", "scratch B", "taken"):
        table.add_column(heading, justify="right")
    alike: dict[str, list[Report]] = {}
    for layer in tuning["layers"]:
        alike.setdefault(str((layer["chosen"], layer["candidates"])), []).append(layer)
    for layers in alike.values():
        name = ", ".join(step for layer in layers for step in layer["steps"])
        measured = [one for one in layers[0]["candidates"] if one["not_measured"] is None]
        for row, one in enumerate(measured):
            block = "x".join(map(str, one["block"]))
            is_taken = f"{one['kernel']} {block}".strip() == layers[0]["chosen"]
            table.add_row(
                escape(name) if row == 0 else "", escape(one["kernel"]), block, number(one["modelled_instructions"]),
                number(one["instructions"]), number(one["estimated_cycles"]), number(one["scratch_bytes"]),
                "x" if is_taken else "", end_section=one is measured[-1],
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


def tuned_rows_table(rows: Report) -> RenderableType:
    """A row for each number of rows per call that was tried for a sequence, the taken one marked."""
    if rows["not_measured"]:
        return Text(f"{rows['not_measured']}.")
    table = FoldingTable("sequence", title="Rows per call, measured by runs of the whole model", title_justify="left")
    for heading in ("rows", "instructions", "cycles", "arena B", "taken"):
        table.add_column(heading, justify="right")
    for sequence in rows["sequences"]:
        modelled = {"rows_per_call": sequence["modelled"], **rows["before"], "arena_bytes": rows["arena_bytes"]}
        tried = sorted([modelled, *sequence["candidates"]], key=lambda one: one["rows_per_call"])
        layers = sequence["layers"]
        for place, one in enumerate(tried):
            is_taken = one["rows_per_call"] == sequence["chosen"]
            table.add_row(
                escape(f"{layers[0]} to {layers[-1]}") if place == 0 else "", number(one["rows_per_call"]),
                number(one["instructions"]), number(one["estimated_cycles"]), number(one["arena_bytes"]),
                "x" if is_taken else "", end_section=one is tried[-1],
            )  # fmt: skip
    return table
