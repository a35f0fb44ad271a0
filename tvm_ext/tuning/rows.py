"""Rows per call of sequences that run row by row, chosen by whole runs of the model on the board in QEMU.

Rows per call change the code of all layers of a sequence, and the rows that are kept between them, so no layer is
measured but a run: with other rows for one sequence at a time, then with the best of each together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm

from codegen_c.arena.plan import check_capacity
from codegen_c.backend.build import Compiled
from codegen_c.program.steps import RowSteps
from relay_passes.solvers.split.segments import ROWS_PER_CALL
from tvm_ext.core.errors import DoesNotFit, PlanRejected, VerificationFailed
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.progress import Progress, stage
from tvm_ext.execution.board import board_seconds
from tvm_ext.profiling.profile_package import noise
from tvm_ext.services.cache import ResultCache
from tvm_ext.tuning.layers_program import LayersFirmware, linked
from tvm_ext.tuning.measure import Bench, run_layers
from tvm_ext.tuning.record import RowsTried, RowsTuning, TunedRows
from tvm_ext.tuning.remembered import RunFigures, Tools, key_of_model, read_run, write_figures

Made = tuple[tvm.IRModule, Compiled]
WithRows = Callable[[Mapping[str, int]], Made]
"""The model by other rows per call of sequences, by their names."""
MOST_SEQUENCES = 8
"""Sequences of a model whose rows are measured: those of the most modelled instructions."""


@dataclass(frozen=True, kw_only=True)
class RowsBench:
    """The board, limits that the model has to keep, where figures are kept, and threads that build and run firmware."""

    bench: Bench
    options: BuildOptions
    cache: ResultCache
    threads: Executor


def tuned_rows(
    made: Made, with_rows: WithRows, rows_bench: RowsBench, progress: Progress | None
) -> tuple[Made, RowsTuning]:
    """The model by the rows per call that measured best within its limits of memory, and what was measured.

    made: by modelled rows. progress: is told of what takes long. Raises MissingTool, BuildFailed, RunFailed;
    VerificationFailed where other rows give other bits.
    """
    sequences = _sequences(made[1])
    reason = _unmeasurable(made[1], rows_bench.bench) if sequences else ""
    if reason or not sequences:
        return made, RowsTuning(passed=reason)
    measured = sequences[:MOST_SEQUENCES]
    with stage(progress, f"measuring rows per call of {len(measured)} sequences on {rows_bench.bench.place}"):
        before, tried = _tried(made[1], measured, with_rows, rows_bench)
        taken, after = _together(made, with_rows, rows_bench, _best(tried, before), before)
    chosen = {step.name: rows_of(step) for step in _sequences(taken[1])}
    found = tuple(
        TunedRows(
            sequence=step.name, layers=tuple(call.name for call in step.body), modelled=rows_of(step),
            chosen=chosen[step.name], tried=tried.get(step.name, ()),
        )
        for step in sequences
    )  # fmt: skip
    return taken, RowsTuning(sequences=found, arena_bytes=_arena_bytes(made), before=before, after=after)


def _tried(
    compiled: Compiled, sequences: Sequence[RowSteps], with_rows: WithRows, rows_bench: RowsBench
) -> tuple[RunFigures, dict[str, tuple[RowsTried, ...]]]:
    """Figures of the run as it is, and what other rows of one sequence at a time come to, by its name."""
    asked = [
        (step.name, rows)
        for step in sequences
        for rows in ROWS_PER_CALL
        if rows != rows_of(step) and rows < 2 * _num_rows(step)
    ]
    models = [_within(with_rows, {name: rows}, rows_bench.options) for name, rows in asked]
    before, *runs = _measured([compiled, *(model and model[1] for model in models)], rows_bench)
    assert before is not None, "what was compiled is measured"
    found: dict[str, tuple[RowsTried, ...]] = {}
    for (name, rows), model, run in zip(asked, models, runs, strict=True):
        one = RowsTried(rows=rows, arena_bytes=_arena_bytes(model), run=run, reason="" if run else "does not fit")
        found[name] = (*found.get(name, ()), one)
    return before, found


def rows_of(step: RowSteps) -> int:
    """Rows that a call of a sequence's last layer computes, or adds up."""
    last = len(step.body) - 1
    return max(call.end - call.begin for call in step.calls if call.operator == last)


def _num_rows(step: RowSteps) -> int:
    last = len(step.body) - 1
    return max(call.end for call in step.calls if call.operator == last)


def _sequences(compiled: Compiled) -> list[RowSteps]:
    """Those of the most modelled instructions first."""
    found = [step for step in compiled.program.steps if isinstance(step, RowSteps)]
    return sorted(found, key=lambda step: -sum(call.implementation.instructions for call in step.body))


def _unmeasurable(compiled: Compiled, bench: Bench) -> str:
    """Reason why no run can be measured; empty where it can."""
    if bench.device:
        return "rows per call are measured in QEMU alone"
    if compiled.interface.io != "arena" or compiled.interface.servers or compiled.interface.context != "static":
        return "rows per call are measured of models that keep their inputs and outputs in the arena, on one processor"
    return ""


def _within(with_rows: WithRows, rows: Mapping[str, int], options: BuildOptions) -> Made | None:
    """The model by these rows; None where it does not fit."""
    try:
        made = with_rows(rows)
        compiled = made[1]
        check_capacity(compiled.program, compiled.plan, compiled.platform, options.limits_bytes(compiled.platform))
    except (DoesNotFit, PlanRejected):
        return None
    return made


def _arena_bytes(made: Made | None) -> int | None:
    return made[1].plan.bytes_in(made[1].platform.activations) if made else None


def _best(tried: Mapping[str, Sequence[RowsTried]], before: RunFigures) -> list[tuple[str, int]]:
    """Name and rows of each sequence that another number of rows makes faster, those that gain most first."""
    found = [
        max((before.cost - one.run.cost, name, one.rows) for one in own if one.run)
        for name, own in tried.items()
        if any(one.run for one in own)
    ]
    return [(name, rows) for gain, name, rows in sorted(found, reverse=True) if gain > 0]


def _together(
    made: Made, with_rows: WithRows, rows_bench: RowsBench, best: Sequence[tuple[str, int]], before: RunFigures
) -> tuple[Made, RunFigures]:
    """The model by the best rows of all sequences, or of as many as fit together and are faster; and its run."""
    while best:
        found = _within(with_rows, dict(best), rows_bench.options)
        _, run = _measured([made[1], found and found[1]], rows_bench)
        if found and run and run.cost < before.cost:
            return found, run
        best = best[:-1]
    return made, before


def _measured(models: Sequence[Compiled | None], rows_bench: RowsBench) -> list[RunFigures | None]:
    """Figures of a run of each. Raises VerificationFailed where outputs differ from the first one's."""
    tools = Tools.of(rows_bench.bench.platform, rows_bench.bench.optimize, rows_bench.bench.table)
    keys = [key_of_model(compiled, tools) if compiled else "" for compiled in models]
    known = {key: read_run(rows_bench.cache, key) for key in keys if key}
    asked = {key: compiled for key, compiled in zip(keys, models, strict=True) if compiled and known[key] is None}
    running = {key: rows_bench.threads.submit(_run, one, rows_bench.bench) for key, one in asked.items()}
    for key, future in running.items():
        known[key] = future.result()
        write_figures(rows_bench.cache, key, future.result())
    found = [known.get(key) for key in keys]
    if len({run.outputs for run in found if run}) > 1:
        raise VerificationFailed(
            f"tune: {models[0].interface.model if models[0] else 'the model'} gives other outputs by other rows per "
            "call. That is a defect of tvm-ext: please report it with the model file; without tune the model is "
            "compiled, and verified as a whole."
        )
    return found


def _run(compiled: Compiled, bench: Bench) -> RunFigures:
    """One run of a whole model. Raises MissingTool, BuildFailed, RunFailed."""
    interface = compiled.interface
    sample = noise(interface)
    inputs = b"".join(port.handed_over(sample[port.source]).tobytes() for port in interface.inputs)
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        elf, steps = linked(compiled, bench.platform, bench.optimize, folder)
        firmware = LayersFirmware(elf=elf, steps=steps, run=interface.run, inputs=inputs)
        data, figures = run_layers(firmware, bench, folder, board_seconds(compiled.modelled_instructions, 1))
    return RunFigures.of(list(figures.values()), data)
