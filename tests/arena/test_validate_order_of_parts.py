"""The validator of parallel programs: rows, channels, outputs of the caller, transfers and states on two processors."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import order_of
from codegen_c.program.program import Program
from codegen_c.program.share_steps import share_steps
from codegen_c.program.steps import Step, Transfer, Wait
from codegen_c.program.tensors import Part
from tests.arena.lists import DIAMOND, listed, placed, rejected
from tests.arena.programs import call, program
from tests.arena.states import window
from tests.support.parallel_programs import sliding


def rows(*steps: Step, taps: int = 3) -> Program:
    """x -> a -> y, images of four rows of 16 B; a in two halves of rows, then y in two."""
    base = program({"x": 64, "a": 64, "y": 64})
    tensors = {name: replace(tensor, shape=(1, 4, 1, 16)) for name, tensor in base.tensors.items()}
    x, a, y = tensors.values()
    made = (
        sliding("a0", x, a, taps, (0, 2)), sliding("a1", x, a, taps, (2, 4)),
        sliding("y0", a, y, taps, (0, 2)), sliding("y1", a, y, taps, (2, 4)),
    )  # fmt: skip
    return replace(base, tensors=tensors, steps=steps or made)


def test_rows_of_one_layer_on_two_processors() -> None:
    crossing = listed(rows(), "!0>1 0 !1>1 ?2<1 2 ?3<1", "?0<0 1 !2>0 ?1<0 3 !3>0")
    validate_order(crossing, placed(rows()))
    alone = listed(rows(taps=1), "!0>1 0 2 ?3<1", "?0<0 1 3 !3>0")
    validate_order(alone, placed(rows(taps=1)))


def test_rows_of_the_other_half_are_read_too_early() -> None:
    late = listed(rows(), "!0>1 0 !1>1 ?2<1 2 ?3<1", "?0<0 1 !2>0 3 ?1<0 !3>0")
    assert rejected(late, placed(rows())) == (
        "step 3 (y1) of cpu1 reads 16 B of a, in memory ram, while step 0 (a0) of cpu0 may still run, and writes them: "
        "no signal orders the two."
    )


def test_rows_that_two_processors_compute() -> None:
    x, a, y = rows().tensors.values()
    twice = rows(sliding("a0", x, a, 1, (0, 3)), sliding("a1", x, a, 1, (2, 4)), sliding("y0", a, y, 1))
    at_once = listed(twice, "!0>1 0 ?1<1 2", "?0<0 1 !1>0")
    assert rejected(at_once, placed(twice)) == (
        "step 1 (a1) of cpu1 writes 16 B of a, in memory ram, while step 0 (a0) of cpu0 may still run, and writes "
        "them: no signal orders the two."
    )
    assert (
        rejected(listed(twice, "0 !0>1 ?1<1 2", "?0<0 1 !1>0"), placed(twice))
        == "step 1 (a1): a was already computed before."
    )


def test_rows_that_nothing_computes() -> None:
    x, a, y = rows().tensors.values()
    gap = rows(sliding("a0", x, a, 1, (0, 2)), sliding("a1", x, a, 1, (3, 4)), sliding("y0", a, y, 1))
    made = listed(gap, "!0>1 0 ?1<1 2", "?0<0 1 !1>0")
    assert rejected(made, placed(gap)) == "step 2 (y0): 16 B of a are not computed before it."


def test_rows_that_are_gone_when_the_others_are_made() -> None:
    """t lies where the first half of a does; the second half, made later, is no excuse."""
    made = rows()
    tensors = dict(made.tensors) | {name: replace(made.tensors["x"], name=name, shape=(32,)) for name in "tu"}
    first, second, *last = made.steps
    between = (call("t0", "x", "t"), call("t1", "t", "u"))
    gone = replace(made, tensors=tensors, steps=(first, *between, second, *last), outputs=("y", "u"))
    validate_order(listed(gone, "0 1 2 3 4 5"), placed(gone))
    over = placed(gone, t=64)
    assert rejected(listed(gone, "0 1 2 3 4 5"), over) == "step 4 (y0): 32 B of a hold t by then."
    behind = placed(replace(gone, steps=(*between, first, second, *last)), t=64)
    validate_order(listed(replace(gone, steps=(*between, first, second, *last)), "0 1 2 3 4 5"), behind)


def channels(second: int) -> Program:
    """a and b are channels of j, of four pixels of 20; b from `second` on."""
    base = program(
        {"x": 16, "a": 1, "b": 1, "j": 1, "y": 16}, call("s0", "x", "a"), call("s1", "x", "b"), call("s2", "j", "y")
    )
    shapes = {
        "j": {"shape": (1, 4, 1, 20)},
        "a": {"shape": (1, 4, 1, 12), "part": Part(tensor="j", first=0, pitch=20)},
        "b": {"shape": (1, 4, 1, 8), "part": Part(tensor="j", first=second, pitch=20)},
    }
    tensors = dict(base.tensors) | {name: replace(base.tensors[name], **shape) for name, shape in shapes.items()}
    return replace(base, tensors=tensors)


def test_channels_of_one_tensor_on_two_processors() -> None:
    validate_order(listed(channels(12), "!0>1 0 ?1<1 2", "?0<0 1 !1>0"), placed(channels(12)))
    made = listed(channels(12), "!0>1 0 2 ?1<1", "?0<0 1 !1>0")
    assert rejected(made, placed(channels(12))) == (
        "step 2 (s2) of cpu0 reads 32 B of j, which shares them with b, in memory ram, while step 1 (s1) of cpu1 may "
        "still run, and writes them: no signal orders the two."
    )
    meeting = listed(channels(11), "!0>1 0 ?1<1 2", "?0<0 1 !1>0")
    assert rejected(meeting, placed(channels(11))) == (
        "step 1 (s1) of cpu1 writes 4 B of b, which shares them with a, in memory ram, while step 0 (s0) of cpu0 may "
        "still run, and writes them: no signal orders the two."
    )


def test_an_output_that_the_caller_holds() -> None:
    base = program({"x": 16, "y": 16, "z": 16}, call("s0", "x", "y"), call("s1", "y", "z"), outputs="y z")
    plan = placed(base, x=-1, y=-1, z=-1)
    validate_order(listed(base, "0 !0>1 ?1<1", "?0<0 1 !1>0"), plan)
    assert rejected(listed(base, "!0>1 0 ?1<1", "?0<0 1 !1>0"), plan) == (
        "step 1 (s1) of cpu1 reads 16 B of y, in tensor y, while step 0 (s0) of cpu0 may still run, and writes them: "
        "no signal orders the two."
    )


SPILL = Transfer(name="spill", source="a", target="b", number=0)
SPILLED = Wait(name="spilled", transfers=(SPILL,))
FLIGHT = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "y": 16}, call("s0", "x", "a"), SPILL, SPILLED, call("s3", "x", "c"),
    call("s4", "b c", "y"),
)  # fmt: skip


def test_a_target_that_another_processor_reads_while_it_is_filled() -> None:
    plan = placed(FLIGHT)
    validate_order(listed(FLIGHT, "0 1 3 2 !0>1 ?1<1", "?0<0 4 !1>0"), plan)
    assert rejected(listed(FLIGHT, "0 1 3 !0>1 2 ?1<1", "?0<0 4 !1>0"), plan) == (
        "step 4 (s4) of cpu1 reads 16 B of b, in memory ram, while step 2 (spilled) of cpu0 may still run, and writes "
        "them: no signal orders the two."
    )


def test_a_source_that_another_processor_writes_while_it_is_copied() -> None:
    """c lies where a did: it may be made when the transfer is over, not when it has begun."""
    plan = placed(FLIGHT, c=16)
    validate_order(listed(FLIGHT, "0 1 2 !0>1 ?1<1 4", "?0<0 3 !1>0"), plan)
    assert rejected(listed(FLIGHT, "0 1 !0>1 2 ?1<1 4", "?0<0 3 !1>0"), plan) == (
        "step 3 (s3) of cpu1 writes 16 B of c, which shares them with a, in memory ram, while step 2 (spilled) of cpu0 "
        "may still run, and reads them: no signal orders the two."
    )


def test_transfers_that_two_processors_start_or_wait_for() -> None:
    other = Transfer(name="again", source="x", target="c", number=1)
    wait = Wait(name="w", transfers=(other,))
    made = replace(FLIGHT, steps=(*FLIGHT.steps[:3], other, wait, FLIGHT.steps[4]))
    assert rejected(listed(made, "0 1 2 !0>1 ?1<1 5", "?0<0 3 4 !1>0"), placed(made)) == (
        "cpu1, entry 1: again goes on while steps run, and cpu0 starts spill; all asynchronous "
        "transfers need one processor."
    )
    apart = listed(FLIGHT, "0 1 !0>1 ?1<1 3 4", "?0<0 2 !1>0")
    assert rejected(apart, placed(FLIGHT)) == (
        "cpu0, entry 1: spill goes on while steps run, and cpu1 waits for it; all asynchronous "
        "transfers need one processor."
    )


def test_a_state_that_another_processor_still_reads_when_it_moves_up() -> None:
    made = window("shift")
    lists = {"cpu0": ["push", "move"], "cpu1": ["read"]}
    parallel = share_steps(made, lists)
    assert parallel.lists == listed(made, "0 !0>1 ?1<1 2", "?0<0 1 !1>0").lists
    planned, plan = plan_memory(parallel.program, activations="ram", order=order_of(parallel))
    validate_order(replace(parallel, program=planned), plan)
    assert rejected(listed(planned, "0 !0>1 2 ?1<1", "?0<0 1 !1>0"), plan) == (
        "step 2 (move) of cpu0 writes 12 B of old, which shares them with s, in memory state, while step 1 (read) of "
        "cpu1 may still run, and reads them: no signal orders the two."
    )


def test_a_plan_that_is_wrong_on_one_processor() -> None:
    made = listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    plan = placed(DIAMOND)
    missing = {name: place for name, place in plan.placements.items() if name != "b"}
    assert rejected(made, replace(plan, placements=missing)) == "step 1 (s1): b has no offset."
