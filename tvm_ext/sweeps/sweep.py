"""Models x platforms x options -> one table of figures, by any number of services; what was computed once is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_ext.core.errors import BadOptions, TvmExtError
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services.cache import ResultCache, Services, default_folder, remembered
from tvm_ext.services.choose import check_services, chosen_services
from tvm_ext.services.job import Job, JobOutcome
from tvm_ext.sweeps.candidates import Candidate, SweepModel, candidates_of
from tvm_ext.sweeps.table import SweepTable

if TYPE_CHECKING:
    from tvm import IRModule

Progress = Callable[[int, Mapping[str, Any]], None]
"""Told of each row when it is there: how many there are by now, and the row."""

TIERS = ("estimate", "full")


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
) -> SweepTable:
    """Figures of every model on every platform with all options.

    models: files, modules, or `SweepModel`s with names and columns of the user's own; an iterator is asked for the next
    one when a service is free. options: by the name that the table has for them. tier: `estimate` compiles to a plan,
    with no C compiler and no emulator; `full` builds, runs and measures as `build` does. jobs: processes of this
    machine; or executor, any of `concurrent.futures`; or scheduler, the address of a cluster of dask.distributed.
    limits: of one candidate in its process. cache: folder of results that earlier sweeps left; by default one of the
    user's. again: candidates that came to nothing are tried once more. The table is the same for any number of
    services.

    A candidate that raises, crashes or takes too long is a row with `error` and `message`.
    Raises BadOptions, BadPlatform, BadInput where the cache cannot be written, MissingTool.
    """
    for given, one in ((models, "models"), (platforms, "platforms")):
        if isinstance(given, str | bytes):
            raise BadOptions(f"{one} is a text, {given!r}; a list is needed: [{given!r}].")
    if tier not in TIERS:
        raise BadOptions(f"tier = {tier!r}: allowed are {', '.join(TIERS)}.")
    check_services(jobs, executor, scheduler)
    boards = [one if isinstance(one, Platform) else Platform.load(one) for one in platforms]
    named = (one if isinstance(one, SweepModel) else SweepModel(source=one) for one in models)
    found = candidates_of(named, boards, options or {"default": BuildOptions()}, tier)
    most = limits or ChildLimits()
    kept = ResultCache(folder=Path(cache or default_folder()), suffix=f".{most.seconds:g}s.{most.memory_bytes}B")
    with chosen_services(jobs, executor, scheduler, most) as services:
        rows = dict(_rows(found, tier, services, kept, again, progress))
    return SweepTable(rows=[rows[index] for index in sorted(rows)])


def _rows(
    candidates: Iterator[Candidate], tier: str, services: Services, cache: ResultCache, again: bool,
    progress: Progress | None,
) -> Iterator[tuple[int, Mapping[str, Any]]]:  # fmt: skip
    """Rows by the index of their candidates, as they come."""
    heads: list[dict[str, Any]] = []
    places: list[int] = []
    failed: dict[int, TvmExtError] = {}

    def jobs() -> Iterator[Job]:
        for one in candidates:
            head = {"model": one.model, "platform": one.platform, "options": one.options, "tier": tier}
            heads.append({**one.labels, **head})
            if isinstance(one.job, TvmExtError):
                failed[len(heads) - 1] = one.job
                continue
            places.append(len(heads) - 1)
            yield one.job

    done = 0
    for place, outcome in remembered(services, cache, jobs(), again=again):
        index, done = places[place], done + 1
        row = {**heads[index], **_figures(outcome)}
        if progress:
            progress(done, row)
        yield index, row
    for index, error in failed.items():
        yield index, {**heads[index], "error": type(error).__name__, "message": str(error)}


def _figures(outcome: JobOutcome) -> dict[str, Any]:
    if outcome.result is None:
        return {"error": outcome.kind, "message": outcome.problem}
    return json.loads(outcome.result)
