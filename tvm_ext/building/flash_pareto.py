"""Trade-off of flash against cycles: builds of a model with more and less of what speed costs in flash.

Code that is compiled for size and weights as the model has them take the least flash. Code for speed and weights that
kernels have in more bytes for speed take the most; between both, a limit of flash decides which layers have such
weights. Each point is a whole build, which is verified like every other, and which the options of the point repeat.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tvm

from tvm_ext.building.build import build
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.files.output_folder import replaced_folder
from tvm_ext.core.options import BuildOptions, Optimize, Target
from tvm_ext.core.platform import Platform
from tvm_ext.core.printable import json_text
from tvm_ext.core.progress import Progress, stage
from tvm_ext.packages.package import Package
from tvm_ext.report.listings import flash_table
from tvm_ext.report.page.pareto_front import FrontAxes, FrontPoint, front_page, front_picture

STEPS = 6
"""Number of limits of flash, in equal steps from all weights for speed to weights as the model has them."""
TABLES = 64
"""Part of the constants of a build for size by which kernels for speed may need more."""


@dataclass(frozen=True, kw_only=True)
class FlashPoint:
    """A build of the model and what it takes.

    optimize, flash: its options; flash is None without a limit of constants. weights_bytes, code_bytes: of the package.
    arena_bytes: in the default memory. predicted_cycles: of a run. instructions: executed by a run in QEMU, None
    without a board. verified: where the build was run and compared.
    """

    optimize: Optimize
    flash: int | None
    weights_bytes: int
    code_bytes: int
    arena_bytes: int
    predicted_cycles: int
    instructions: int | None
    verified: tuple[str, ...]

    @property
    def flash_bytes(self) -> int:
        return self.weights_bytes + self.code_bytes

    @property
    def options(self) -> tuple[str, ...]:
        """The options of `tvm-ext compile` that build the package again."""
        limit = () if self.flash is None else ("--flash", str(self.flash))
        return ("--optimize", self.optimize, *limit)


def flash_pareto(
    mod: tvm.IRModule,
    platform: Platform,
    *,
    verify: tuple[Target, ...] | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> tuple[FlashPoint, ...]:
    """Return the Pareto-optimal points of flash and predicted cycles, from the most flash to the least.

    verify: as in `BuildOptions`. jobs, executor, scheduler: as `build` takes them. Raises the errors of `build`.
    """
    found: list[FlashPoint] = []

    def built(optimize: Optimize, flash: int | None = None) -> FlashPoint:
        limit = "" if flash is None else f" within {flash} B of constants"
        options = BuildOptions(optimize=optimize, flash=flash, verify=verify)
        with stage(progress, f"building for {optimize}{limit}"), TemporaryDirectory(prefix="tvm_ext_") as name:
            package = build(
                mod, platform, Path(name) / "out", options, jobs=jobs, executor=executor, scheduler=scheduler
            )
            return _point(package, optimize, flash)

    found += [built("speed"), built("balanced"), built("size")]
    fastest, smallest = found[0], found[-1]
    for limit in limits_of(fastest.weights_bytes, smallest.weights_bytes):
        if all(limit < one.weights_bytes for one in found if one.optimize == "speed"):
            try:
                found.append(built("speed", limit))
            except DoesNotFit:
                break
    return front(found)


def limits_of(most: int, least: int) -> Iterator[int]:
    """Yield limits of constants in equal steps, from below `most` to a little above `least`.

    Kernels for speed have tables of their own beside weights as the model has them, so the last limit leaves room for
    these.
    """
    last = least + least // TABLES
    yield from (most - (most - last) * step // STEPS for step in range(1, STEPS + 1) if last < most)


def front(points: Sequence[FlashPoint]) -> tuple[FlashPoint, ...]:
    """Return the points that no other point beats in flash and cycles, from the most flash to the least."""
    order = sorted(points, key=lambda one: (one.flash_bytes, one.predicted_cycles))
    best: list[FlashPoint] = []
    for one in order:
        if not best or one.predicted_cycles < best[-1].predicted_cycles:
            best.append(one)
    return tuple(reversed(best))


def _point(package: Package, optimize: Optimize, flash: int | None) -> FlashPoint:
    report = package.report
    board: dict[str, Any] = report["verify"].get("qemu") or {}
    return FlashPoint(
        optimize=optimize, flash=flash, weights_bytes=report["weights_bytes"], code_bytes=report["code_bytes"],
        arena_bytes=report["arena_bytes"], predicted_cycles=report["prediction"]["cycles"],
        instructions=board.get("instructions"),
        verified=tuple(place for place, result in report["verify"].items() if result and result["passed"]),
    )  # fmt: skip


def chosen(points: Sequence[FlashPoint], budget_bytes: int | None) -> FlashPoint | None:
    """Return the point with the fewest cycles within a budget; None without a budget or a point within it."""
    within = [point for point in points if budget_bytes is not None and point.flash_bytes <= budget_bytes]
    return min(within, key=lambda point: (point.predicted_cycles, point.flash_bytes), default=None)


AXES = FrontAxes(num_bytes="flash: constants and code, bytes", cost="cycles of a run, predicted")


def write_flash_pareto(
    points: Sequence[FlashPoint], model: Path, platform: Platform, folder: Path, *, budget_bytes: int | None = None
) -> None:
    """Write `pareto.json`, `pareto.svg` and `pareto.html` to a folder, which is replaced as a whole.

    model: path of the model, which the commands of the points name. budget_bytes: limit of flash. The entry
    `chosen` is the point within the limit with the fewest cycles, or None. Raises BadPackage if it cannot.
    """
    best = chosen(points, budget_bytes)

    def entry(point: FlashPoint) -> dict[str, Any]:
        return {
            **asdict(point),
            "flash_bytes": point.flash_bytes,
            "command": shlex.join(command_of(point, model, platform)),
        }

    record = {
        "model": model.name, "platform": platform.name, "axes": ["flash", "cycles"],
        "points": [entry(point) for point in points], "budget_bytes": budget_bytes,
        "chosen": entry(best) if best else None,
    }  # fmt: skip
    marks = [
        FrontPoint(
            num_bytes=point.flash_bytes,
            cost=point.predicted_cycles,
            label=_label(point),
            is_chosen=point is best,
        )
        for point in points
    ]
    title = f"{model.name} on {platform.name}"
    picture = front_picture(marks, AXES, title, budget_bytes)
    page = front_page(title, picture, [flash_table(points), command_note(model, platform)])
    texts = {"pareto.json": json_text(record) + "\n", "pareto.svg": picture, "pareto.html": page}
    with replaced_folder(folder) as new:
        for name, text in texts.items():
            (new / name).write_text(text, encoding="utf-8")


def command_of(point: FlashPoint, model: Path, platform: Platform) -> list[str]:
    """Return the command that builds a point again."""
    return ["tvm-ext", "compile", str(model), "-p", platform.name, "-o", f"out/{model.stem}", *point.options]


def command_note(model: Path, platform: Platform) -> str:
    """Return a sentence that says how a row of the table is built again."""
    command = shlex.join(["tvm-ext", "compile", str(model), "-p", platform.name, "-o", f"out/{model.stem}"])
    return f"Build a row again: {command}, with the options of the row."


def _label(point: FlashPoint) -> str:
    return point.optimize if point.flash is None else f"{point.optimize}, --flash {point.flash}"
