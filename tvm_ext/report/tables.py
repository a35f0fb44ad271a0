"""Tables of a package's report.json, for people. The report alone is read: no model, no C, no tvm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from rich.console import Group, RenderableType
from rich.errors import ConsoleError
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tvm_ext.core.errors import BadPackage
from tvm_ext.core.platform import NO_SIMD, Platform

NEWEST_SCHEMA = 1
_MOST_BYTES = 1 << 28
_MOST_DEPTH = 32

_CHANGES = {
    "ring": "pushes {rows} rows into a ring",
    "shift": "moves rows up, adds new ones",
    "in place": "writes it in place",
    "copy": "copies the next value",
    "none": "reads it only",
}
"""Ways in which a run changes a state, as the report names them."""

Report = dict[str, Any]


def read_report(folder: Path) -> Report:
    """report.json of a package. Raises BadPackage where there is none, or none that this version understands."""
    path = folder / "report.json"
    try:
        if path.stat().st_size > _MOST_BYTES or not path.is_file():
            raise BadPackage(f"{path}: is no file of at most {_MOST_BYTES} B. Compile the model again.")
        report: Any = json.loads(path.read_text(encoding="utf-8"))
        _check_depth(report)
    except OSError as error:
        raise BadPackage(f"{folder}: is not a package: report.json: {error.strerror}.") from None
    except ValueError as error:
        raise BadPackage(f"{path}: is damaged: {error}. Compile the model again.") from None
    except RecursionError:
        raise BadPackage(f"{path}: is damaged: nested too deeply. Compile the model again.") from None
    version = cast("Report", report).get("schema_version") if isinstance(report, dict) else None
    if not isinstance(version, int):
        raise BadPackage(f"{path}: is no report of tvm-ext: schema_version is missing.")
    if version > NEWEST_SCHEMA:
        raise BadPackage(f"{path}: has schema_version {version}; this tvm-ext reads up to {NEWEST_SCHEMA}. Update it.")
    return cast("Report", report)


def _check_depth(report: Any) -> None:
    """Raise RecursionError for what others would have to follow too deeply."""
    level: list[Any] = [report]
    for _ in range(_MOST_DEPTH):
        tables = [cast("Report", item).values() for item in level if isinstance(item, dict)]
        lists = [cast("list[Any]", item) for item in level if isinstance(item, list)]
        level = [item for items in (*tables, *lists) for item in items]
        if not level:
            return
    raise RecursionError


def report_tables(report: Report) -> list[RenderableType]:
    """Everything a report says: totals, memories, steps, quantization, verification. Raises BadPackage if damaged."""
    try:
        if "bundle" in report and "model" not in report:
            return bundle_tables(report)
        quantized = [_quantization(report["quantization"])] if report.get("quantization") else []
        floats = [_float_operations(report["float_operations"])] if report.get("float_operations") else []
        moved = report.get("prediction", {}).get("moved", [])
        moves = [_moved(moved)] if moved else []
        states = [_states(report)] if report.get("states") else []
        tables = [_totals(report), _memories(report), *states, *moves, _steps(report["steps"]), *floats, *quantized]
        return [*tables, _verification(report)]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, ConsoleError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None


def bundle_tables(report: Report) -> list[RenderableType]:
    """Shared and saved bytes of a bundle, then each model's totals and verification."""
    named = report["bundle"]
    title = f"{named['name']} on {report['platform']}: {', '.join(named['models'])}"
    table = Table("shared", "models", title=escape(title), title_justify="left")
    for heading in ("B", "saved B"):
        table.add_column(heading, justify="right")
    for arena in report["arenas"]:
        models = ", ".join(one["model"] for one in arena["arenas"])
        row = (_number(arena["num_bytes"]), _number(arena["saved_bytes"]))
        table.add_row(escape(f"arenas in {arena['memory']}"), escape(models), *row)
    for what, key in (("function", "shared_functions"), ("constant", "shared_constants")):
        for one in report[key]:
            row = (_number(one["num_bytes"]), _number(one["saved_bytes"]))
            table.add_row(escape(f"{what} {one['name']}"), escape(", ".join(one["models"])), *row)
    for link in report.get("links", ()):
        cost = _number(link["constant_bytes"])
        table.add_row(escape(f"link to {link['target']}, {link['mapping']}"), escape(link["source"]), cost, "-")
    kept = (("state", "states"), ("linked inputs", "linked_inputs"), ("instance, the caller's", "instances"))
    for what, key in kept:
        for one in report.get(key, ()):
            table.add_row(what, escape(one["model"]), _number(one["num_bytes"]), "-")
    table.add_row("weights", "", _number(report["weights_bytes"]), "-")
    table.add_row("code", "", _number(report["code_bytes"]), "-")
    table.add_row("statements the self-test covers", "", _coverage(report.get("selftest_coverage") or {}), "")
    each = [part for own in report["models"].values() for part in (_totals(own), _verification(own))]
    return [table, _memories(report), *each]


def platform_table(platforms: Iterable[Platform]) -> Table:
    """Name, processor, memories and QEMU machine of each platform."""
    table = Table("platform", "processor", "memories", "QEMU machine", title="Platforms", title_justify="left")
    for platform in platforms:
        processor = platform.processor
        memories = "\n".join(f"{memory.name} {_binary(memory.capacity_bytes)}" for memory in platform.memories)
        simd = "" if processor.simd in (NO_SIMD, processor.isa) else f"\nwith {processor.simd}"
        machine = platform.board.qemu_machine if platform.board else "-"
        table.add_row(platform.name, f"{processor.isa}{simd}", memories, machine)
    return table


class ParetoPoint(Protocol):
    """A point of `tvm_ext.pareto`."""

    @property
    def arena_bytes(self) -> int: ...
    @property
    def modelled_instructions(self) -> int: ...
    @property
    def method(self) -> str: ...


def pareto_table(points: Sequence[ParetoPoint]) -> Table:
    """Bytes, modelled instructions and how it was reached, one row per point."""
    table = Table(title="RAM against instructions (modelled)", title_justify="left")
    for heading in ("arena B", "instructions", "times the fewest"):
        table.add_column(heading, justify="right")
    table.add_column("by")
    fewest = max(min(point.modelled_instructions for point in points), 1)
    for point in points:
        ratio = f"{point.modelled_instructions / fewest:.3f}"
        table.add_row(_number(point.arena_bytes), _number(point.modelled_instructions), ratio, point.method)
    return table


def _totals(report: Report) -> Table:
    model = report["model"]
    table = Table(title=escape(f"{model['name']} on {report['platform']}"), show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.add_row("model", escape(f"{model['format']}, sha256 {str(model['sha256'])[:12]}"))
    table.add_row("arena", _arena(report["arena_bytes"], report["lower_bound_bytes"], bool(report.get("arena_proved"))))
    for label, key, unit in (
        ("weights", "weights_bytes", " B"),
        ("code", "code_bytes", " B"),
        ("stack", "stack_bytes", " B"),
        ("multiply-accumulates", "macs", ""),
    ):
        table.add_row(label, _number(report[key], unit))
        if key == "stack_bytes":
            table.add_row("stack, bound by its calls", _stack_bound(report.get("stack_bound") or {}))
    table.add_row("statements the self-test covers", _coverage(report.get("selftest_coverage") or {}))
    for port in (*report.get("inputs", ()), *report.get("outputs", ())):
        if stream := port.get("stream"):
            kept = f"{stream['rows_kept']} of {stream['rows']} rows held" if stream["rows"] > 1 else "whole"
            table.add_row(f"{escape(port['name'])}, streamed", escape(kept))
    if report.get("image"):
        table.add_row("image", escape(_image(report["image"])))
    qemu: Report = report["verify"].get("qemu") or {}
    table.add_row("instructions (QEMU; not cycles)", _number(qemu.get("instructions")))
    prediction: Report = report.get("prediction", {})
    if prediction.get("moved"):
        table.add_row("cycles (predicted)", _number(prediction["cycles"]))
        table.add_row("cycles, all in one memory (predicted)", _number(prediction["cycles_in_default_memory"]))
    return table


def _image(image: Report) -> str:
    places = [f"{run['address']:#x}" for run in image["runs"] or ()]
    return f"{image['file']}, {image['num_bytes']:,} B, {'run from ' + ' and '.join(places) if places else 'not run'}"


def _stack_bound(bound: Report) -> str:
    if bound.get("num_bytes") is None:
        return escape(f"none: {bound['reason']}") if bound.get("reason") else _number(None)
    depth = bound.get("callback_depth_bytes")
    own = _number(bound["num_bytes"], " B")
    return own if depth is None else f"{own}; {depth:,} B and a callback's own at each of the application's"


def _coverage(coverage: Report) -> str:
    if coverage.get("statements") is None:
        return escape(f"not measured: {coverage['reason']}") if coverage.get("reason") else _number(None)
    missed = sum(len(lines) for lines in coverage["missed"].values())
    return f"{coverage['covered']:,} of {coverage['statements']:,}{'' if not missed else f', {missed:,} lines missed'}"


def _arena(used: int, bound: int | None, proved: bool) -> str:
    if not bound:
        return _number(used, " B")
    if used == bound:
        return f"{used:,} B, its lower bound"
    gap = f"{used:,} B, {(used - bound) / bound:.1%} above the lower bound of {bound:,} B"
    return f"{gap}; no offsets need fewer" if proved else gap


def _memories(report: Report) -> Table:
    table = Table("memory", "kind", title="Memories", title_justify="left")
    for heading in ("used B", "capacity B", "used"):
        table.add_column(heading, justify="right")
    for memory in report["memories"]:
        used, capacity = memory["used_bytes"], memory["capacity_bytes"]
        share = "-" if used is None else f"{used / capacity:.1%}"
        table.add_row(escape(memory["name"]), escape(memory["kind"]), _number(used), _number(capacity), share)
    return table


def _states(report: Report) -> Table:
    """One row per state; then what runs keep beside them."""
    table = Table("state", "elements", title="Kept from run to run", title_justify="left")
    table.add_column("B", justify="right")
    table.add_column("at")
    table.add_column("a run")
    states: list[Report] = report["states"]
    for state in states:
        change = _CHANGES[state["update"]].format(rows=state["rows_pushed"])
        kind = f"{state['dtype']}[{','.join(map(str, state['shape']))}]"
        place = f"{state['memory']}, state+{state['offset']}"
        table.add_row(escape(state["name"]), escape(kind), _number(state["num_bytes"]), escape(place), change)
    marks = report["state_bytes"] - sum(state["num_bytes"] for state in states)
    table.add_row("marks and places of rings", "", _number(marks), "", "")
    table.add_row("in all", "", _number(report["state_bytes"]), "", "")
    return table


def _moved(moved: list[Report]) -> Table:
    table = Table("from", "to", title="Moved between memories in one run", title_justify="left")
    table.add_column("B", justify="right")
    for row in moved:
        table.add_row(escape(row["source"]), escape(row["target"]), _number(row["bytes"]))
    return table


def _steps(steps: list[Report]) -> Table:
    """One row per step; where a tensor stands and how long it lives as `memory+offset [begin, end)`, in steps."""
    table = Table(title="Steps", title_justify="left")
    table.add_column("#", justify="right")
    table.add_column("step", overflow="fold")
    table.add_column("kernel", overflow="fold")
    table.add_column("MACs", justify="right")
    table.add_column("modelled instr.", justify="right")
    table.add_column("scratch B", justify="right")
    table.add_column("writes")
    table.add_column("at [lives)")
    for step in steps:
        writes = [f"{out['dtype']}[{','.join(map(str, out['shape']))}]" for out in step["outputs"]]
        places = [
            f"{out['memory']}+{out['offset']} [{out['begin']}, {out['end']})" if out["memory"] else "the caller's"
            for out in step["outputs"]
        ]
        table.add_row(
            escape(str(step["index"])),
            escape(step["name"]),
            escape(step["kernel"]),
            _number(step["macs"]),
            _number(step.get("modelled_instructions")),
            _number(step["scratch_bytes"]),
            escape("\n".join(writes)),
            escape("\n".join(places)),
        )
    return table


def _float_operations(operations: list[Report]) -> Table:
    table = Table("step", title="Float arithmetic left in a quantized model", title_justify="left")
    table.add_column("because", overflow="fold")
    for operation in operations:
        table.add_row(escape(operation["step"]), escape(operation["reason"]))
    return table


def _quantization(quantization: Report) -> RenderableType:
    """Error per operator beside the float network, why operators are float, accuracy on the calibration samples."""
    reasons = {left["name"]: left["reason"] for left in quantization["left_float"]}
    table = Table("operator", "type", title="Quantization", title_justify="left")
    table.add_column("signal to noise", justify="right")
    table.add_column("left float because", overflow="fold")
    for operator in quantization["operators"]:
        name = operator["name"]
        reason = reasons.get(name, "") if operator["dtype"] != "int8" else ""
        table.add_row(escape(name), escape(operator["dtype"]), f"{operator['snr_db']:.2f} dB", escape(reason))
    for state in quantization.get("states", []):
        reason = reasons.get(state["name"], "") if state["dtype"] != "int8" else ""
        table.add_row(escape(state["name"]), escape(state["dtype"]), f"{state['snr_db']:.2f} dB", escape(reason))
    before, after = (_percent(quantization[key]) for key in ("accuracy_float", "accuracy_int8"))
    summary = f"{quantization['samples']} calibration samples; accuracy on them: float {before}, quantized {after}"
    if "carried_snr_db" in quantization:
        summary += f"; outputs with states carried over all of them: {quantization['carried_snr_db']:.2f} dB"
    return Group(table, Text(summary))


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.2%}"


def _verification(report: Report) -> RenderableType:
    verify: Report = report["verify"]
    targets = ["host", "qemu"] if report["artifacts"]["elf"] else ["host"]
    results = {target: verify[target] for target in ("host", "qemu") if verify.get(target)}
    if not results:
        message = "NOT VERIFIED: this package was never run and compared with a reference."
        return Panel(Text(message, style="bold red"), border_style="red", expand=False)
    table = Table("verified on", "against", "result", title="Verification", title_justify="left")
    for heading in ("max |error|", "relative to max |reference|", "elements"):
        table.add_column(heading, justify="right")
    for target, result in results.items():
        passed = Text("passed", style="green") if result["passed"] else Text("FAILED", style="bold red")
        errors = [_error(result[key]) for key in ("max_abs_error", "max_rel_error")]
        against = str(result.get("reference", "not said")) + (" (our own reading)" if result.get("own_reading") else "")
        table.add_row(target, escape(against), passed, *errors, _number(result["elements"]))
    notes = [f"not verified on {target}" for target in targets if target not in results][:1]
    own = next((result["own_reading"] for result in results.values() if result.get("own_reading")), None)
    notes += [f"compared with our own reading only: {own}"] if own else []
    return Group(table, *(Text(note, style="yellow") for note in notes)) if notes else table


def _number(value: int | None, unit: str = "") -> str:
    return "not measured" if value is None else f"{value:,}{unit}"


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _binary(num_bytes: int) -> str:
    """Bytes in the largest binary unit that divides them."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"
