"""Damaged files that are only read, many in one child: screened, parsed, imported, and nothing compiled.

A child that crashes, hangs or sets off the canary ends its batch: the case that it was at has failed, and the others go
on in the next child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.fuzzing import outcome as ends
from benchmarks.fuzzing.canary import ALARM, Policy, watch
from benchmarks.fuzzing.examine import examine
from benchmarks.fuzzing.forked import End, Forked, Stages
from benchmarks.fuzzing.outcome import Outcome
from benchmarks.fuzzing.pool import judged_end
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen

SIZE = 40
_MARK = "case"


def read_in_batches(
    draw: Callable[[int], Specimen | None], indices: Iterable[int], *, seconds: float | None = None
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes of reading the specimens of some cases, in order; after `seconds` no more batches begin."""
    left, begin = iter(indices), time.monotonic()
    with TemporaryDirectory(prefix="fuzz_") as name:
        while batch := list(islice(left, SIZE)):
            while batch:
                if seconds is not None and time.monotonic() - begin > seconds:
                    return
                end = Forked(lambda stages, cases=tuple(batch): _read_all(draw, cases, Path(name), stages)).wait()
                outcomes = _outcomes(end, batch)
                yield from outcomes
                batch = batch[len(outcomes) :]


def _read_all(draw: Callable[[int], Specimen | None], cases: tuple[int, ...], parent: Path, stages: Stages) -> None:
    folder = parent / str(os.getpid())
    folder.mkdir()
    watch(Policy(folder=folder, may_build=False))
    for index in cases:
        os.write(2, f"{_MARK} {index}\n".encode())
        stages.begin("draw")
        before = time.process_time()
        specimen = draw(index)
        outcome = Outcome(kind=ends.SKIPPED) if specimen is None else examine(_only_read(specimen), stages)
        stages.tell((index, replace(outcome, cpu_s=round(time.process_time() - before, 3))))


def _only_read(specimen: Specimen) -> Specimen:
    if isinstance(specimen, ModelSpecimen):
        return replace(specimen, checks=("load",))
    return replace(specimen, is_read_only=True) if isinstance(specimen, CommandSpecimen) else specimen


def _outcomes(end: End, batch: list[int]) -> list[tuple[int, Outcome]]:
    """Outcomes up to the end of the batch, or to the case that ended it."""
    alarmed, at = dict[int, str](), batch[0]
    for line in end.said.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == _MARK and rest.isdecimal():
            at = int(rest)
        elif kind == ALARM:
            alarmed.setdefault(at, rest)
    found: list[tuple[int, Outcome]] = []
    for index, outcome in end.told:
        if said := alarmed.get(index):
            outcome = Outcome(kind=ends.RAN, error=said.split()[0], where=said[:120], stage=outcome.stage)
        found.append((index, outcome))
    if end.is_done:
        return found
    return [*found, (batch[len(found)], judged_end(end))]
