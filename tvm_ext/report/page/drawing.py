"""Parts of pictures: axes, colours, labels, and a colour for each kind of layer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

_BINARY = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_DECIMAL = (("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))


def byte_ticks(top: float, most: int = 8) -> list[int]:
    """Return 0 and multiples of a power of two up to `top`, with at most `most` steps between them."""
    unit = 1
    while top / unit > most:
        unit *= 2
    return list(range(0, int(top) + 1, unit))


def round_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return multiples of 1, 2 or 5 times a power of ten from `low` to `high`, with at most `most` steps."""
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
    """Return a number of bytes in the largest binary unit that it contains once, with at most two decimals."""
    return _written(value, _BINARY)


def count_text(value: float) -> str:
    """Return a count with k, M or G for thousands, millions or billions."""
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
"""Colours of the light page."""

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
"""Colours of the dark page, for systems that prefer dark pages."""

KINDS = ("input", "output", "intermediate", "weights", "copy", "state", "scratch")
"""Kinds of tensors. Each has a colour for its area, `<kind>`, and for its edge, `<kind>-edge`."""


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours, from 1 to 21. WCAG requires 4.5 for text and 3 for lines and areas."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def variables(colours: Mapping[str, str]) -> str:
    """Return colours as custom properties of CSS."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def _luminance(colour: str) -> float:
    """Return the relative luminance of an sRGB colour as WCAG 2 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


FONT = 11.0
"""Font size of labels in a picture's units."""
_NARROW, _LETTER, _CAPITAL, _FULL = 0.42, 0.64, 0.8, 1.0
"""Widths of characters relative to the font size. DejaVu Sans, a very wide font, has no wider characters."""


@dataclass(frozen=True, kw_only=True)
class Rect:
    """Rectangle in a picture. y grows downwards."""

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
        """Return True if the rectangles overlap."""
        return (
            self.x < other.right and other.x < self.right and self.y < other.bottom and other.y < self.bottom
        )  # fmt: skip

    def common(self, other: Rect) -> Rect | None:
        """Return the intersection; None if the rectangles do not overlap."""
        if not self.meets(other):
            return None
        x, y = max(self.x, other.x), max(self.y, other.y)
        return Rect(x=x, y=y, width=min(self.right, other.right) - x, height=min(self.bottom, other.bottom) - y)


@dataclass(frozen=True, kw_only=True)
class TextLabel:
    """Text and its area. Upright text runs from the bottom of its area to the top.

    x, y: begin of the base line.
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
    """Return an upper bound of the width of a line of text in the usual sans-serif fonts."""
    return size * sum(_width(character) for character in text)


def _width(character: str) -> float:
    if character in " .,:;|!'()[]-/ijlftrI":
        return _NARROW
    if ord(character) >= 0x2E80 or character in "MW@%mw—…":
        return _FULL  # from U+2E80 on are scripts whose letters fill a square
    return _CAPITAL if character.isupper() else _LETTER


def shortened(text: str, width: float, size: float = FONT) -> str:
    """Return text cut to a width with an ellipsis; empty if not even three letters and the ellipsis fit."""
    if text_width(text, size) <= width:
        return text
    kept = text[: int(width / (size * _NARROW)) + 1]
    while kept and text_width(kept + "…", size) > width:
        kept = kept[:-1]
    return kept + "…" if len(kept) >= 3 else ""


def label_in(text: str, box: Rect, taken: Sequence[Rect], covered: Sequence[Rect] = ()) -> TextLabel | None:
    """Return the best label inside a box that does not overlap the areas `taken`; None if there is no room.

    A label preferably does not overlap the areas `covered`, is not shortened, and is level rather than upright.
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
    """Return positions close to the wanted ones, at least `apart` from each other, and from low to high if they fit."""
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
"""Name of the colour of each kind of layer, and its text in the legend."""
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
"""Parts of kernels' names for each kind of layer. The first kind with a part in the name is the kernel's kind."""


def layer_kind(kernel: str) -> str:
    """Return the kind of a step from its kernel's name; `other` for an unknown name."""
    words_of_name = re.split(r"[_\d]+", kernel.lower())
    # With and without the q of quantized kernels: `qconv2d` is a conv, but `quantize` begins with q itself.
    parts = {*words_of_name, *(part.removeprefix("q") for part in words_of_name)}
    return next((kind for kind, words in _WORDS.items() if parts & {*words.split()}), "other")
