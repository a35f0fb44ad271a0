"""Tables of a package's report.json, for people. The report alone is read: no model, no C, no tvm."""

from __future__ import annotations

from rich.console import RenderableType
from rich.errors import ConsoleError

from tvm_ext.core.errors import BadPackage
from tvm_ext.report.bundle_tables import bundle_tables
from tvm_ext.report.model_tables import (
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
from tvm_ext.report.tuning_table import tuning_table


def report_tables(report: Report) -> list[RenderableType]:
    """Everything a report says: totals, memories, steps, quantization, verification. Raises BadPackage if damaged."""
    try:
        if "bundle" in report and "model" not in report:
            return bundle_tables(report)
        quantized = [quantization_table(report["quantization"])] if report.get("quantization") else []
        floats = [float_operations_table(report["float_operations"])] if report.get("float_operations") else []
        moved = report.get("prediction", {}).get("moved", [])
        moves = [moves_table(moved)] if moved else []
        states = [states_table(report)] if report.get("states") else []
        shared = [processors_table(report)] if report.get("processors") else []
        steps = steps_table(report["steps"])
        tables = [totals_table(report), memories_table(report), *states, *moves, *shared, steps, *floats, *quantized]
        tuned = [tuning_table(report["tuning"])] if report.get("tuning") else []
        return [*tables, *tuned, verification_table(report)]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, ConsoleError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None
