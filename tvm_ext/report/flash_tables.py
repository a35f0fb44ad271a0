"""The table of flash by layer, and of what layers share."""

from __future__ import annotations

from tvm_ext.report.cells import escape, number
from tvm_ext.report.folding_table import FoldingTable
from tvm_ext.report.read_report import Report

_MOST_NAMED = 4


def flash_table(flash: Report) -> FoldingTable:
    """A row per layer, then one for each function or constant that several share, and what is left."""
    title = "Flash by layer: weights, and code that only this layer runs; shared code once"
    table = FoldingTable("layer, or what layers share", "used by", title=title, title_justify="left")
    for heading in ("weights B", "code B", "sum B"):
        table.add_column(heading, justify="right")
    for layer in flash["layers"]:
        _row(table, layer["layer"], "", layer["weights_bytes"], layer["code_bytes"])
    for one in flash["shared_weights"]:
        _row(table, one["name"], _users(one["layers"]), one["num_bytes"], 0)
    for one in flash["shared_code"]:
        _row(table, one["name"], _users(one["layers"]), 0, one["num_bytes"])
    if flash["other_weights_bytes"] or flash["other_code_bytes"]:
        _row(
            table,
            "the run function and what else there is",
            "",
            flash["other_weights_bytes"],
            flash["other_code_bytes"],
        )
    table.add_section()
    _row(table, "all; without the C library, start-up, application", "", flash["weights_bytes"], flash["code_bytes"])
    return table


def _row(table: FoldingTable, name: str, users: str, weights_bytes: int, code_bytes: int) -> None:
    figures = [number(count) if count else "-" for count in (weights_bytes, code_bytes)]
    table.add_row(escape(name), escape(users), *figures, number(weights_bytes + code_bytes))


def _users(layers: list[str]) -> str:
    more = f" and {len(layers) - _MOST_NAMED} more" if len(layers) > _MOST_NAMED else ""
    return f"{', '.join(layers[:_MOST_NAMED])}{more}"
