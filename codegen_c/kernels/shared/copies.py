"""Modelled instructions of moving elements as they are: runs that `memcpy` copies, runs that are filled.

Counted in the disassembly of GCC 12 with -O3 for Cortex-M: up to MOST_INLINE bytes are loads and stores of four words,
then of what is left; more is a call of newlib's memcpy, two instructions a word.
"""

from __future__ import annotations

MOST_INLINE, AT_ONCE = 64, 16
"""Bytes that are copied without a call, and by one pair of instructions."""
CALL_INSTRUCTIONS = 21
"""Arguments, call, and what memcpy and memset decide by alignment and length."""
SHORTEST_LOOP = 8
"""Turns up to which GCC writes a loop out."""


def copy_instructions(num_bytes: int) -> int:
    """Instructions that copy adjacent bytes."""
    if num_bytes > MOST_INLINE:
        return CALL_INSTRUCTIONS + num_bytes // 2
    whole, rest = divmod(num_bytes, AT_ONCE)
    return 2 * (whole + (rest >= 4) + (rest % 4 >= 2) + rest % 2)


def fill_instructions(num_bytes: int) -> int:
    """Instructions that fill adjacent bytes with one value."""
    return CALL_INSTRUCTIONS + num_bytes // 4 if num_bytes > AT_ONCE else 2 + num_bytes // 4


def loop_instructions(turns: int, each: int) -> int:
    """Instructions of a loop whose turns take `each`, and that counts them where they are many."""
    return turns * each + (3 * turns if turns > SHORTEST_LOOP else 0)
