"""Trade-off of RAM against instructions: a model compiled within smaller and smaller budgets, as rows and as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import tvm

from tvm_ext.compilation.model_forms import forms_of, streamed_forms
from tvm_ext.compilation.pipeline import fitter_of, refuse_tune
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.printable import json_text
from tvm_ext.core.progress import Progress, stage
from tvm_ext.fitting.fit import nearest_bytes, nothing_fits, search
from tvm_ext.frontends.load import load
from tvm_ext.frontends.memory_scopes import in_scopes
from tvm_ext.report.listings import pareto_table
from tvm_ext.report.page.pareto_front import FrontAxes, FrontPoint, front_page, front_picture
from tvm_ext.services.executors import opened_services
from tvm_ext.services.job import OpenServices


def pareto(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[Point, ...]:
    """Return the Pareto-optimal points, from the most RAM to the least that is possible.

    jobs: number of parallel processes; or executor, any executor of `concurrent.futures`; or scheduler, the address of
    a dask.distributed cluster. The points do not depend on them.
    Raises DoesNotFit if not even the smallest point fits the platform, BadOptions, MissingTool.
    """
    with opened_services(jobs, executor, scheduler) as services:
        budgets = Budgets(mod, platform, options, services)
        with stage(progress, "compiling the model without a budget"):
            points = [budgets.point(options.ram_bytes if isinstance(options.ram_bytes, int) else None)]
        with stage(progress, "searching the smallest possible memory"):
            least = budgets.least_bytes()
        for budget in budgets_of(points[0].arena_bytes, least):
            if budget < points[-1].arena_bytes:
                with stage(progress, f"compiling the model within {budget} B"):
                    points.append(budgets.point(budget))
    return tuple(
        point for point in points
        if not any(o.arena_bytes <= point.arena_bytes and o.modelled_instructions < point.modelled_instructions
                   for o in points)
    )  # fmt: skip


def write_pareto(
    points: Sequence[Point], model: str, platform: Platform, folder: Path, *, budget_bytes: int | None = None
) -> None:
    """Write `pareto.json`, `pareto.svg` and `pareto.html` to a folder, which is replaced as a whole.

    Raises BadPackage if it cannot.
    budget_bytes: limit of the arena. The entry `chosen` is the point within the limit with the fewest instructions,
    or None.
    """
    best = chosen(points, budget_bytes)
    record = {
        "model": model, "platform": platform.name, "axes": ["ram", "instructions"],
        "points": [asdict(point) for point in points],
        "budget_bytes": budget_bytes, "chosen": asdict(best) if best else None,
    }  # fmt: skip
    title = f"{model} on {platform.name}"
    picture = pareto_picture(points, title, budget_bytes)
    page = front_page(title, picture, [pareto_table(points)])
    texts = {"pareto.json": json_text(record) + "\n", "pareto.svg": picture, "pareto.html": page}
    with replaced_folder(folder) as new:
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")


STEPS = 8
"""Number of budgets, from the memory of the unconstrained model to the smallest possible, in equal steps."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """A trade-off: bytes of the arena in the default memory, predicted instructions, and the method that reached it."""

    arena_bytes: int
    modelled_instructions: int
    method: str


class Budgets:
    """A prepared model, which can be compiled within any budget. services: run the compilations in parallel."""

    def __init__(
        self, mod: tvm.IRModule, platform: Platform, options: BuildOptions, services: OpenServices | None = None
    ) -> None:
        refuse_tune(options, "a search over budgets")
        loaded = load(mod)
        loaded, options = in_scopes(loaded, platform, options)
        forms = streamed_forms(forms_of(loaded, platform, options, None), options)
        self._fitter = fitter_of(forms, platform, options, services)
        self._platform, self._options = platform, options

    def point(self, budget: int | None) -> Point:
        """Return the point within a budget of the default memory. Raises DoesNotFit."""
        options = replace(self._options, ram=budget)
        found = search(self._fitter, self._platform, options)
        best = found.best
        if best is None:
            raise nothing_fits(self._fitter, self._platform, options, found)
        return Point(arena_bytes=best.arena_bytes or 0, modelled_instructions=best.instructions, method=best.one.method)

    def least_bytes(self) -> int:
        """Return the smallest budget that can be met. Raises DoesNotFit if something else than the arena is too large.

        A budget of 1 B fails on purpose: the failed attempts then tell which bytes would have been enough.
        """
        options = replace(self._options, ram=1)
        found = search(self._fitter, self._platform, options)
        if found.best is not None:
            return max(1, found.best.arena_bytes or 0)
        if all((tried.arena_bytes or 0) <= 1 for tried in found.reached):
            raise nothing_fits(self._fitter, self._platform, options, found)
        return nearest_bytes(self._fitter, self._platform, options, found)


def budgets_of(most: int, least: int) -> list[int]:
    """Return budgets in equal steps, from just below the bytes of the unconstrained model to the smallest possible."""
    return [most - (most - least) * step // (STEPS - 1) for step in range(1, STEPS)]


AXES = FrontAxes(num_bytes="arena, bytes", cost="instructions of a run, modelled")


def chosen(points: Sequence[Point], budget_bytes: int | None) -> Point | None:
    """Return the point with the fewest instructions within a budget; None without a budget or a point within it."""
    within = [point for point in points if budget_bytes is not None and point.arena_bytes <= budget_bytes]
    return min(within, key=lambda point: (point.modelled_instructions, point.arena_bytes), default=None)


def pareto_picture(points: Sequence[Point], title: str, budget_bytes: int | None = None) -> str:
    """Return the plot as an SVG. budget_bytes: drawn as a line, and the best point within it is highlighted."""
    best = chosen(points, budget_bytes)
    marks = [
        FrontPoint(
            num_bytes=point.arena_bytes, cost=point.modelled_instructions, label=point.method, is_chosen=point is best
        )
        for point in points
    ]
    return front_picture(marks, AXES, title, budget_bytes)
