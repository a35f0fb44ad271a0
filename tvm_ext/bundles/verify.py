"""Verification of a bundle: all models run together on host and board, each compared with its reference runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from codegen_c.emit.bundle import Bundle
from codegen_c.program.makespan import SharedRun
from codegen_c.targets.registry import startup_of
from tvm_ext.building.selftest import SelfTest, drawn_faults
from tvm_ext.building.subject import Subject, answer
from tvm_ext.bundles.compiled import Built
from tvm_ext.bundles.links import faults_of_links, passes_of
from tvm_ext.bundles.verify_rounds import counted_round, faults_of_rounds, lists_of_round
from tvm_ext.core.platform import Platform
from tvm_ext.core.progress import Progress, stage
from tvm_ext.execution.board import board_seconds
from tvm_ext.execution.bundle_runner import HostBundle, run_bundle_on_board, selftest_on_board
from tvm_ext.execution.samples import RunResult
from tvm_ext.verification.judgement import Steps, judged_runs, not_the_model


def verify_bundle(
    folder: Path,
    common: Bundle,
    subjects: Sequence[Subject],
    selftests: Mapping[str, SelfTest],
    compiling: Future[Built],
    steps: Mapping[str, Future[Steps | None]],
    targets: Sequence[str],
    platform: Platform,
    progress: Progress | None,
) -> tuple[dict[str, dict[str, Any]], dict[str, RunResult], SharedRun | None]:
    """Verify a bundle; return the results by model, the board's outputs and counters by model, and a counted round.

    compiling: the compiled bundle. steps: the compared steps of each model.
    The models run alternately, sample by sample, so that an error in shared memory shows.
    Raises VerificationFailed with the problems of all models.
    """
    results: dict[str, dict[str, Any]] = {one.model: {"host": None, "qemu": None} for one in subjects}
    if not targets:
        return results, {}, None
    interfaces = {one.model: one.compiled.interface for one in subjects}
    samples = {one.model: one.samples for one in subjects}
    given: dict[str, list[dict[str, np.ndarray]]] = {name: [] for name in samples}
    problems: list[str] = []
    with (
        stage(progress, "running all models on the host"),
        HostBundle(folder, common.name, list(interfaces.values())) as host,
    ):
        for together in passes_of(common):
            for name in together:
                host.models[name].reset()
            for index in range(max(len(samples[name]) for name in together)):
                for name in together:
                    own = samples[name]
                    if index < len(own) and (outputs := answer(host.models[name], own[index])) is not None:
                        given[name].append(outputs)
        for one in subjects:
            problems += [
                f"{one.model}: {fault}" for fault in drawn_faults(one, host.models[one.model], selftests[one.model])
            ]
    if common.links:
        problems += faults_of_links(folder, common, samples)
    if common.round:
        with stage(progress, "running rounds on the host"):
            problems += faults_of_rounds(folder, common, samples)
    boards: dict[str, RunResult] = {}
    measured: SharedRun | None = None
    built = compiling.result()
    if "qemu" in targets and built.elf:
        seconds = sum(board_seconds(one.compiled.modelled_instructions, _num_runs(one, selftests)) for one in subjects)
        several = bool(common.other_cores)
        with stage(progress, f"running all models {startup_of(platform).place}"):
            for together in passes_of(common):
                own = {one.model: one.board_samples for one in subjects if one.model in together}
                boards |= run_bundle_on_board(
                    built.elf, platform, list(interfaces), interfaces, own, time_limit_s=seconds, several=several
                )
            failure = selftest_on_board(built.elf, platform, time_limit_s=seconds, several=several)
            if common.round and not failure:
                first = {subjects[0].model: subjects[0].board_samples[:1]}
                lists = lists_of_round(common, {one.model: one.compiled.parallel for one in subjects})
                measured = counted_round(built.elf, common, platform, interfaces, first, lists, seconds)
        problems += [f"board: {failure}"] if failure else []
    for one in subjects:
        assert one.expected is not None, "targets ask for it"
        compared, board = steps[one.model].result(), boards.get(one.model)
        found, wrong = judged_runs(one, one.expected, compared, given[one.model], board)
        results[one.model] = {target: result if target in targets else None for target, result in found.items()}
        problems += [f"{one.model}: {problem.text}" for problem in wrong]
    if problems:
        raise not_the_model(common.name, problems)
    return results, boards, measured


def _num_runs(subject: Subject, selftests: Mapping[str, SelfTest]) -> int:
    """Return the number of runs of a model on the board: its samples, or twice the vectors of its self-test."""
    test = selftests[subject.model]
    drawn = len(test.drawn.vectors) if test.drawn else 0
    return max(len(subject.board_samples), 2 * (len(test.stored) + drawn))
