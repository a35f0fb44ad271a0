"""report.html, which shows report.json in one file, and the memory map for notebooks."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from rich.errors import ConsoleError

from tvm_ext.core.errors import BadPackage
from tvm_ext.core.files.compiled_templates import remember_compiled
from tvm_ext.core.printable import printable_lines
from tvm_ext.report.page.drawing import DARK, KINDS, LAYER_KINDS, LIGHT, bytes_text, count_text, variables
from tvm_ext.report.page.graph_picture import GraphPicture, graph_picture
from tvm_ext.report.page.grids import Bar, Cost, Grid, budget_bars, costs, grids_of, layer_grid
from tvm_ext.report.page.memory_picture import WORDS, MemoryPicture, arenas_of, memory_picture, overlays_of, things_of
from tvm_ext.report.page.timeline_picture import TimelinePicture, timeline_picture
from tvm_ext.report.read_report import Report
from tvm_ext.report.summary import elapsed_label, emulator_of, stand_in
from tvm_ext.report.tables import bundle_tables, other_tables, totals_table, verification_table


@dataclass(frozen=True, kw_only=True)
class ModelPart:
    """Contents of a page about one model. anchor: prefix of its sections' ids. tiles: label, value, explanation."""

    anchor: str
    name: str
    platform: str
    source: str
    verified: tuple[str, str]
    tiles: Sequence[tuple[str, str, str]]
    budgets: Sequence[Bar]
    maps: Sequence[MemoryPicture]
    costs: Sequence[Cost]
    cost_unit: str
    layers: Grid
    timeline: TimelinePicture | None
    graph: GraphPicture | None
    no_graph: str
    verification: Sequence[Grid]
    totals: Sequence[Grid]
    others: Sequence[Grid]


def report_page(report: Report) -> str:
    """Return report.html for the report of a model or bundle. Raises BadPackage for a damaged report."""
    report = visible(report)
    try:
        is_bundle = "bundle" in report and "model" not in report
        title = report["bundle"]["name"] if is_bundle else report["model"]["name"]
        models = report["models"].values() if is_bundle else [report]
        parts = [_model_part(own, f"m{index}") for index, own in enumerate(models)]
        return _page(
            title=title, platform=report["platform"], generator=report.get("generator", ""), models=parts,
            is_bundle=is_bundle, budgets=budget_bars(report) if is_bundle else [],
            overlays=overlays_of(report) if is_bundle else [],
            shared=grids_of(bundle_tables(report)[:1]) if is_bundle else [],
        )  # fmt: skip
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, ConsoleError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None


def _model_part(report: Report, anchor: str) -> ModelPart:
    things, model = things_of(report), report["model"]
    unit, bars = costs(report)
    graph = graph_picture(report)
    too_old = not all("reads" in step for step in report["steps"])
    return ModelPart(
        anchor=anchor, name=model["name"], platform=report["platform"],
        source=f"{model['source'] if 'source' in model else model['format']}, sha256 {str(model['sha256'])[:12]}",
        verified=verdict(report), tiles=_tiles(report), budgets=budget_bars(report),
        maps=[
            memory_picture(arena, [thing for thing in things if thing.memory == arena.memory], report["steps"])
            for arena in arenas_of(report)
        ],
        costs=bars, cost_unit=unit, layers=layer_grid(report),
        timeline=timeline_picture(report), graph=graph,
        no_graph="The report of this package is too old to name the inputs of layers: compile the model again."
        if too_old else f"{len(report['steps']):,} steps are too many for a drawing.",
        verification=grids_of([verification_table(report)]), totals=grids_of([totals_table(report)]),
        others=grids_of(other_tables(report)),
    )  # fmt: skip


def verdict(report: Report) -> tuple[str, str]:
    """Return the verdict in a few words, and `good`, `doubt` (no other runtime read the model) or `bad`."""
    results = {place: one for place, one in report["verify"].items() if one}
    if not results:
        return "Not verified", "bad"
    if not all(one["passed"] for one in results.values()):
        return "Verification failed", "bad"
    machine = stand_in(report)
    emulator = emulator_of(report)
    board = f"on a core with the same instructions in QEMU ({machine})" if machine else "on the board in QEMU"
    board = board if emulator == "QEMU" else f"in {emulator}"
    places = " and ".join({"host": "on the host", "qemu": board}.get(place, f"on {place}") for place in results)
    against = next((one["reference"] for one in results.values() if one.get("reference")), "an unnamed reference")
    own = any(one.get("own_reading") for one in results.values())
    verdict = f"Verified {places} against {against}"
    return (f"{verdict}, our own reading only", "doubt") if own else (verdict, "good")


def _tiles(report: Report) -> list[tuple[str, str, str]]:
    """Return the tiles with the most important values: label, value, explanation."""
    weights, code = report["weights_bytes"], report["code_bytes"]
    flash = weights + (code or 0)
    states = report.get("state_bytes") or 0
    return [
        ("RAM", bytes_text(report["arena_bytes"]), f"including {states:,} B of states" if states else "all arenas"),
        ("flash", bytes_text(flash),
         f"weights {weights:,} B, code {'not measured' if code is None else f'{code:,} B'}"),
        ("stack", "-" if report["stack_bytes"] is None else bytes_text(report["stack_bytes"]),
         "not measured" if report["stack_bytes"] is None else f"measured in {emulator_of(report)}"),
        _instructions_tile(report),
        ("multiply-adds", count_text(report["macs"]),
         f"in {len(report['steps']):,} steps{_at_best(report.get('macs_best_case'))}"),
    ]  # fmt: skip


def _instructions_tile(report: Report) -> tuple[str, str, str]:
    """Return the tile of a run's instructions.

    For a run on several processors the value is the elapsed instructions, and the explanation has those of one
    processor alone. Instructions of all processors together, measured or modelled, are labelled as a sum.
    """
    qemu: Report = report["verify"].get("qemu") or {}
    executed, emulator = qemu.get("instructions"), emulator_of(report)
    prediction: Report = report.get("prediction") or {}
    total = prediction.get("instructions") or sum(step.get("modelled_instructions") or 0 for step in report["steps"])
    best = _at_best(prediction.get("instructions_best_case"))
    modelled = f"{count_text(total)}{best}"
    processors = report.get("processors") or []
    if not processors:
        return ("instructions", count_text(total) if executed is None else count_text(executed),
                f"modelled{best}" if executed is None else f"executed in {emulator}; modelled {modelled}")  # fmt: skip
    of_all = f"modelled {modelled}, summed over all {len(processors)} processors"
    if executed is None or report.get("makespan_instructions") is None:
        return "instructions, sum", modelled, of_all
    alone = report.get("single_processor_instructions")
    beside = [f"one processor alone {count_text(alone)}"] if alone is not None else []
    summed = sum(processor["instructions"] or 0 for processor in processors)
    facts = [f"elapsed in {emulator}, waits included", *beside,
             f"sum of all, waits left out, {count_text(summed)}", of_all]  # fmt: skip
    return elapsed_label(report), count_text(executed), "; ".join(facts)


def _at_best(count: int | None) -> str:
    return "" if count is None else f"; best case {count_text(count)}"


def visible(value: Any) -> Any:
    """Return a report without characters that a document must not contain or that reorder its text."""
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, list):
        return [visible(item) for item in value]
    if isinstance(value, dict):
        return {visible(key): visible(item) for key, item in value.items()}
    return value


def _page(**values: Any) -> str:
    style, script = _texts()
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **values,
            style=style,
            script=script,
            style_hash=digest(style),
            script_hash=digest(script),
            words=WORDS,
            layer_kinds=LAYER_KINDS,
        )
    )


@cache
def environment(*others: Path) -> Environment:
    """Return the templates of this folder and of other folders. Every value in them is escaped."""
    environment = Environment(
        loader=FileSystemLoader([*others, Path(__file__).parent]), undefined=StrictUndefined, autoescape=True,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return remember_compiled(environment)


@cache
def _texts() -> tuple[str, str]:
    """Return style and script of the page."""
    return style_text(), script_text()


def script_text() -> str:
    """Return the script of pages: facts of what is pointed at, graphs, and sorting of tables."""
    return (Path(__file__).parent / "page.js").read_text(encoding="utf-8")


def style_text() -> str:
    """Return the style of pages: colours for light and dark, tables and pictures."""
    return (
        environment()
        .get_template("page.css.j2")
        .render(light=variables(LIGHT), dark=variables(DARK), kinds=KINDS, layer_kinds=LAYER_KINDS)
    )


def digest(text: str) -> str:
    """Return the hash of a text, by which the content security policy of the page allows it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


_MOST_THINGS = 1_000
"""Largest number of tensors in the maps of a notebook. Maps of more tensors are in report.html only."""


def inline_maps(report: dict[str, Any]) -> str:
    """Return a map of each arena; empty for a report without tensors, with too many tensors, or for a damaged one."""
    try:
        report = visible(report)
        things = things_of(report)
        if len(things) > _MOST_THINGS:
            return ""
        maps = [
            memory_picture(arena, [thing for thing in things if thing.memory == arena.memory], report["steps"])
            for arena in arenas_of(report)
        ]
        template = environment().get_template("inline_map.html.j2")
        return "".join(template.render(map=one, words=WORDS, colours=LIGHT, kinds=KINDS) for one in maps)
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError):
        return ""
