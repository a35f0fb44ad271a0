"""Colours of pages and pictures, light and dark, as names; and their contrast, as WCAG 2.2 defines it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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
