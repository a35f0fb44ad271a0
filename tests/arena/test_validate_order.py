"""The validator of parallel programs refuses every planted race, deadlock and overlap, and says what and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.validate_order import validate_order
from codegen_c.kernels.contract import Callback
from tests.arena.lists import APART, DIAMOND, listed, placed, rejected
from tests.arena.programs import call, program
from tests.support.parallel_programs import in_place


def test_the_lists_as_they_stand() -> None:
    validate_order(listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0"), APART)
    validate_order(listed(DIAMOND, "0 1 2 3"), APART)
    validate_order(listed(DIAMOND, "!0>1 ?3<1", "?0<0 0 !1>2 1 ?2<2 3 !3>0", "?1<1 2 !2>1"), APART)
    validate_order(listed(DIAMOND, "0 1 2 3", "", ""), APART)
    held = placed(DIAMOND, x=-1, y=-1)
    validate_order(listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0"), held)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([], "p: it has no per-core schedule."),
        (["0 1 2"], "step 3 (s3) is in no per-core schedule."),
        (["0 1 2 3 4"], "cpu0, entry 4: there is no step 4."),
        (["-1 0 1 2 3"], "cpu0, entry 0: there is no step -1."),
        (["0 1 2 1 3"], "cpu0, entry 3: runs step 1 (s1), as cpu0, entry 1 does."),
        (["0 !0>1 1 2 ?1<1 3", "?0<0 2 !1>0"], "cpu1, entry 1: runs step 2 (s2), as cpu0, entry 3 does."),
        (["0 !0>1 !0>1 1 ?1<1 3", "?0<0 2 !1>0"], "cpu0, entry 2: sends signal 0, as cpu0, entry 1 does."),
        (["0 !0>1 1 ?1<1 3", "?0<0 2 ?0<0 !1>0"], "cpu1, entry 2: awaits signal 0, as cpu1, entry 0 does."),
        (
            ["0 !0>1 1 ?1<1 3", "?0<0 2 !1>0 !2>0"],
            "cpu1, entry 3: nothing awaits signal 2, so it would be left for the next run.",
        ),
        (["0 !0>1 1 ?1<1 ?2<1 3", "?0<0 2 !1>0"], "cpu0, entry 4: nothing sends signal 2."),
        (["0 !0>0 ?0<0 1 2 3"], "cpu0, entry 1: signal 0 names schedule 0, not that of another processor."),
        (
            ["0 !0>2 1 ?1<1 3", "?0<0 2 !1>0"],
            "cpu0, entry 1: signal 0 names schedule 2, not that of another processor.",
        ),
        (
            ["0 !0>3 1 ?1<1 3", "?0<0 2 !1>0"],
            "cpu0, entry 1: signal 0 names schedule 3, not that of another processor.",
        ),
        (
            ["0 !0>1 1 ?1<1 3", "?0<-1 2 !1>0"],
            "cpu1, entry 0: signal 0 names schedule -1, not that of another processor.",
        ),
        (
            ["0 !0>2 1 ?1<1 3", "?0<0 2 !1>0", ""],
            "cpu0, entry 1: signal 0 goes to cpu2, and cpu1, entry 0 awaits it from cpu0.",
        ),
        (
            ["0 !0>1 1 ?1<1 3", "?0<2 2 !1>0", ""],
            "cpu0, entry 1: signal 0 goes to cpu1, and cpu1, entry 0 awaits it from cpu2.",
        ),
        (
            ["!2>1 0 !0>1 1 ?1<1 3", "?0<0 ?2<0 2 !1>0"],
            "cpu1, entry 0: awaits signal 0 of cpu0, which sends 2 before it; "
            "a channel only counts signals, so it would confuse the two.",
        ),
    ],
)
def test_entries_that_are_missing_or_there_twice(lists: list[str], message: str) -> None:
    assert rejected(listed(DIAMOND, *lists), APART) == message


def test_two_lists_of_one_processor() -> None:
    made = listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    twice = replace(made, lists=(made.lists[0], replace(made.lists[1], processor="cpu0")))
    assert (
        rejected(twice, APART)
        == "p: two per-core schedules name the same processor; the processors are ['cpu0', 'cpu0']."
    )


def test_a_kernel_for_another_processor() -> None:
    steps = (*DIAMOND.steps[:2], replace(call("s2", "a", "c", scratch_bytes=16), processor="cpu0"), DIAMOND.steps[3])
    made = listed(replace(DIAMOND, steps=steps), "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    assert rejected(made, APART) == "cpu1, entry 1: runs step 2 (s2), a kernel for cpu0."


def test_a_function_of_the_application_on_another_processor() -> None:
    asked = call("s2", "a", "c", scratch_bytes=16)
    callback = Callback(direction="read", rows=1, layout=())
    asked = replace(asked, implementation=replace(asked.implementation, callback=callback))
    made = replace(DIAMOND, steps=(*DIAMOND.steps[:2], asked, DIAMOND.steps[3]))
    validate_order(listed(made, "0 2 !0>1 ?1<1 3", "?0<0 1 !1>0"), APART)
    assert rejected(listed(made, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0"), APART) == (
        "cpu1, entry 1: runs step 2 (s2), a function of the application, which cpu0 alone may call."
    )


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            ["0 ?1<1 !0>1 1 3", "?0<0 2 !1>0"],
            "p: waits forever: cpu0, entry 1, for signal 1 of cpu1; cpu1, entry 0, for signal 0 of cpu0.",
        ),
        (
            ["?2<2 !0>1 0 3", "?0<0 !1>2 1", "?1<1 !2>0 2"],
            "p: waits forever: cpu0, entry 0, for signal 2 of cpu2; cpu1, entry 0, for signal 0 of cpu0; "
            "cpu2, entry 0, for signal 1 of cpu1.",
        ),
        (
            ["!2>1 0 !0>2 ?1<2 1 ?3<1 3", "?2<0 ?4<2 !3>0", "?0<0 2 !1>0 ?5<1 !4>1"],
            "cpu2, entry 3: nothing sends signal 5.",
        ),
        (
            ["0 !0>1 1 ?1<1 3", "?0<0 ?2<2 2 !3>2 !1>0", "?3<1 !2>1"],
            "p: waits forever: cpu0, entry 3, for signal 1 of cpu1; cpu1, entry 1, for signal 2 of cpu2; "
            "cpu2, entry 0, for signal 3 of cpu1.",
        ),
    ],
)
def test_deadlocks(lists: list[str], message: str) -> None:
    assert rejected(listed(DIAMOND, *lists), APART) == message


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            ["?0<1 1 2 3", "0 !0>0"],
            "cpu1, entry 0: step 0 (s0) does not wait for the begin of the run, which cpu0 has to signal.",
        ),
        (
            ["0 ?0<1 1 2 3", "!0>0"],
            "cpu1, entry 0: signal 0 does not wait for the begin of the run, which cpu0 has to signal.",
        ),
        (
            ["0 1 2 !0>1", "?0<0 3"],
            "cpu1, entry 0: signal 0 may come after the end of the run; cpu0 does not wait for it.",
        ),
        (
            ["0 !0>1 1 ?1<1 2", "?0<0 !1>0 3"],
            "cpu1, entry 2: step 3 (s3) may come after the end of the run; cpu0 does not wait for it.",
        ),
        (
            ["0 !0>1 1 ?1<1 3", "?0<0 2 !1>0 !2>2", "?2<1"],
            "cpu1, entry 3: signal 2 may come after the end of the run; cpu0 does not wait for it.",
        ),
    ],
)
def test_entries_outside_of_their_run(lists: list[str], message: str) -> None:
    assert rejected(listed(DIAMOND, *lists), APART) == message


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (  # the begin is signalled before s0 makes a, so s2 may read it too early
            ["!0>1 0 1 ?1<1 3", "?0<0 2 !1>0"],
            "step 2 (s2) of cpu1 reads 16 B of a, in memory ram, while step 0 (s0) of cpu0 may still run, and writes "
            "them: no signal orders the two.",
        ),
        (  # awaited behind the step that needs it
            ["!2>1 0 !0>1 1 ?1<1 3", "?2<0 2 ?0<0 !1>0"],
            "step 2 (s2) of cpu1 reads 16 B of a, in memory ram, while step 0 (s0) of cpu0 may still run, and writes "
            "them: no signal orders the two.",
        ),
        (  # sent before the step whose value crosses
            ["0 !0>1 1 ?1<1 3 ?2<1", "?0<0 !1>0 2 !2>0"],
            "step 3 (s3) of cpu0 reads 16 B of c, in memory ram, while step 2 (s2) of cpu1 may still run, and writes "
            "them: no signal orders the two.",
        ),
        (  # the end waits for s2, s3 does not
            ["0 !0>1 1 3 ?1<1", "?0<0 2 !1>0"],
            "step 3 (s3) of cpu0 reads 16 B of c, in memory ram, while step 2 (s2) of cpu1 may still run, and writes "
            "them: no signal orders the two.",
        ),
    ],
)
def test_reads_before_their_writes(lists: list[str], message: str) -> None:
    assert rejected(listed(DIAMOND, *lists), APART) == message


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        (  # right on one processor, where a is dead behind s2 and c is made there; s1 still reads it
            {"c": 16},
            "step 2 (s2) of cpu1 writes 16 B of c, which shares them with a, in memory ram, while step 1 (s1) of cpu0 "
            "may still run, and reads them: no signal orders the two.",
        ),
        (
            {"b": 48},
            "step 2 (s2) of cpu1 writes 16 B of c, which shares them with b, in memory ram, while step 1 (s1) of cpu0 "
            "may still run, and writes them: no signal orders the two.",
        ),
        (
            {"s1_scratch": 96, "s2_scratch": 96},
            "step 2 (s2) of cpu1 writes 16 B of s2_scratch, which shares them with s1_scratch, in memory ram, while "
            "step 1 (s1) of cpu0 may still run, and writes them: no signal orders the two.",
        ),
        (
            {"s1_scratch": 48},
            "step 2 (s2) of cpu1 writes 16 B of c, which shares them with s1_scratch, in memory ram, while step 1 (s1) "
            "of cpu0 may still run, and writes them: no signal orders the two.",
        ),
    ],
)
def test_overlaps_of_what_may_be_alive_at_once(offsets: dict[str, int], message: str) -> None:
    assert rejected(listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0"), placed(DIAMOND, **offsets)) == message


CHAINS = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "d": 16, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b"),
    call("s2", "x", "c"),
    call("s3", "c", "d"),
    call("s4", "b d", "y"),
)
"""x -> a -> b and x -> c -> d: c may be put where a was, on one processor."""


def test_bytes_used_again_while_another_processor_reads_them() -> None:
    plan = placed(CHAINS, c=16)
    validate_order(listed(CHAINS, "0 1 2 3 4"), plan)
    validate_order(listed(CHAINS, "!0>1 0 1 !2>1 ?1<1 4", "?0<0 ?2<0 2 3 !1>0"), plan)
    assert rejected(listed(CHAINS, "!0>1 0 !2>1 1 ?1<1 4", "?0<0 ?2<0 2 3 !1>0"), plan) == (
        "step 2 (s2) of cpu1 writes 16 B of c, which shares them with a, in memory ram, while step 1 (s1) of cpu0 may "
        "still run, and reads them: no signal orders the two."
    )


def test_bytes_that_some_runs_use_in_the_other_order() -> None:
    """Overlap of one byte is enough, and which of both chains comes first in the program does not matter."""
    made = listed(CHAINS, "!0>1 0 1 ?1<1 4", "?0<0 2 3 !1>0")
    validate_order(made, placed(CHAINS))
    sizes = dict(CHAINS.tensors) | {"c": replace(CHAINS.tensors["c"], shape=(17,))}
    wide = replace(CHAINS, tensors=sizes)
    plan = placed(wide)
    near = replace(plan.placements["c"], offset=plan.placements["d"].offset - 16)
    plan = replace(plan, placements=plan.placements | {"c": near, "b": replace(near, name="b", num_bytes=16)})
    assert "of c, which shares them with b" in rejected(replace(made, program=wide), plan)


def test_an_output_that_takes_the_place_of_an_input_that_another_processor_reads() -> None:
    base = program({"x": 16, "a": 16, "b": 16, "c": 16, "y": 16}, call("s0", "x", "a"))
    steps = (*base.steps, call("s1", "a", "b"), in_place("s2", base.tensors["a"], base.tensors["c"]))
    made = replace(base, steps=(*steps, call("s3", "b c", "y")))
    plan = placed(made, c=16)
    validate_order(listed(made, "0 1 2 3"), plan)
    validate_order(listed(made, "0 1 !0>1 ?1<1 3", "?0<0 2 !1>0"), plan)
    assert rejected(listed(made, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0"), plan) == (
        "step 2 (s2) of cpu1 writes 16 B of c, which shares them with a, in memory ram, while step 1 (s1) of cpu0 may "
        "still run, and reads them: no signal orders the two."
    )
