"""RAM against instructions: what a model costs within smaller and smaller budgets, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path

import tvm

from tvm_ext.budgets import Budgets, Point, budgets_of
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.core.printable import json_text
from tvm_ext.core.progress import Progress, stage
from tvm_ext.pareto_picture import chosen, pareto_picture
from tvm_ext.services.choose import opened_services


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
    """Points of which none is beaten by another, from the most RAM to the least that can be had.

    jobs: processes that compile in several ways at once; or executor, any of `concurrent.futures`; or scheduler, the
    address of a cluster of dask.distributed. The points are the same for any number of them.
    Raises DoesNotFit where not even the smallest one fits the platform, BadOptions, MissingTool.
    """
    with opened_services(jobs, executor, scheduler) as services:
        budgets = Budgets(mod, platform, options, services)
        with stage(progress, "compiling the model as it is"):
            points = [budgets.point(options.ram_bytes if isinstance(options.ram_bytes, int) else None)]
        with stage(progress, "searching the least memory that can be had"):
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
    """`pareto.json` and `pareto.svg` in a folder, which is replaced whole. Raises BadPackage where it cannot be.

    budget_bytes: of the arena; of the points within it the one of the fewest instructions is `chosen`, None if none is.
    """
    best = chosen(points, budget_bytes)
    record = {
        "model": model, "platform": platform.name, "points": [asdict(point) for point in points],
        "budget_bytes": budget_bytes, "chosen": asdict(best) if best else None,
    }  # fmt: skip
    picture = pareto_picture(points, f"{model} on {platform.name}", budget_bytes)
    texts = {"pareto.json": json_text(record) + "\n", "pareto.svg": picture}
    with replaced_folder(folder) as new:
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")
