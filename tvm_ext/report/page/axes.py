"""Ticks of axes at round numbers, and how numbers are written there."""

from __future__ import annotations

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
