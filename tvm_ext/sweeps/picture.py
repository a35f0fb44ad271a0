"""The plot of a sweep: a column against another, with a point for each row and a line through the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jinja2

from tvm_ext.core.printable import printable
from tvm_ext.sweeps.table import Row, SweepTable

WIDTH, HEIGHT, MARGIN = 640, 400, 64
MOST_POINTS = 10_000
"""Limit of rows that have a point. Of more rows, every second or third has one; the front is always drawn."""
_TICKS = 5
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{ width + 2 * margin }} {{ height + 2 * margin }}"
     font-family="sans-serif" font-size="12">
<rect width="100%" height="100%" fill="white"/>
<path d="M{{ margin }} {{ margin }} v{{ height }} h{{ width }}" fill="none" stroke="black"/>
<text x="{{ margin + width / 2 }}" y="{{ 2 * margin + height - 12 }}" text-anchor="middle">{{ x }}</text>
<text x="{{ margin }}" y="{{ margin - 16 }}">{{ y }}</text>
{%- for tick in ticks_x %}
<text x="{{ tick.at }}" y="{{ margin + height + 18 }}" text-anchor="middle">{{ tick.text }}</text>
{%- endfor %}
{%- for tick in ticks_y %}
<text x="{{ margin - 6 }}" y="{{ tick.at + 4 }}" text-anchor="end">{{ tick.text }}</text>
{%- endfor %}
{%- for point in points %}
<circle cx="{{ point.x }}" cy="{{ point.y }}" r="3" fill="#9aa5b1"><title>{{ point.title }}</title></circle>
{%- endfor %}
<polyline points="{{ line }}" fill="none" stroke="#1f6fb4"/>
{%- for point in front %}
<circle cx="{{ point.x }}" cy="{{ point.y }}" r="4" fill="#1f6fb4"><title>{{ point.title }}</title></circle>
{%- endfor %}
</svg>
"""


def picture(table: SweepTable, x: str = "ram_bytes", y: str = "predicted_instructions") -> str:
    """Return the plot as an SVG. An axis is logarithmic if all its values are positive; tooltips name the rows.

    x, y: columns, with a minus, such as `-accuracy`, if more is better.
    """
    columns = x.removeprefix("-"), y.removeprefix("-")
    values = [(row.get(columns[0]), row.get(columns[1])) for row in table.rows]
    with_both = [index for index, pair in enumerate(values) if None not in pair]
    scales = [_Scale([float(values[index][axis] or 0) for index in with_both]) for axis in (0, 1)]
    drawn = with_both[:: -(-len(with_both) // MOST_POINTS) or 1]

    def point(row: Row) -> dict[str, object]:
        across, up = (scale.part(float(row[column])) for scale, column in zip(scales, columns, strict=True))
        title = f"{row['model']}, {row['platform']}, {row['options']}: {row[columns[0]]}, {row[columns[1]]}"
        place = {"x": round(MARGIN + WIDTH * across, 1), "y": round(MARGIN + HEIGHT * (1 - up), 1)}
        return {**place, "title": printable(title)}

    front = [point(row) for row in table.front(x, y)]
    ticks = [[(scale.part(value), f"{value:,.4g}") for value in scale.ticks()] for scale in scales]
    environment, (x_label, y_label) = jinja2.Environment(autoescape=True), map(printable, columns)
    return environment.from_string(_PICTURE).render(
        width=WIDTH, height=HEIGHT, margin=MARGIN, x=x_label, y=y_label,
        points=(point(table.rows[index]) for index in drawn),
        front=front, line=" ".join(f"{one['x']},{one['y']}" for one in front),
        ticks_x=[{"at": round(MARGIN + WIDTH * part, 1), "text": text} for part, text in ticks[0]],
        ticks_y=[{"at": round(MARGIN + HEIGHT * (1 - part), 1), "text": text} for part, text in ticks[1]],
    )  # fmt: skip


class _Scale:
    """Scale of an axis: maps values to fractions of its length."""

    def __init__(self, values: Sequence[float]) -> None:
        self._log = bool(values) and min(values) > 0
        self._low, self._high = (self._of(f(values, default=1.0)) for f in (min, max))

    def part(self, value: float) -> float:
        span = self._high - self._low
        return 0.04 + 0.92 * ((self._of(value) - self._low) / span if span else 0.5)

    def ticks(self) -> list[float]:
        steps = [self._low + (self._high - self._low) * step / (_TICKS - 1) for step in range(_TICKS)]
        return [10**step if self._log else step for step in dict.fromkeys(steps)]

    def _of(self, value: float) -> float:
        return math.log10(value) if self._log else value
