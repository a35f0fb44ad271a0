"""Order of Helium instructions: what depends on each other keeps its order, and neighbours use different units."""

from __future__ import annotations

import re

import pytest

from codegen_c.targets.helium.kernels.four_loop import Columns, FourLoop, fastest
from codegen_c.targets.helium.kernels.interleave import cycles, interleaved

PLAIN = [
    "vldrb.u8 q4, [%[f]@0]", "vldrb.u8 q0, [%[x0]]", "vmladav.s8 r0, q0, q4", "vldrb.u8 q5, [%[f]@16]",
    "vmladav.s8 r2, q0, q5", "vmov q4[2], q4[0], r0, r2", "vadd.i32 q4, q4, r4", "vldrb.u8 q1, [%[x0], #16]!",
    "vmladava.s8 r6, q1, q5", "vstrw.32 q4, [%q[places], #4]!", "ldrd r4, r6, [%[f]@32]", "cmp r6, #0",
]  # fmt: skip
PIXELS = Columns(runs=1, taps=1, stride=1, column_bytes=64, steps=4)
ROWS = Columns(runs=3, taps=3, stride=1, column_bytes=16, steps=1)


def loop(columns: Columns) -> FourLoop:
    return FourLoop(columns=columns, shift=0, is_signed=True, adds=True, is_flipped=False, narrow="vqmovn")


def test_neighbours_of_the_same_unit_wait() -> None:
    assert cycles(["vldrb.u8 q0, [%[x0]]", "vldrb.u8 q1, [%[x1]]"]) == 3
    assert cycles(["vmladav.s8 r0, q0, q4", "vmladav.s8 r2, q0, q5"]) == 3
    assert cycles(["vmladav.s8 r0, q0, q4", "vldrb.u8 q1, [%[x1]]", "vmladav.s8 r2, q0, q5"]) == 3
    assert cycles(["vqrdmulh.s32 q4, q4, r4", "vrshl.s32 q4, r8"]) == 3
    assert cycles(["vqrdmulh.s32 q4, q4, r4", "vrshl.s32 q5, r8"]) == 2
    assert cycles(["cmp r6, #0", "sub %[x0], %[x0], #48"]) == 2


def test_keeps_what_depends_in_order() -> None:
    made = interleaved(PLAIN)
    assert sorted(made) == sorted(PLAIN)
    assert cycles(made) < cycles(PLAIN)
    for first, then in [(2, 5), (4, 5), (5, 6), (6, 9), (6, 10), (8, 10), (10, 11), (1, 7), (3, 8), (7, 9)]:
        assert made.index(PLAIN[first]) < made.index(PLAIN[then]), (PLAIN[first], PLAIN[then])


@pytest.mark.parametrize(("columns", "most"), [(PIXELS, 1.4), (ROWS, 1.2)], ids=["pixels", "rows"])
def test_the_multiplier_is_rarely_idle(columns: Columns, most: float) -> None:
    """Each of its instructions takes two cycles, which bounds the loop from below."""
    block = fastest(loop(columns)).block
    products = sum(line.startswith("vmladav") for line in block)
    assert 2 * products <= cycles(block) <= most * 2 * products


def test_the_pointer_ends_at_the_next_block() -> None:
    """Weights and factors of two channels, twice, and the end of the block."""
    moves = [re.fullmatch(r"vldrb.u8 q[45], \[%\[f\]\], #(\d+)", line) for line in fastest(loop(PIXELS)).block]
    assert sum(int(move[1]) for move in moves if move) == 2 * (4 * 2 * 16 + 3 * 2 * 4) + 8
