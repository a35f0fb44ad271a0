"""Runs replayed by counts of instructions: each list has a clock, and a wait ends when its signal was sent."""

from __future__ import annotations

from codegen_c.program.makespan import ListCounts, SharedRun, replayed
from codegen_c.program.share_steps import share_steps
from tests.arena.programs import call, program

DIAMOND = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b"),
    call("s2", "a", "c"),
    call("s3", "b c", "y"),
)
LISTS = {"cpu0": ["s0", "s1", "s3"], "cpu1": ["s2"]}


def test_a_wait_lasts_until_the_signal_is_sent() -> None:
    """cpu0: s0 100, signal 5, s1 50, wait 8, s3 20; cpu1: s2 300, signal 5."""
    parallel = share_steps(DIAMOND, LISTS)
    caller = ListCounts(behind_signals=(1105, 1163), begin=1000, end=1183)
    other = ListCounts(behind_signals=(70, 375))
    assert replayed([one.entries for one in parallel.lists], [caller, other]) == SharedRun(
        instructions=(183, 305), makespan=105 + 305 + 20
    )


def test_a_signal_that_was_sent_before_costs_one_look() -> None:
    parallel = share_steps(DIAMOND, LISTS)
    caller = ListCounts(behind_signals=(105, 663), end=683)
    other = ListCounts(behind_signals=(70, 375))
    assert replayed([one.entries for one in parallel.lists], [caller, other]) == SharedRun(
        instructions=(683, 305), makespan=683
    )


def test_one_list_has_no_waits() -> None:
    parallel = share_steps(DIAMOND, {"cpu0": ["s0", "s1", "s2", "s3"]})
    assert (
        replayed([one.entries for one in parallel.lists], [ListCounts(behind_signals=(), begin=7, end=107)]).makespan
        == 100
    )
