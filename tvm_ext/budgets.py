"""One model within many budgets of the default memory: one after the other, or several at once by services."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import lru_cache

import tvm

from codegen_c.backend.build import Compiled
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.load import load
from tvm_ext.pipeline import compile_within
from tvm_ext.services.cache import Services
from tvm_ext.services.job import Job, JobOutcome

STEPS = 8
_JOB = "tvm_ext.budgets.point_job"


@dataclass(frozen=True, kw_only=True)
class Point:
    """One way to run a model: bytes of arena in the default memory, instructions as modelled, how it was reached."""

    arena_bytes: int
    modelled_instructions: int
    method: str


Within = Callable[[int | None], Point]
"""The point within a budget of the default memory. Raises DoesNotFit."""


@dataclass(frozen=True, kw_only=True)
class KnownPoints:
    """Points by their budgets, as far as they are known; and the least budget that can be met, where that is."""

    points: dict[int | None, Point] = field(default_factory=dict[int | None, Point])
    least_bytes: int | None = None


def points_within(mod: tvm.IRModule, platform: Platform, options: BuildOptions) -> Within:
    """Points of one model; what budgets share is done once."""
    compiled = compile_within(mod, platform, options)
    return lambda budget: _point(compiled(budget), platform)


def budgets_of(most: int, least: int) -> list[int]:
    """Budgets between the most bytes that a model takes and the least that it can do with."""
    return [most - (most - least) * step // (STEPS - 1) for step in range(1, STEPS)]


def least_bytes(within: Within) -> int:
    """The least budget that can be met."""
    try:
        return max(1, within(1).arena_bytes)
    except DoesNotFit as error:
        if error.nearest_bytes is None:
            raise
        return error.nearest_bytes


def _point(compiled: Compiled, platform: Platform) -> Point:
    return Point(
        arena_bytes=compiled.plan.bytes_in(platform.activations),
        modelled_instructions=compiled.modelled_instructions,
        method=compiled.attempts[-1].method,
    )


def at_once(
    mod: tvm.IRModule, platform: Platform, options: BuildOptions, first: int | None, services: Services,
    progress: Callable[[str], None] | None = None,
) -> KnownPoints:  # fmt: skip
    """Points within `first` and within the budgets below it, by services. What comes to an error is not among them."""
    shared = platform.to_json().encode(), options.to_json().encode(), tvm.ir.save_json(mod).encode()
    asked: list[int | None] = []
    ends: dict[int | None, tuple[Point | None, int | None]] = {}
    both = threading.Event()

    def jobs() -> Iterator[Job]:
        for budget in (first, 1):
            asked.append(budget)
            yield _job(budget, *shared)
        both.wait()
        (most, _), (lowest, nearest) = ends[first], ends[1]
        least = max(1, lowest.arena_bytes) if lowest else nearest
        if most and least:
            for budget in budgets_of(most.arena_bytes, least):
                asked.append(budget)
                yield _job(budget, *shared)

    try:
        for index, outcome in services.outcomes(jobs()):
            budget = asked[index]
            ends[budget] = _ended(outcome)
            if progress:
                progress(f"within {budget} B" if budget else "as it is")
            if first in ends and 1 in ends:
                both.set()
    finally:
        ends = {first: (None, None), 1: (None, None), **ends}
        both.set()  # nobody is left waiting where this is interrupted
    lowest, nearest = ends[1]
    return KnownPoints(
        points={budget: point for budget, (point, _) in ends.items() if point},
        least_bytes=max(1, lowest.arena_bytes) if lowest else nearest,
    )


def point_job(budget: bytes, platform: bytes, options: bytes, module: bytes) -> bytes:
    """The point within a budget as JSON; where nothing fits, the nearest budget that can be met."""
    try:
        return json.dumps({"point": asdict(_known_model(platform, options, module)(json.loads(budget)))}).encode()
    except DoesNotFit as error:
        return json.dumps({"nearest_bytes": error.nearest_bytes}).encode()


@lru_cache(maxsize=1)
def _known_model(platform: bytes, options: bytes, module: bytes) -> Within:
    loaded = load(tvm.ir.load_json(module.decode()))
    return points_within(loaded, Platform.from_json(platform.decode()), BuildOptions.from_json(options.decode()))


def _job(budget: int | None, *shared: bytes) -> Job:
    return Job(function=_JOB, inputs=(json.dumps(budget).encode(), *shared))


def _ended(outcome: JobOutcome) -> tuple[Point | None, int | None]:
    """A point, or the nearest budget; neither where there was an error, which who asks for it meets again here."""
    found = json.loads(outcome.result) if outcome.result is not None else {}
    return Point(**found["point"]) if "point" in found else None, found.get("nearest_bytes")
