"""A function of firmware as the bound of its stack needs it. Plain data."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TARGET = re.compile(r"([0-9a-f]+) <[^>]*>\s*$")


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A function: bytes of its own, and addresses it calls, jumps to or runs into.

    calls_pointers: whether it calls through a pointer. unclear: why its bytes are not known.
    """

    name: str
    num_bytes: int
    targets: tuple[int, ...]
    calls_pointers: bool = False
    unclear: str | None = None


def target_of(operands: str) -> int | None:
    """The address that objdump names at the end of an instruction's operands."""
    found = _TARGET.search(operands)
    return int(found[1], 16) if found else None


def left_for(jumps: Iterable[tuple[str, bool]], start: int, following: int | None, *, ends: bool) -> tuple[int, ...]:
    """Addresses outside of a function that it calls, jumps to or runs into, and its own where it calls itself.

    jumps: operands of its branches in order, and whether each is a call. start: its address. following: that of the
    function behind it. ends: whether its last instruction never goes on to the next.
    """
    end = 1 << 32 if following is None else following
    reached = [(address, is_call) for operands, is_call in jumps if (address := target_of(operands)) is not None]
    left = [address for address, is_call in reached if (is_call and address == start) or not start <= address < end]
    runs_on = [] if following is None or ends else [following]
    return tuple(dict.fromkeys([*left, *runs_on]))
