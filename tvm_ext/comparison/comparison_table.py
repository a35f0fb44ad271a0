"""The table of a comparison, one row for each value that a layer wrote."""

from __future__ import annotations

from tvm_ext.comparison.comparison import PackageComparison
from tvm_ext.report.cells import escape
from tvm_ext.report.folding_table import FoldingTable

_MOST_LETTERS = 40


def comparison_table(found: PackageComparison) -> FoldingTable:
    """Errors: of the layer alone, fed by the reference, and with all errors before it."""
    title = f"{found.model} on {found.on} beside {found.witness}"
    if found.own_reading:
        title += f", our own reading of the model ({found.own_reading})"
    table = FoldingTable("#", "layer", "value in the model", title=escape(title), title_justify="left")
    for heading in ("own max error", "own mean", "max error", "may be"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for layer in found.layers:
        figures = [layer.own_error, layer.mean, layer.error, layer.limit]
        unit = " LSB" if layer.lsb else ""
        cells = ["-" if figure is None else f"{figure:.3g}{unit}" for figure in figures]
        verdict = f"{layer.verdict}: {layer.reason}" if layer.reason else layer.verdict
        style = "bold red" if layer.verdict == "differs" else None
        table.add_row(
            str(layer.step), escape(layer.name), escape(_short(layer.value)), *cells, escape(verdict), style=style
        )
    return table


def _short(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 3]}..."
