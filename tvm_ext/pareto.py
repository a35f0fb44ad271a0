"""RAM against instructions: what a model costs within smaller and smaller budgets, as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path

import jinja2
import tvm

from tvm_ext.budgets import Budgets, Point, budgets_of
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.services.choose import opened_services

WIDTH, HEIGHT, MARGIN = 560, 320, 60
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width + 2 * margin }} {{ height + 2 * margin }}"
     font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<path d="M{{ margin }} {{ margin }} v{{ height }} h{{ width }}" fill="none" stroke="black"/>
<text x="{{ margin + width / 2 }}" y="{{ 2 * margin + height - 12 }}" text-anchor="middle">bytes of arena</text>
<text x="{{ margin }}" y="{{ margin - 16 }}">instructions, modelled (times the fewest)</text>
{%- for mark in marks %}
<circle cx="{{ mark.x }}" cy="{{ mark.y }}" r="4" fill="#1f6fb4"/>
<text x="{{ mark.x }}" y="{{ mark.y - 8 }}" text-anchor="middle">{{ mark.label }}</text>
<text x="{{ mark.x }}" y="{{ margin + height + 16 }}" text-anchor="middle">{{ mark.bytes }}</text>
{%- endfor %}
</svg>
"""


def pareto(
    mod: tvm.IRModule,
    platform: Platform,
    options: BuildOptions,
    *,
    jobs: int = 1,
    executor: Executor | None = None,
    scheduler: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> tuple[Point, ...]:
    """Points of which none is beaten by another, from the most RAM to the least that can be had.

    jobs: processes that compile in several ways at once; or executor, any of `concurrent.futures`; or scheduler, the
    address of a cluster of dask.distributed. The points are the same for any number of them.
    Raises DoesNotFit where not even the smallest one fits the platform, BadOptions, MissingTool.
    """
    say = progress or (lambda _: None)
    with opened_services(jobs, executor, scheduler) as services:
        budgets = Budgets(mod, platform, options, services)
        say("as it is")
        points = [budgets.point(options.ram if isinstance(options.ram, int) else None)]
        say("the least that can be had")
        for budget in budgets_of(points[0].arena_bytes, budgets.least_bytes()):
            if budget < points[-1].arena_bytes:
                say(f"within {budget} B")
                points.append(budgets.point(budget))
    return tuple(
        point for point in points
        if not any(o.arena_bytes <= point.arena_bytes and o.modelled_instructions < point.modelled_instructions
                   for o in points)
    )  # fmt: skip


def write_pareto(points: Sequence[Point], model: str, platform: Platform, folder: Path) -> None:
    """`pareto.json` and `pareto.svg` in a folder, which is replaced whole. Raises BadPackage where it cannot be."""
    record = {"model": model, "platform": platform.name, "points": [asdict(point) for point in points]}
    texts = {"pareto.json": json.dumps(record, indent=2) + "\n", "pareto.svg": _picture(points)}
    with replaced_folder(folder) as new:
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")


def _picture(points: Sequence[Point]) -> str:
    most_bytes = max(point.arena_bytes for point in points)
    fewest, most = (f(point.modelled_instructions for point in points) for f in (min, max))
    marks = [
        {
            "x": round(MARGIN + WIDTH * point.arena_bytes / most_bytes, 1),
            "y": round(MARGIN + HEIGHT * (1 - (point.modelled_instructions - fewest * 0.9) / (most - fewest * 0.9)), 1),
            "label": f"{point.modelled_instructions / max(fewest, 1):.3f}",
            "bytes": point.arena_bytes,
        }
        for point in points
    ]
    return jinja2.Template(_PICTURE).render(marks=marks, width=WIDTH, height=HEIGHT, margin=MARGIN)
