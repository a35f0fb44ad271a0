"""Tables of a bundle's report: what its models share, then each of them."""

from __future__ import annotations

from rich.console import RenderableType

from tvm_ext.report.cells import escape, number
from tvm_ext.report.folding_table import FoldingTable
from tvm_ext.report.model_tables import (
    comparisons_table,
    coverage,
    memories_table,
    totals_table,
    verification_table,
)
from tvm_ext.report.read_report import Report


def bundle_tables(report: Report) -> list[RenderableType]:
    """Shared and saved bytes of a bundle, then each model's totals and verification."""
    named = report["bundle"]
    title = f"{named['name']} on {report['platform']}: {', '.join(named['models'])}"
    table = FoldingTable("shared", "models", title=escape(title), title_justify="left")
    for heading in ("B", "saved B"):
        table.add_column(heading, justify="right")
    for arena in report["arenas"]:
        models = ", ".join(one["model"] for one in arena["arenas"])
        row = (number(arena["num_bytes"]), number(arena["saved_bytes"]))
        table.add_row(escape(f"arenas in {arena['memory']}"), escape(models), *row)
    for what, key in (("function", "shared_functions"), ("constant", "shared_constants")):
        for one in report[key]:
            row = (number(one["num_bytes"]), number(one["saved_bytes"]))
            table.add_row(escape(f"{what} {one['name']}"), escape(", ".join(one["models"])), *row)
    for link in report.get("links", ()):
        cost = number(link["constant_bytes"])
        table.add_row(escape(f"link to {link['target']}, {link['mapping']}"), escape(link["source"]), cost, "-")
    kept = (("state", "states"), ("linked inputs", "linked_inputs"), ("instance, the caller's", "instances"))
    for what, key in kept:
        for one in report.get(key, ()):
            table.add_row(what, escape(one["model"]), number(one["num_bytes"]), "-")
    table.add_row("weights", "", number(report["weights_bytes"]), "-")
    table.add_row("code", "", number(report["code_bytes"]), "-")
    table.add_row("statements the self-test covers", "", coverage(report.get("selftest_coverage") or {}), "")
    each = [part for own in report["models"].values() for part in _of_model(own)]
    return [table, memories_table(report), *each]


def _of_model(report: Report) -> list[RenderableType]:
    """Totals and verification of a model, and the comparisons that lead from its file to the C."""
    compared = [comparisons_table(report["comparisons"])] if report.get("comparisons") else []
    return [totals_table(report), verification_table(report), *compared]
