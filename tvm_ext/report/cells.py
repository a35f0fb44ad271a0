"""Values as the cells of tables show them."""

from __future__ import annotations

from rich import markup

from tvm_ext.core.printable import printable


def escape(text: str) -> str:
    """A name of a model, file or operator as it stands in a table: no markup, nothing that controls a terminal."""
    return markup.escape(printable(text))


def number(value: int | None, unit: str = "") -> str:
    """A count with thousands apart and its unit; words where there is none."""
    return "not measured" if value is None else f"{value:,}{unit}"


def small_number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None else f"{value:.3g}"


def percent(value: float | None) -> str:
    """A share of one, in percent."""
    return "not measured" if value is None else f"{value:.2%}"


def binary(num_bytes: int) -> str:
    """Bytes in the largest binary unit that divides them."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if num_bytes % size == 0:
            return f"{num_bytes // size} {unit}"
    return f"{num_bytes} B"
