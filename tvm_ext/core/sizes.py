"""Sizes in bytes as users write them in Python options, on the command line and in files: 65536, "64KiB", "1 MiB".

Units are those of IEC 80000-13 and SI: KiB, MiB and GiB are powers of 1024; kB, MB and GB are powers of 1000. A bare
`k` or `K` is refused, because it means either.
"""

from __future__ import annotations

import re

UNITS = {"": 1, "B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

SIZE_FORMS = "a whole number of bytes, or one with a unit: B, KiB, MiB, GiB (powers of 1024), kB, MB, GB (of 1000)"
"""Accepted forms, as an error lists them."""

_SIZE = re.compile(r"([0-9]{1,20})\s*([A-Za-z]*)")


def parse_size(text: str) -> int | None:
    """Return the bytes of a text such as `"64KiB"`, `"1 MiB"` or `"65536"`, or None where it is no size."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * UNITS[found[2]] if found and found[2] in UNITS else None


def size_problem(text: str) -> str:
    """Return why a text is not a size, and what to write, as the end of a sentence."""
    found = _SIZE.fullmatch(text.strip())
    prefix = found[2][:1].upper() if found else ""
    if not found or prefix not in ("K", "M", "G"):
        return f"is not a size; write {SIZE_FORMS}."
    units = f"{prefix}iB", f"{'k' if prefix == 'K' else prefix}B"
    forms = " or ".join(f"{found[1]}{unit} ({int(found[1]) * UNITS[unit]} B)" for unit in units)
    return f"is not a size: {found[2]} does not say whether it counts in 1024 or 1000. Write {forms}."


def read_size(value: object) -> object:
    """Return the bytes of a text, or any other value unchanged for the next check. Raises ValueError."""
    if not isinstance(value, str):
        return value
    found = parse_size(value)
    if found is None:
        raise ValueError(size_problem(value))
    return found
