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
from tvm_ext.report.page.drawing import (
    DARK,
    FONT,
    LIGHT,
    Rect,
    byte_ticks,
    bytes_text,
    count_text,
    round_ticks,
    text_width,
    variables,
)
from tvm_ext.report.page.page import environment
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
    """Write `pareto.json` and `pareto.svg` to a folder, which is replaced as a whole. Raises BadPackage if it cannot.

    budget_bytes: limit of the arena. The entry `chosen` is the point within the limit with the fewest instructions,
    or None.
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


WIDTH, HEIGHT = 640.0, 380.0
"""Size of the plot inside its axes, in units of the SVG."""
_LINE = FONT + 4.0
_ROOM = 8.0


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A point in the plot: its position, and the text and area of its label."""

    x: float
    y: float
    text: str
    area: Rect
    is_chosen: bool

    @property
    def leader(self) -> str:
        """SVG path from the point to its label; empty if the label is right beside the point."""
        x = min(max(self.x, self.area.x), self.area.right)
        y = min(max(self.y, self.area.y + 2), self.area.bottom - 2)
        return (
            f"M{self.x} {self.y}L{x:.1f} {y:.1f}" if abs(self.y - y) > _LINE / 2 or abs(self.x - x) > 2 * _ROOM else ""
        )


def chosen(points: Sequence[Point], budget_bytes: int | None) -> Point | None:
    """Return the point with the fewest instructions within a budget; None without a budget or a point within it."""
    within = [point for point in points if budget_bytes is not None and point.arena_bytes <= budget_bytes]
    return min(within, key=lambda point: (point.modelled_instructions, point.arena_bytes), default=None)


def pareto_picture(points: Sequence[Point], title: str, budget_bytes: int | None = None) -> str:
    """Return the plot as an SVG, light or dark as the reader's system prefers.

    budget_bytes: drawn as a line, and the best point within it is highlighted.
    """
    most = max(*(point.arena_bytes for point in points), budget_bytes or 0, 1) * 1.1
    counts = [point.modelled_instructions for point in points]
    span = (max(counts) - min(counts)) or max(*counts, 1) * 0.1
    low, high = max(0.0, min(counts) - 0.15 * span), max(counts) + 0.25 * span

    def x(num_bytes: float) -> float:
        return round(WIDTH * num_bytes / most, 1)

    def y(instructions: float) -> float:
        return round(HEIGHT * (1 - (instructions - low) / (high - low)), 1)

    best, fewest = chosen(points, budget_bytes), max(min(counts), 1)
    order = sorted(points, key=lambda point: point.arena_bytes)
    places = [(x(point.arena_bytes), y(point.modelled_instructions)) for point in order]
    texts = [_text(point, fewest) for point in order]
    budget = None if budget_bytes is None else (x(budget_bytes), f"budget {bytes_text(budget_bytes)}")
    labels = placed_labels(places, texts, budget[0] if budget else None)
    marks = [
        Mark(x=at[0], y=at[1], text=text, area=area, is_chosen=point is best)
        for point, at, text, area in zip(order, places, texts, labels, strict=True)
    ]
    return environment().get_template("pareto.svg.j2").render(
        title=title, width=WIDTH, height=HEIGHT, marks=marks, budget=budget, stairs=_stairs(places),
        x_ticks=[(x(value), bytes_text(value)) for value in byte_ticks(most)],
        y_ticks=[(y(value), count_text(value)) for value in round_ticks(low, high)],
        ratio_ticks=[(y(value * fewest), f"x {value:g}") for value in round_ticks(low / fewest, high / fewest)],
        light=variables(LIGHT), dark=variables(DARK),
    )  # fmt: skip


def _text(point: Point, fewest: int) -> str:
    ratio = point.modelled_instructions / fewest
    return f"{bytes_text(point.arena_bytes)}, x {ratio:.3f}, {point.method}"


def _stairs(places: Sequence[tuple[float, float]]) -> str:
    """Return a step line through all points, from the fewest bytes: between two points, more bytes gain nothing."""
    parts = [f"M{places[0][0]} {places[0][1]}"]
    parts += [f"H{across}V{up}" for across, up in places[1:]]
    return "".join([*parts, f"H{WIDTH}"])


def placed_labels(places: Sequence[tuple[float, float]], texts: Sequence[str], budget_x: float | None) -> list[Rect]:
    """Place a label for each point inside the plot; if possible, without overlap with labels, points and the budget.

    For each point, candidate areas right, left and centred are tried at growing vertical distance. The first that
    overlaps nothing is taken; otherwise the first clear of labels and points, then the first inside the plot.
    """
    dots = [Rect(x=x - 6, y=y - 6, width=12, height=12) for x, y in places]
    lines = [] if budget_x is None else [Rect(x=budget_x - 2, y=0, width=4, height=HEIGHT)]
    found: list[Rect] = []
    leaders: list[Rect] = []
    for (x, y), text in zip(places, texts, strict=True):
        width = text_width(text)
        candidates = [
            Rect(x=min(max(left, 2.0), WIDTH - width - 2), y=y + step * _LINE - _LINE / 2, width=width, height=_LINE)
            for step in sorted(range(-12, 13), key=abs)
            for left in (x + _ROOM, x - width - _ROOM, x - width / 2)
        ]
        inside = [area for area in candidates if area.y >= 0 and area.bottom <= HEIGHT]
        clear = [area for area in inside if not any(map(area.meets, (*found, *dots)))]
        best = next(
            (
                area for area in clear
                if not any(map(area.meets, (*lines, *leaders))) and not any(map(_leader(x, y, area).meets, found))
            ),
            (clear or inside or candidates)[0],
        )  # fmt: skip
        found.append(best)
        leaders.append(_leader(x, y, best))
    return found


def _leader(x: float, y: float, area: Rect) -> Rect:
    """Return the bounding box of the line from a point to its label."""
    end_x, end_y = min(max(x, area.x), area.right), min(max(y, area.y), area.bottom)
    return Rect(x=min(x, end_x) - 1, y=min(y, end_y) - 1, width=abs(x - end_x) + 2, height=abs(y - end_y) + 2)
