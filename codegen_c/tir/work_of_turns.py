"""Cost of turns of a loop by what stands in it, and operations that vectors save of them."""

from __future__ import annotations

from collections import Counter

from codegen_c.kernels.work import LANES, SAVED
from codegen_c.tir.intrinsics import SAME_NAME
from codegen_c.tir.vectors import UNROLLED_TURNS

MOST_POINTERS = 16
"""Loads of a turn that registers point to."""
_CALLED = SAME_NAME - {"fabs", "floor", "ceil", "trunc", "rint"}
"""Kinds that are calls of functions, on processors that round in an instruction."""
_TESTED = ("float choice", "integer divide", "turn", "tested turn")


def turn_kind(inside: Counter[str]) -> str:
    """Kind of a turn: a core that counts turns does so where a body has no branches, calls or loops inside."""
    others = any(kind in _TESTED or kind.partition(" ")[2] in _CALLED for kind in inside)
    return "tested turn" if others else "turn"


def saved_by_vectors(inside: Counter[str], turns: int, outer_turns: int) -> dict[str, int]:
    """Operations that vectors save: whole ones take one for as many lanes, what is left is a loop of its own.

    Few vectors are written out, and of many loads in a turn pointers lie on the stack.
    """
    if any(kind.startswith(SAVED) for kind in inside):
        return {}
    vectors, rest = divmod(turns, LANES)
    shares = dict.fromkeys(("turn", "tested turn"), 1.0) if vectors <= UNROLLED_TURNS else {}
    share = 1 - (vectors + rest) / turns
    saved = {
        f"{SAVED}{kind}": round(count * shares.get(kind, share)) for kind, count in inside.items() if kind != "loop"
    }
    if inside["load"] > MOST_POINTERS * outer_turns * turns:
        saved["pointer"] = round(inside["load"] * vectors / turns)
    is_checked = not shares or inside["load"] >= outer_turns * turns  # whether an input lies where it is stored to
    return saved | ({"remainder": outer_turns} if rest and is_checked else {})
