"""Parts of pictures: axes, colours, labels, and the colour of each kind of layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_DECIMAL = (("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))


def byte_ticks(top: float, most: int = 8) -> list[int]:
    """0 and multiples of a power of two up to `top`, at most `most` steps of them."""
    unit = 1
    while top / unit > most:
        unit *= 2
    return list(range(0, int(top) + 1, unit))


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, at most `most` steps of them."""
    span = max(high - low, 1e-9)
    unit = 10.0**-9
    while True:
        for factor in (1, 2, 5):
            if span / (unit * factor) <= most:
                step = unit * factor
                first, last = int(-(-low // step)), int(high // step)
                return [step * index for index in range(first, last + 1)]
        unit *= 10


def bytes_text(value: float) -> str:
    """Bytes in the largest binary unit of which there is at least one, at most two digits behind the point."""
    return _written(value, _BINARY)


def count_text(value: float) -> str:
    """A count with k, M or G for thousands."""
    return _written(value, _DECIMAL).rstrip()


def _written(value: float, units: tuple[tuple[str, int], ...]) -> str:
    name, size = next(((name, size) for name, size in units if abs(value) >= size), units[-1])
    digits = f"{value / size:,.2f}".rstrip("0").rstrip(".")
    return f"{digits} {name}"


LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "paper": "#ffffff", "panel": "#f5f7fa", "ink": "#1c2733", "faint": "#566373", "grid": "#dde3ea",
        "rule": "#8794a3", "good": "#0b6b3a", "doubt": "#8a5300", "bad": "#b3202f", "link": "#1d56b8",
        "limit": "#c0293b", "bound": "#00706f", "peak": "#fdecee",
        "input": "#c9efe4", "input-edge": "#0b7d66", "output": "#fde0c5", "output-edge": "#b0520a",
        "intermediate": "#d4e2fd", "intermediate-edge": "#2d62c8", "weights": "#f9d3e2", "weights-edge": "#b0306a",
        "copy": "#faecae", "copy-edge": "#806200", "state": "#e6d6fa", "state-edge": "#7a3fb8",
        "scratch": "#e1e5ea", "scratch-edge": "#66707c",
    }
)  # fmt: skip
"""On white paper."""

DARK: Mapping[str, str] = MappingProxyType(
    {
        "paper": "#14191f", "panel": "#1c232b", "ink": "#e4eaf1", "faint": "#a3b0be", "grid": "#2c3641",
        "rule": "#6d7b8a", "good": "#5fd38d", "doubt": "#f0b54a", "bad": "#ff7f8d", "link": "#8db6ff",
        "limit": "#ff7b8a", "bound": "#4fd1cf", "peak": "#3a1f25",
        "input": "#0f4a3f", "input-edge": "#3fcfac", "output": "#5a3312", "output-edge": "#f5a561",
        "intermediate": "#1f3f7a", "intermediate-edge": "#82aaf8", "weights": "#5c1f3c", "weights-edge": "#f28ab4",
        "copy": "#4f430c", "copy-edge": "#e3c64a", "state": "#442a66", "state-edge": "#c49df0",
        "scratch": "#39424d", "scratch-edge": "#a3adba",
    }
)  # fmt: skip
"""Where the reader's system asks for dark pages."""

KINDS = ("input", "output", "intermediate", "weights", "copy", "state", "scratch")
"""Kinds of tensors, each with a colour for its area and one for its edge, `<kind>-edge`."""


def contrast(one: str, other: str) -> float:
    """Ratio of two colours' luminances, from 1 to 21; WCAG asks for 4.5 of text, for 3 of lines and areas."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def variables(colours: Mapping[str, str]) -> str:
    """Colours as custom properties of CSS."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


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


LAYER_KINDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "convolution": ("intermediate-edge", "convolution"),
        "depthwise": ("input-edge", "depthwise convolution"),
        "dense": ("state-edge", "dense, matrix product"),
        "pool": ("output-edge", "pool, reduction"),
        "elementwise": ("copy-edge", "element by element"),
        "normalize": ("weights-edge", "softmax, normalization"),
        "move": ("scratch-edge", "moves bytes"),
        "other": ("bound", "other"),
    }
)
"""Kind -> name of its colour, and words for the legend."""
_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "depthwise": "depthwise",
        "convolution": "conv pointwise winograd column line",
        "dense": "dense matmul svdf",
        "pool": "pool reduce mean sum max min arg",
        "normalize": "softmax norm normalize variance",
        "move": "dma copy permute transpose pad concat slice gather reshape split tile shift ring push repeat take",
        "elementwise": "binary unary add sub mul relu clip sigmoid tanh quantize convert cast affine elementwise "
        "broadcast leaky div exp exponential sqrt interpolate linear",
    }
)
"""Parts of kernels' names that tell their kind; the first that is found decides."""


def layer_kind(kernel: str) -> str:
    """The kind of a step, from its kernel's name; `other` where no word is known."""
    found = re.split(r"[_\d]+", kernel.lower())
    parts = {*found, *(part.removeprefix("q") for part in found)}  # qconv2d, quantize
    return next((kind for kind, words in _WORDS.items() if parts & {*words.split()}), "other")
