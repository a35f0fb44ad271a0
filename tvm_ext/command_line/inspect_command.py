"""`tvm-ext inspect`: what is in a model's file, and whether it can be compiled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_texts import parse_bindings, parse_shapes
from tvm_ext.command_line.option_types import AsJson, Bind, Debug, Limit, Shape
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.command_line.stages_shown import waiting
from tvm_ext.core.limits import Limits
from tvm_ext.report.cells import escape
from tvm_ext.report.folding_table import FoldingTable


def inspect_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    shape: Shape = None,
    bind: Bind = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a model's inputs, outputs, operators and size. An error names every operator that cannot be compiled."""
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    with errors_shown(as_json, debug):
        with waiting(f"Reading {model.name}"):
            import_tvm_for(model)
            from tvm_ext.contents import contents_of

            module = tvm_ext.load(model, shapes=shapes, limits=Limits().changed(limit or []), bind=bound)
            found = contents_of(module)
        if as_json:
            print_json(found.to_json())
            return
        stdout.print(_ports("input", found.inputs))
        stdout.print(_ports("output", found.outputs))
        stdout.print(_operators(found.operators))
        stdout.print(
            f"{found.num_parameters:,} parameters in {found.parameter_bytes:,} B, {found.macs:,} multiply-accumulates"
            f"{f', {found.num_states} states' if found.num_states else ''}. Every operator can be compiled.",
            highlight=False,
        )


def _ports(title: str, ports: Sequence[Mapping[str, Any]]) -> FoldingTable:
    table = FoldingTable(title, "type", "shape", "scale", "zero point")
    for port in ports:
        shape = ", ".join(map(str, port["shape"]))
        cells = ("", "") if port["scale"] is None else (f"{port['scale']:.6g}", str(port["zero_point"]))
        table.add_row(escape(port["name"]), port["dtype"], f"[{shape}]".replace("[", "\\["), *cells)
    return table


def _operators(operators: Mapping[str, int]) -> FoldingTable:
    table = FoldingTable("operator")
    table.add_column("times", justify="right")
    for name, count in Counter(operators).most_common():
        table.add_row(escape(name), str(count))
    return table
