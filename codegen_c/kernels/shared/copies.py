"""Modelled instructions of moving elements: runs that `memcpy` copies, and runs that are filled.

Counted in the disassembly of GCC 12 with -O3 for Cortex-M: up to MOST_INLINE bytes are loads and stores of four words,
then of the remaining bytes; more is a call of newlib's memcpy, two instructions per word.
"""

from __future__ import annotations

MOST_INLINE, AT_ONCE = 64, 16
"""Bytes that are copied without a call, and by one pair of instructions."""
CALL_INSTRUCTIONS = 21
"""Arguments, call, and the branches of memcpy and memset on alignment and length."""
SHORTEST_LOOP = 8
"""Iterations up to which GCC unrolls a loop."""


def copy_instructions(num_bytes: int) -> int:
    """Return the instructions that copy adjacent bytes."""
    if num_bytes > MOST_INLINE:
        return CALL_INSTRUCTIONS + num_bytes // 2
    whole, rest = divmod(num_bytes, AT_ONCE)
    return 2 * (whole + (rest >= 4) + (rest % 4 >= 2) + rest % 2)


def fill_instructions(num_bytes: int) -> int:
    """Return the instructions that fill adjacent bytes with one value."""
    return CALL_INSTRUCTIONS + num_bytes // 4 if num_bytes > AT_ONCE else 2 + num_bytes // 4


def loop_instructions(turns: int, each: int) -> int:
    """Return the instructions of a loop whose iterations take `each`, with the loop overhead if it is not unrolled."""
    return turns * each + (3 * turns if turns > SHORTEST_LOOP else 0)
