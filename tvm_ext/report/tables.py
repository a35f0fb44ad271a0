"""Tables of a package's or a bundle's report.json for terminals and pages."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.errors import ConsoleError
from rich.panel import Panel
from rich.text import Text

from tvm_ext.core.errors import BadPackage
from tvm_ext.report.cells import FoldingTable, TableByWidth, escape, number, percent, small_number
from tvm_ext.report.read_report import Report
from tvm_ext.report.summary import elapsed_label, emulator_of, stand_in


def report_tables(report: Report) -> list[RenderableType]:
    """Return all tables of a report: totals, memories, steps, quantization, verification and others.

    Raises BadPackage for a damaged report.
    """
    try:
        if "bundle" in report and "model" not in report:
            return bundle_tables(report)
        totals, memories = totals_table(report), memories_table(report)
        steps, verification = steps_table(report["steps"]), verification_table(report)
        return [totals, memories, steps, *other_tables(report), verification]
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, ConsoleError) as error:
        raise BadPackage(f"report.json: is damaged at {error}. Compile the model again.") from None


def other_tables(report: Report) -> list[RenderableType]:
    """Return the tables that only some models have: states, moves, processors, floats, quantization, flash, tuning.

    Raises LookupError, TypeError, AttributeError or ValueError for a damaged report.
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
    compared = [comparisons_table(report["comparisons"])] if report.get("comparisons") else []
    return [*states, *moves, *shared, *floats, *quantized, *compared, *flash, *tuned]


_CHANGES = {
    "ring": "pushes {rows} rows into a ring",
    "shift": "shifts rows and appends new rows",
    "in place": "writes it in place",
    "copy": "copies the next value",
    "none": "only reads it",
}
"""Ways in which a run updates a state: the report's name and words for the table."""

_STEP_COLUMNS = 110
"""Width of a terminal from which names, kernels, shapes and offsets of steps have separate columns."""


def totals_table(report: Report) -> FoldingTable:
    """Return a table of bytes, work and instructions of a model, one row for each."""
    model, steps = report["model"], report.get("steps", ())
    title = escape(f"{model['name']} on {report['platform']}")
    table = FoldingTable(title=title, show_header=False, title_justify="left")
    table.add_column()
    table.add_column(justify="right")
    table.add_row("model", escape(f"{model['format']}, sha256 {str(model['sha256'])[:12]}"))
    table.add_row("arena", _arena(report["arena_bytes"], report["lower_bound_bytes"], bool(report.get("arena_proved"))))
    if again := report.get("recomputed"):
        table.add_row("recomputed", _computed_again(again))
    for label, key, unit in (
        ("weights", "weights_bytes", " B"),
        ("code", "code_bytes", " B"),
        ("stack", "stack_bytes", " B"),
        ("multiply-accumulates", "macs", ""),
    ):
        table.add_row(label, number(report[key], unit) + (best_case(report, "macs") if key == "macs" else ""))
        if key == "weights_bytes" and (grown := [step["grown_weights"] for step in steps if "grown_weights" in step]):
            saved = sum(one["modelled_instructions_saved"] for one in grown)
            table.add_row(
                "pre-transformed weights",
                f"{sum(one['bytes'] for one in grown):,} B, to save {saved:,} modelled instructions",
            )
        if key == "code_bytes" and report.get("flash"):
            table.add_row("flash: weights + code, no C library", number(report["flash"]["total_bytes"], " B"))
        if key == "stack_bytes":
            table.add_row("stack, bound by call graph", _stack_bound(report.get("stack_bound") or {}))
    table.add_row("statements covered by self-test", coverage(report.get("selftest_coverage") or {}))
    for port in (*report.get("inputs", ()), *report.get("outputs", ())):
        if stream := port.get("stream"):
            kept = f"{stream['rows_kept']} of {stream['rows']} rows held" if stream["rows"] > 1 else "whole"
            table.add_row(f"{escape(port['name'])}, streamed", escape(kept))
    if report.get("image"):
        table.add_row("image", escape(_image(report["image"])))
    qemu: Report = report["verify"].get("qemu") or {}
    label, alone = elapsed_label(report), report.get("single_processor_instructions")
    table.add_row(f"{label} ({emulator_of(report)}; not cycles)", number(qemu.get("instructions")))
    if alone is not None:
        table.add_row(f"{label}, one processor alone", number(alone))
    prediction: Report = report.get("prediction", {})
    if "instructions_best_case" in prediction:
        table.add_row(
            "instructions (predicted)", number(prediction["instructions"]) + best_case(prediction, "instructions")
        )
        table.add_row("time (predicted)", f"{prediction['ms']:.2f} ms{best_case(prediction, 'ms', ' ms')}")
    if prediction.get("moved") or "cycles_best_case" in prediction:
        table.add_row("cycles (predicted)", number(prediction["cycles"]) + best_case(prediction, "cycles"))
    if prediction.get("moved"):
        table.add_row("cycles, all in one memory (predicted)", number(prediction["cycles_in_default_memory"]))
    return table


def best_case(values: Report, key: str, unit: str = "") -> str:
    """Return the best case of a value, to follow its worst case; empty for a model without branches."""
    best = values.get(f"{key}_best_case")
    return (
        ""
        if best is None
        else f"; best case {best:,}{unit}"
        if isinstance(best, int)
        else f"; best case {best:.2f}{unit}"
    )


def _computed_again(again: Report) -> str:
    spent = f"{again['operators']:,} operators, {again['instructions']:,} modelled instructions"
    return spent if again["at_least"] is None else f"{spent}; at least {again['at_least']:,} in this order"


def _image(image: Report) -> str:
    places = [f"{run['address']:#x}" for run in image["runs"] or ()]
    return f"{image['file']}, {image['num_bytes']:,} B, {'run from ' + ' and '.join(places) if places else 'not run'}"


def _stack_bound(bound: Report) -> str:
    if bound.get("num_bytes") is None:
        return escape(f"none: {bound['reason']}") if bound.get("reason") else number(None)
    depth = bound.get("callback_depth_bytes")
    own = number(bound["num_bytes"], " B")
    return own if depth is None else f"{own}; {depth:,} B and the callback's own stack in a callback"


def coverage(measured: Report) -> str:
    """Return the number of statements of the generated C that the self-test runs, or why it was not measured."""
    if measured.get("statements") is None:
        return escape(f"not measured: {measured['reason']}") if measured.get("reason") else number(None)
    missed = sum(len(lines) for lines in measured["missed"].values())
    return f"{measured['covered']:,} of {measured['statements']:,}{'' if not missed else f', {missed:,} lines missed'}"


def _arena(used: int, bound: int | None, proved: bool) -> str:
    if not bound:
        return number(used, " B")
    if used == bound:
        return f"{used:,} B, its lower bound"
    gap = f"{used:,} B, {(used - bound) / bound:.1%} above the lower bound of {bound:,} B"
    return f"{gap}; proved minimal" if proved else gap


def memories_table(report: Report) -> FoldingTable:
    """Return a table of the used bytes of each memory, and of bytes reserved for the application if there are any."""
    table = FoldingTable("memory", "kind", title="Memories: tensors and weights, without code", title_justify="left")
    reserves = any(memory.get("reserved_bytes") for memory in report["memories"])
    for heading in ("used B", "capacity B", *(["reserved B"] if reserves else []), "used"):
        table.add_column(heading, justify="right")
    for memory in report["memories"]:
        used, capacity = memory["used_bytes"], memory["capacity_bytes"]
        share = "-" if used is None else f"{used / capacity:.1%}"
        kept = [number(memory.get("reserved_bytes", 0))] if reserves else []
        table.add_row(escape(memory["name"]), escape(memory["kind"]), number(used), number(capacity), *kept, share)
    return table


def states_table(report: Report) -> FoldingTable:
    """Return a table with one row for each state, then the bytes of flags and ring indices and the total."""
    table = FoldingTable("state", "elements", title="Kept from run to run", title_justify="left")
    table.add_column("B", justify="right")
    table.add_column("at")
    table.add_column("each run")
    states: list[Report] = report["states"]
    for state in states:
        change = _CHANGES[state["update"]].format(rows=state["rows_pushed"])
        kind = f"{state['dtype']}[{','.join(map(str, state['shape']))}]"
        place = f"{state['memory']}, state+{state['offset']}"
        table.add_row(escape(state["name"]), escape(kind), number(state["num_bytes"]), escape(place), change)
    marks = report["state_bytes"] - sum(state["num_bytes"] for state in states)
    table.add_row("flags and ring indices", "", number(marks), "", "")
    table.add_row("total", "", number(report["state_bytes"]), "", "")
    return table


def moves_table(moved: list[Report]) -> FoldingTable:
    """Return a table of the bytes that one run moves between memories."""
    table = FoldingTable("from", "to", title="Moved between memories in one run", title_justify="left")
    table.add_column("B", justify="right")
    for row in moved:
        table.add_row(escape(row["source"]), escape(row["target"]), number(row["bytes"]))
    return table


def steps_table(steps: list[Report]) -> TableByWidth:
    """Return a table with one row for each step.

    The position and lifetime of a tensor are written as `memory+offset [begin, end)`, in steps.
    """
    return TableByWidth(title="Steps", wide=_wide_steps(steps), narrow=_narrow_steps(steps), columns=_STEP_COLUMNS)


def _wide_steps(steps: list[Report]) -> FoldingTable:
    table = _table_of_steps("step", "kernel", after=("writes", "at [lives)"))
    for step in steps:
        writes, places = _written(step)
        table.add_row(*_cells(step, [[step["name"]], [step["kernel"]]], [writes, places]))
    return table


def _narrow_steps(steps: list[Report]) -> FoldingTable:
    """Return the narrow table, with the kernel below the step and offsets below the written tensors."""
    table = _table_of_steps("step\nkernel", after=("writes\nat [lives)",))
    for step in steps:
        below = [line for both in zip(*_written(step), strict=True) for line in both]
        table.add_row(*_cells(step, [[step["name"], step["kernel"]]], [below]))
    return table


def _table_of_steps(*names: str, after: Sequence[str]) -> FoldingTable:
    table = FoldingTable(title="Steps", title_justify="left")
    table.add_column("#", justify="right")
    for heading in names:
        table.add_column(heading)
    for heading in ("MACs", "modelled\ninstr.", "scratch\nB"):
        table.add_column(heading, justify="right")
    for heading in after:
        table.add_column(heading)
    return table


def _cells(step: Report, names: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> list[str]:
    """Return a row: its index, the columns `names`, its numbers, the columns `after`. A column is a list of lines."""
    numbers = [number(step["macs"]), number(step.get("modelled_instructions")), number(step["scratch_bytes"])]
    first, last = (["\n".join(map(escape, lines)) for lines in columns] for columns in (names, after))
    return [escape(str(step["index"])), *first, *numbers, *last]


def _written(step: Report) -> tuple[list[str], list[str]]:
    """Return types and shapes of the tensors that a step writes, and their offsets and lifetimes."""
    writes = [f"{out['dtype']}[{','.join(map(str, out['shape']))}]" for out in step["outputs"]]
    places = [
        f"{out['memory']}+{out['offset']} [{out['begin']}, {out['end']})" if out["memory"] else "the caller's"
        for out in step["outputs"]
    ]
    return writes, places


def float_operations_table(operations: list[Report]) -> FoldingTable:
    """Return a table of the steps that compute in float, with the reasons."""
    table = FoldingTable("step", title="Float arithmetic in a quantized model", title_justify="left")
    table.add_column("reason")
    for operation in operations:
        table.add_row(escape(operation["step"]), escape(operation["reason"]))
    return table


def quantization_table(quantization: Report) -> RenderableType:
    """Return a table of each operator's error against the float network, reasons for floats, and the accuracy."""
    reasons = {left["name"]: left["reason"] for left in quantization["left_float"]}
    widths = {one["name"]: one["reason"] for one in quantization.get("widths", [])}
    table = FoldingTable("operator", "type", title="Quantization", title_justify="left")
    table.add_column("signal to noise", justify="right")
    table.add_column("reason")
    for operator in quantization["operators"]:
        name = operator["name"]
        reason = reasons.get(name, "") if operator["dtype"] == "float32" else widths.get(name, "")
        kind = f"{operator['dtype']}, weights int4" if operator.get("weight_bits") == 4 else operator["dtype"]
        table.add_row(escape(name), escape(kind), f"{operator['snr_db']:.2f} dB", escape(reason))
    for state in quantization.get("states", []):
        reason = reasons.get(state["name"], "") if state["dtype"] == "float32" else ""
        table.add_row(escape(state["name"]), escape(state["dtype"]), f"{state['snr_db']:.2f} dB", escape(reason))
    before, after = (percent(quantization[key]) for key in ("accuracy_float", "accuracy_int8"))
    summary = f"{quantization['samples']} calibration samples; accuracy on them: float {before}, quantized {after}"
    if "carried_snr_db" in quantization:
        summary += f"; outputs with states carried over all of them: {quantization['carried_snr_db']:.2f} dB"
    if costs := quantization.get("costs"):
        before, after = (
            f"{number(one['cycles'])} cycles and {number(one['weights_bytes'] + one['peak_bytes'])} B"
            for one in (costs["float32"], costs["int8"])
        )
        summary += f"; predicted: float {before}, quantized {after}"
    return Group(table, Text(summary))


def comparisons_table(comparisons: list[Report]) -> FoldingTable:
    """Return a table of the comparisons between the file's form of a model and its C code, one row for each."""
    table = FoldingTable("compared", "with", title="From the file to the C", title_justify="left")
    table.add_column("samples", justify="right")
    table.add_column("result")
    for one in comparisons:
        table.add_row(escape(one["form"]), escape(one["against"]), number(one["samples"]), escape(_compared(one)))
    return table


def _compared(one: Report) -> str:
    """Return the measurements of a comparison. The last comparison's are in the table of verification."""
    found = [
        *([f"largest difference {one['max_abs_error']:.3g}"] if one["max_abs_error"] is not None else []),
        *([f"{one['of_tolerance']:.1%} of its tolerance"] if one["of_tolerance"] is not None else []),
        *([f"{one['snr_db']:.1f} dB"] if one["snr_db"] is not None else []),
        *([f"same class in {one['top1_agreement']:.0%}"] if one["top1_agreement"] is not None else []),
        *([f"our own reading: {one['own_reading']}"] if one["own_reading"] else []),
    ]
    return ", ".join(found) or "see verification"


def verification_table(report: Report) -> RenderableType:
    """Return a table of the results on each target with notes on missing results; a warning without any result."""
    verify: Report = report["verify"]
    targets = ["host", "qemu"] if report["artifacts"]["elf"] else ["host"]
    results = {target: verify[target] for target in ("host", "qemu", "runner") if verify.get(target)}
    if not results:
        message = "NOT VERIFIED: the outputs of this package were never compared with a reference."
        return Panel(Text(message, style="bold red"), border_style="red", expand=False)
    table = FoldingTable("verified on", "against", "result", title="Verification", title_justify="left")
    for heading in ("max |error|", "relative to max |reference|", "elements"):
        table.add_column(heading, justify="right")
    for target, result in results.items():
        passed = Text("passed", style="green") if result["passed"] else Text("FAILED", style="bold red")
        errors = [small_number(result[key]) for key in ("max_abs_error", "max_rel_error")]
        against = str(result.get("reference", "unknown")) + (" (our own reading)" if result.get("own_reading") else "")
        table.add_row(target, escape(against), passed, *errors, number(result["elements"]))
    notes = [f"not verified on {target}" for target in targets if target not in results and "runner" not in results][:1]
    if "qemu" in results and (machine := stand_in(report)):
        notes.append(f"qemu: {machine}, which executes the instructions of {report['platform']} and has other memories")
    own = next((result["own_reading"] for result in results.values() if result.get("own_reading")), None)
    notes += [f"compared with our own reading only: {own}"] if own else []
    notes += [str(doubt) for result in results.values() for doubt in result.get("warnings", ())]
    return Group(table, *(Text(note, style="yellow") for note in notes)) if notes else table


_MOST_NAMED = 4


def flash_table(flash: Report) -> FoldingTable:
    """Return a table with a row for each layer, each function or constant that layers share, and for the remainder."""
    title = "Flash by layer: weights, and code that only this layer runs; shared code once"
    table = FoldingTable("layer, or shared code or constant", "used by", title=title, title_justify="left")
    for heading in ("weights B", "code B", "total B"):
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
            "run() and shared code",
            "",
            flash["other_weights_bytes"],
            flash["other_code_bytes"],
        )
    table.add_section()
    _row(table, "total, without C library, start-up, application", "", flash["weights_bytes"], flash["code_bytes"])
    return table


def _row(table: FoldingTable, name: str, users: str, weights_bytes: int, code_bytes: int) -> None:
    sizes = [number(count) if count else "-" for count in (weights_bytes, code_bytes)]
    table.add_row(escape(name), escape(users), *sizes, number(weights_bytes + code_bytes))


def _users(layers: list[str]) -> str:
    more = f" and {len(layers) - _MOST_NAMED} more" if len(layers) > _MOST_NAMED else ""
    return f"{', '.join(layers[:_MOST_NAMED])}{more}"


def processors_table(report: Report) -> Group:
    """Return a table with one row for each processor, the caller's first, and a sentence about the whole run."""
    table = FoldingTable("processor", title="Processors that share a run", title_justify="left")
    for heading in ("steps", "instructions", "stack, bound by call graph"):
        table.add_column(heading, justify="right")
    bounds: Report = report.get("stack_bound_of") or {}
    for place, processor in enumerate(report["processors"]):
        name = processor["name"]
        bound: Report = bounds.get(name) or (report.get("stack_bound") or {} if place == 0 else {})
        table.add_row(
            escape(name + (f", interface {processor['driver']}" if processor.get("driver") else "")),
            number(len(processor["steps"])),
            number(processor["instructions"]),
            number(bound.get("num_bytes"), " B"),
        )
    return Group(table, Text(_of_all(report)))


def _of_all(report: Report) -> str:
    """Return the counts of the whole run as a sentence."""
    parts = [f"{report['signals']:,} signals"]
    if calls := report.get("driver_calls"):
        parts.append(f"{calls['starts']:,} starts of accelerators, {calls['waits']:,} waits for accelerators")
    for key, words in (
        ("makespan_instructions", "{:,} instructions from begin to end, waits included"),
        ("interval_instructions", "{:,} instructions between successive outputs"),
        ("single_processor_instructions", "{:,} instructions on the fastest core alone"),
    ):
        if report.get(key) is not None:
            parts.append(words.format(report[key]))
    return "In a run: " + "; ".join(parts)


def tuning_table(tuning: Report) -> RenderableType:
    """Return a table with a row for each measured kernel and block of a layer, and the totals before and after.

    The chosen row is marked. Layers of the same shape, which have the same measurements, share their rows.
    """
    title = f"Kernels measured on {tuning['board']}: chosen by fewest {tuning['metric']}"
    table = FoldingTable("layer", "kernel", "block", title=escape(title), title_justify="left")
    for heading in ("modelled instr.", "instructions", "cycles", "scratch B", "chosen"):
        table.add_column(heading, justify="right")
    alike: dict[str, list[Report]] = {}
    for layer in tuning["layers"]:
        alike.setdefault(str((layer["chosen"], layer["candidates"])), []).append(layer)
    for layers in alike.values():
        name = ", ".join(step for layer in layers for step in layer["steps"])
        measured = [one for one in layers[0]["candidates"] if one["not_measured"] is None]
        for row, one in enumerate(measured):
            block = "x".join(map(str, one["block"]))
            is_taken = f"{one['kernel']} {block}".strip() == layers[0]["chosen"]
            table.add_row(
                escape(name) if row == 0 else "", escape(one["kernel"]), block, number(one["modelled_instructions"]),
                number(one["instructions"]), number(one["estimated_cycles"]), number(one["scratch_bytes"]),
                "x" if is_taken else "", end_section=one is measured[-1],
            )  # fmt: skip
    before, after = tuning["before"], tuning["after"]
    sums = [
        f"{number(before[key])} {name} before, {number(after[key])} after"
        for key, name in (("instructions", "instructions"), ("estimated_cycles", "estimated cycles"))
        if before[key] is not None
    ]
    lines = [f"{tuning['layers_measured']} layers with several candidates: {'; '.join(sums)}."]
    notes = [Text(f"{tuning['notice']}.", style="yellow")] if tuning["notice"] else []
    return Group(table, *map(Text, lines), *notes)


def bundle_tables(report: Report) -> list[RenderableType]:
    """Return tables of the shared and saved bytes of a bundle, then each model's totals and verification."""
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
    table.add_row("statements covered by self-test", "", coverage(report.get("selftest_coverage") or {}), "")
    each = [part for own in report["models"].values() for part in _of_model(own)]
    return [table, *_processors(report), memories_table(report), *each]


def _processors(report: Report) -> list[RenderableType]:
    """Return the processors of each model, and the round; nothing if all models run on the first without a round."""
    placed, one = report.get("placement", ()), report.get("round")
    if one is None and len({name for entry in placed for name in entry["processors"]}) < 2:
        return []
    table = FoldingTable("model", "processors", "predicted cycles")
    for entry in placed:
        cycles = {", ".join(choice["processors"]): number(choice["cycles"]) for choice in entry["predicted_cycles"]}
        compared = "; ".join(f"{names}: {count}" for names, count in cycles.items())
        table.add_row(escape(entry["model"]), escape(", ".join(entry["processors"])), escape(compared or "-"))
    if one:
        counted = one["makespan_instructions"]
        table.add_row("round", escape(", ".join(one["models"])), number(one["makespan_cycles"]))
        table.add_row("round on one processor", "", number(one["single_processor_cycles"]))
        table.add_row("round, instructions", "", number(counted))
    return [table]


def _of_model(report: Report) -> list[RenderableType]:
    """Return the totals and the verification of a model, and the comparisons between its file and its C code."""
    compared = [comparisons_table(report["comparisons"])] if report.get("comparisons") else []
    return [totals_table(report), verification_table(report), *compared]
