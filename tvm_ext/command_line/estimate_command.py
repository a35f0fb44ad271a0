"""`tvm-ext estimate`: what a model needs on a platform, without a C compiler, an emulator or a package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

import tvm_ext
from tvm_ext.command_line.import_tvm import import_tvm_for
from tvm_ext.command_line.option_parameters import build_options, with_options
from tvm_ext.command_line.option_texts import parse_bindings, parse_shapes
from tvm_ext.command_line.option_types import AsJson, Bind, Calibration, Debug, Limit, OnPlatform, Shape
from tvm_ext.command_line.show import errors_shown, print_json, stdout
from tvm_ext.command_line.stages_shown import waiting
from tvm_ext.core.limits import Limits
from tvm_ext.core.options import OPTIONS
from tvm_ext.report.cells import binary, escape, number
from tvm_ext.report.folding_table import FoldingTable

_OF_PACKAGES = ("verify", "name", "image", "hooks", "tune")
"""Options that change nothing before there is a package."""


@with_options(entry for name, entry in OPTIONS.items() if name not in _OF_PACKAGES)
def estimate_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A model: .onnx, .tflite or .pt2.")],
    platform: OnPlatform,
    options: Mapping[str, Any],
    shape: Shape = None,
    bind: Bind = None,
    calibration: Calibration = None,
    limit: Limit = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show the RAM, flash and time that a model needs. Takes seconds, and writes nothing."""
    shapes, bound = parse_shapes(shape or []), parse_bindings(bind or [])
    with errors_shown(as_json, debug):
        board = tvm_ext.Platform.load(platform)
        chosen = build_options(options, board.activations)
        with waiting(f"Estimating {model.name}"):
            import_tvm_for(model)
            module = tvm_ext.load(model, shapes=shapes, limits=Limits().changed(limit or []), bind=bound)
            found = tvm_ext.estimate(module, board, chosen, calibration=calibration)
        if as_json:
            print_json(asdict(found) | {"predicted_ms": found.predicted_ms})
            return
        table = FoldingTable("", title=f"{found.model} on {found.platform}, estimated", title_justify="left")
        table.add_column("", justify="right")
        for name, num_bytes in found.memories.items():
            memory = board.memory(name)
            kept = f" less {binary(memory.reserved_bytes)} of the application" if memory.reserved_bytes else ""
            table.add_row(f"{escape(name)}, of {binary(memory.capacity_bytes)}{kept}", number(num_bytes, " B"))
        for title, value in (
            ("weights and tables", number(found.weights_bytes, " B")),
            ("multiply-accumulates", number(found.macs)),
            ("instructions of a run", number(found.predicted_instructions)),
            ("cycles of a run", number(found.predicted_cycles)),
            (f"time at {found.clock_hz / 1e6:g} MHz", f"{found.predicted_ms:.2f} ms"),
            ("made to fit by", found.method),
        ):
            table.add_row(title, value)
        stdout.print(table)
