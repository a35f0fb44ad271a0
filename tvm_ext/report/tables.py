"""Tables of a package's report.json, for people. The report alone is read: no model, no C, no tvm."""

from __future__ import annotations

from rich.console import RenderableType
from rich.errors import ConsoleError

from tvm_ext.core.errors import BadPackage
from tvm_ext.report.bundle_tables import bundle_tables
from tvm_ext.report.flash_tables import flash_table
from tvm_ext.report.model_tables import (
    comparisons_table,
    float_operations_table,
    memories_table,
    moves_table,
    quantization_table,
    states_table,
    steps_table,
    totals_table,
    verification_table,
)
from tvm_ext.report.processor_tables import processors_table
from tvm_ext.report.read_report import Report
from tvm_ext.report.tuning_table import tuned_rows_table, tuning_table


def report_tables(report: Report) -> list[RenderableType]:
    """Everything a report says: totals, memories, steps, quantization, verification. Raises BadPackage if damaged."""
    try:
        if "bundle" in report and "model" not in report:
            return bundle_tables(report)
        totals, memories = totals_table(report), memories_table(report)
        steps, verification = steps_table(report["steps"]), verification_table(report)
        return [totals, memories, steps, *other_tables(report), verification]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, ConsoleError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None


def other_tables(report: Report) -> list[RenderableType]:
    """Tables that only some models have: states, moves, processors, floats, quantization, comparisons, flash, tuning.

    Raises LookupError, TypeError, AttributeError, ValueError for a report that is damaged.
    """
    states = [states_table(report)] if report.get("states") else []
    moved = report.get("prediction", {}).get("moved", [])
    moves = [moves_table(moved)] if moved else []
    shared = [processors_table(report)] if report.get("processors") else []
    floats = [float_operations_table(report["float_operations"])] if report.get("float_operations") else []
    quantized = [quantization_table(report["quantization"])] if report.get("quantization") else []
    flash = [flash_table(report["flash"])] if report.get("flash") else []
    tuning: Report = report.get("tuning") or {}
    tuned = [tuning_table(tuning)] if tuning else []
    rows = [tuned_rows_table(tuning["rows"])] if tuning.get("rows") else []
    compared = [comparisons_table(report["comparisons"])] if report.get("comparisons") else []
    return [*states, *moves, *shared, *floats, *quantized, *compared, *flash, *tuned, *rows]
