"""Labels of pictures: widths of text, rectangles, and places where no label lies over another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

FONT = 11.0
"""Size of labels in a picture's own units."""
_NARROW, _LETTER, _CAPITAL, _FULL = 0.42, 0.64, 0.8, 1.0
"""Widths of characters in sizes of the font; DejaVu Sans, one of the widest, has none wider."""


@dataclass(frozen=True, kw_only=True)
class Rect:
    """Area of a picture; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    def meets(self, other: Rect) -> bool:
        """True where both have an area in common."""
        return (
            self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom
        )  # fmt: skip

    def common(self, other: Rect) -> Rect | None:
        """Area of both, None where there is none."""
        if not self.meets(other):
            return None
        x, y = max(self.x, other.x), max(self.y, other.y)
        return Rect(x=x, y=y, width=min(self.right, other.right) - x, height=min(self.bottom, other.bottom) - y)


@dataclass(frozen=True, kw_only=True)
class TextLabel:
    """Text and the area it takes; upright text runs from the bottom of its area to the top.

    x, y: where its base line begins.
    """

    text: str
    area: Rect
    upright: bool = False

    @property
    def x(self) -> float:
        return round(self.area.x + (self.area.width * 0.78 if self.upright else 0), 2)

    @property
    def y(self) -> float:
        return round(self.area.bottom - (0 if self.upright else self.area.height * 0.22), 2)


def text_width(text: str, size: float = FONT) -> float:
    """Width of a line of text, estimated from above for the usual sans-serif fonts."""
    return size * sum(_width(character) for character in text)


def _width(character: str) -> float:
    if character in " .,:;|!'()[]-/ijlftrI":
        return _NARROW
    if ord(character) >= 0x2E80 or character in "MW@%mw—…":
        return _FULL  # scripts whose letters fill a square, too
    return _CAPITAL if character.isupper() else _LETTER


def shortened(text: str, width: float, size: float = FONT) -> str:
    """Text cut to a width, with an ellipsis; empty where not even three letters and that fit."""
    if text_width(text, size) <= width:
        return text
    kept = text[: int(width / (size * _NARROW)) + 1]
    while kept and text_width(kept + "…", size) > width:
        kept = kept[:-1]
    return kept + "…" if len(kept) >= 3 else ""


def label_in(text: str, box: Rect, taken: Sequence[Rect], covered: Sequence[Rect] = ()) -> TextLabel | None:
    """A label inside a box, clear of areas that are taken; where it can be, clear of those covered, too.

    The whole text is better than a shortened one, and level better than upright.
    """
    best: tuple[float, TextLabel] | None = None
    for label in _candidates(text, box):
        if any(label.area.meets(other) for other in taken):
            continue
        missing = len(text) - len(label.text) + (2 if label.text != text else 0)
        loss = missing + 3.0 * label.upright + 4.0 * any(label.area.meets(other) for other in covered)
        if best is None or loss < best[0]:
            best = loss, label
        if loss == 0:
            break
    return best[1] if best else None


def _candidates(text: str, box: Rect) -> Iterable[TextLabel]:
    line, margin = FONT + 3.0, 4.0
    level = shortened(text, box.width - 2 * margin)
    if level and box.height >= line:
        width, free = text_width(level), box.height - line
        rows = int(free // line)
        for row in range(min(rows, 12) + 1):
            y = box.y + (free / 2 if not rows else free * row / min(rows, 12))
            yield TextLabel(text=level, area=Rect(x=box.x + margin, y=y, width=width, height=line))
    upright = shortened(text, box.height - 2 * margin)
    if upright and box.width >= line:
        height, free = text_width(upright), box.width - line
        rows = int(free // line)
        for row in range(min(rows, 6) + 1):
            x = box.x + (free / 2 if not rows else free * row / min(rows, 6))
            area = Rect(x=x, y=box.bottom - margin - height, width=line, height=height)
            yield TextLabel(text=upright, area=area, upright=True)


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places along a line near those wanted, at least `apart` from each other; between low and high where they fit."""
    order = sorted(range(len(wanted)), key=lambda index: wanted[index])
    places = [0.0] * len(wanted)
    last = low - apart
    for index in order:
        last = places[index] = max(wanted[index], last + apart)
    limit = high + apart
    for index in reversed(order):
        limit = places[index] = min(places[index], limit - apart)
    return places
