"""Sweep over models x platforms x options: a table of results, computed by any number of services and cached."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_ext.core import errors
from tvm_ext.core.errors import BadOptions, TvmExtError
from tvm_ext.core.files.kept_files import default_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.core.short_tracebacks import short_tracebacks
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.services.cache import ResultCache, Services, remembered
from tvm_ext.services.executors import check_services, chosen_services
from tvm_ext.services.job import Job, JobOutcome
from tvm_ext.sweeps.candidates import Candidate, SweepModel, candidates_of
from tvm_ext.sweeps.sweep_rows import SweepRows
from tvm_ext.sweeps.table import SECONDS, Row, SweepTable, read_row

if TYPE_CHECKING:
    from tvm import IRModule

Progress = Callable[[int, Row], None]
"""Function that is called for each finished row, with the number of finished rows and the row."""

TIERS = ("estimate", "full")


@short_tracebacks
def sweep(
    models: Iterable[SweepModel | str | Path | IRModule],
    platforms: Sequence[Platform | str],
    options: Mapping[str, BuildOptions] | None = None,
    *,
    tier: str = "estimate",
    jobs: int = 1,
    executor: Executor | None = None,
    scheduler: str | None = None,
    cache: str | Path | None = None,
    limits: ChildLimits | None = None,
    again: bool = False,
    progress: Progress | None = None,
    timings: bool = False,
) -> SweepTable:
    """Compile every model for every platform with every set of options, and return a table of results.

    models: files, modules, or `SweepModel`s with names and additional columns; an iterator is read when a service is
    free. options: sets of options by their name in the table. tier: `estimate` compiles to a memory plan, without a C
    compiler and an emulator; `full` builds, runs and measures like `build`. jobs: number of local processes; or
    executor, any executor of `concurrent.futures`; or scheduler, the address of a dask.distributed cluster. limits: of
    a candidate in its process. cache: folder of cached results; by default in the user's cache folder. again: True to
    retry candidates that failed in an earlier sweep. progress: called for each row; if it raises an error, a warning is
    shown and it is not called again. timings: True to add a column `seconds`, the processor time of each candidate when
    it was computed; without this column, the table is the same for any number of services and in every run.

    A candidate that raises an error, crashes or exceeds a limit is a row with `error` and `message`.
    Raises BadOptions, BadPlatform, BadInput if the cache cannot be written, MissingTool, and WorkerRefused if a worker
    has different code or libraries than this process.
    """
    for given, one in ((models, "models"), (platforms, "platforms")):
        if isinstance(given, str | bytes):
            raise BadOptions(f"{one} is a text, {given!r}; give a list: [{given!r}].")
    if tier not in TIERS:
        raise BadOptions(f"tier = {tier!r}: choose one of {', '.join(TIERS)}.")
    check_services(jobs, executor, scheduler)
    boards = [one if isinstance(one, Platform) else Platform.load(one) for one in platforms]
    named = (one if isinstance(one, SweepModel) else SweepModel(source=one) for one in models)
    found = candidates_of(named, boards, options or {"default": BuildOptions()}, tier)
    most = limits or ChildLimits()
    kept = ResultCache(folder=Path(cache or default_folder()), suffix=f".{most.seconds:g}s.{most.memory_bytes}B")
    left_out, rows = () if timings else (SECONDS,), SweepRows()
    with chosen_services(jobs, executor, scheduler, most) as services:
        for index, row in _rows(found, tier, services, kept, again, _Told(progress)):
            rows.put(index, {key: value for key, value in row.items() if key not in left_out})
    return SweepTable(rows=rows)


class _Told:
    """Calls the user's `progress` for each row, until it raises an error."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._done = progress, 0

    def row(self, row: Row) -> None:
        """Report a finished row."""
        self._done += 1
        if self._progress is None:
            return
        try:
            self._progress(self._done, row)
        except Exception as error:
            self._progress = None
            warnings.warn(
                f"sweep: progress raised {type(error).__name__}: {error}; it is not called again, and the sweep "
                "continues.",
                ModelNotice, stacklevel=2,
            )  # fmt: skip


def _rows(
    candidates: Iterator[Candidate], tier: str, services: Services, cache: ResultCache, again: bool, told: _Told
) -> Iterator[tuple[int, Row]]:
    """Yield (index of the candidate, row) for each row when it is ready. Only candidates without a row are kept."""
    heads: dict[int, dict[str, Any]] = {}

    def jobs() -> Iterator[Job | JobOutcome]:
        for index, one in enumerate(candidates):
            heads[index] = {
                **one.labels, "model": one.model, "platform": one.platform, "options": one.options, "tier": tier,
            }  # fmt: skip
            yield one.job if isinstance(one.job, Job) else _failed(one.job)

    for index, outcome in remembered(
        services, cache, jobs(), again=again, accepts=lambda one: _figures(one) is not None
    ):
        row = {**heads.pop(index), **(_figures(outcome) or _NO_ROW)}
        told.row(row)
        yield index, row


def _failed(error: TvmExtError) -> JobOutcome:
    return JobOutcome(result=None, kind=type(error).__name__, problem=str(error))


_NO_ROW = {"error": "InternalError", "message": "the worker's answer is not a row of a sweep"}


def _figures(outcome: JobOutcome) -> dict[str, Any] | None:
    """Return the columns of an outcome; None if it is not a valid outcome of a sweep's job."""
    if outcome.result is None:
        is_ours = isinstance(getattr(errors, outcome.kind, None), type)
        return {"error": outcome.kind, "message": outcome.problem} if is_ours else None
    try:
        return read_row(json.loads(outcome.result))
    except (ValueError, RecursionError):
        return None
