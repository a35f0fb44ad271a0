"""Find loops of generated C that run once, which the emitter writes as blocks."""

from __future__ import annotations

import re

_LOOP = re.compile(r"for \(\w+ (\w+) = (\d+)u?; \1 < (\d+)u?; (?:\+\+\1|\1\+\+|\1 \+= (\d+))\)")


def single_turns(text: str) -> list[str]:
    """Return the heads of loops between numbers that run once."""
    return [m[0] for m in _LOOP.finditer(text) if int(m[2]) < int(m[3]) <= int(m[2]) + int(m[4] or 1)]
