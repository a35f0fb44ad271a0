"""Picture and page of a trade-off: points of bytes against a cost, the fewest bytes on the left, on one line."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.text import Text

from tvm_ext.core.printable import printable_lines
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
from tvm_ext.report.page.grids import grids_of
from tvm_ext.report.page.page import digest, environment, style_text


@dataclass(frozen=True, kw_only=True)
class FrontPoint:
    """A point of a trade-off. label: how it is reached. is_chosen: True for the best point within a budget."""

    num_bytes: int
    cost: int
    label: str
    is_chosen: bool = False


@dataclass(frozen=True, kw_only=True)
class FrontAxes:
    """Names of what the points trade: `arena, bytes` and `instructions of a run, modelled`."""

    num_bytes: str
    cost: str


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


def front_picture(points: Sequence[FrontPoint], axes: FrontAxes, title: str, budget_bytes: int | None = None) -> str:
    """Return the picture as an SVG, light or dark as the reader's system prefers.

    budget_bytes: drawn as a line. The chosen point is highlighted.
    """
    most = max(*(point.num_bytes for point in points), budget_bytes or 0, 1) * 1.1
    costs = [point.cost for point in points]
    span = (max(costs) - min(costs)) or max(*costs, 1) * 0.1
    low, high = max(0.0, min(costs) - 0.15 * span), max(costs) + 0.25 * span

    def x(num_bytes: float) -> float:
        return round(WIDTH * num_bytes / most, 1)

    def y(cost: float) -> float:
        return round(HEIGHT * (1 - (cost - low) / (high - low)), 1)

    least = max(min(costs), 1)
    order = sorted(points, key=lambda point: point.num_bytes)
    places = [(x(point.num_bytes), y(point.cost)) for point in order]
    texts = [f"{bytes_text(point.num_bytes)}, x {point.cost / least:.3f}, {point.label}" for point in order]
    budget = None if budget_bytes is None else (x(budget_bytes), f"budget {bytes_text(budget_bytes)}")
    labels = placed_labels(places, texts, budget[0] if budget else None)
    marks = [
        Mark(x=at[0], y=at[1], text=text, area=area, is_chosen=point.is_chosen)
        for point, at, text, area in zip(order, places, texts, labels, strict=True)
    ]
    return environment().get_template("pareto.svg.j2").render(
        title=title, axes=axes, width=WIDTH, height=HEIGHT, marks=marks, budget=budget, stairs=_stairs(places),
        x_ticks=[(x(value), bytes_text(value)) for value in byte_ticks(most)],
        y_ticks=[(y(value), count_text(value)) for value in round_ticks(low, high)],
        ratio_ticks=[(y(value * least), f"x {value:g}") for value in round_ticks(low / least, high / least)],
        light=variables(LIGHT), dark=variables(DARK),
    )  # fmt: skip


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


def front_page(title: str, picture: str, tables: Sequence[RenderableType]) -> str:
    """Return a page of one file. picture: an SVG. tables: of the points; a text after a table is its note."""
    style = style_text()
    shown = base64.b64encode(picture.encode()).decode()
    grids = grids_of([Text(one) if isinstance(one, str) else one for one in tables])
    return environment().get_template("pareto.html.j2").render(
        title=printable_lines(title), picture=f"data:image/svg+xml;base64,{shown}", grids=grids, style=style,
        style_hash=digest(style),
    )  # fmt: skip
