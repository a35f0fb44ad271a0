"""Table of a report about processors that share a run."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from tvm_ext.report.cells import escape, number
from tvm_ext.report.folding_table import FoldingTable
from tvm_ext.report.read_report import Report


def processors_table(report: Report) -> Group:
    """One row per processor, the caller's first; below, the whole run, or the time between inputs of a pipeline."""
    table = FoldingTable("processor", title="Processors that share a run", title_justify="left")
    for heading in ("steps", "instructions", "stack, bound by its calls"):
        table.add_column(heading, justify="right")
    bounds: Report = report.get("stack_bound_of") or {}
    for place, processor in enumerate(report["processors"]):
        name = processor["name"]
        bound: Report = bounds.get(name) or (report.get("stack_bound") or {} if place == 0 else {})
        table.add_row(
            escape(name + (f", behind {processor['driver']}" if processor.get("driver") else "")),
            number(len(processor["steps"])),
            number(processor["instructions"]),
            number(bound.get("num_bytes"), " B"),
        )
    return Group(table, Text(_of_all(report)))


def _of_all(report: Report) -> str:
    """Counts of the run as a whole, as a sentence."""
    parts = [f"{report['signals']:,} signals"]
    if calls := report.get("driver_calls"):
        parts.append(f"accelerators started {calls['starts']:,} times, awaited {calls['waits']:,} times")
    for key, words in (
        ("makespan_instructions", "{:,} instructions from begin to end, waits included"),
        ("interval_instructions", "{:,} between successive outputs"),
        ("single_processor_instructions", "{:,} on the fastest core alone"),
    ):
        if report.get(key) is not None:
            parts.append(words.format(report[key]))
    return "In a run: " + "; ".join(parts)
