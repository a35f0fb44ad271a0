"""The validator of parallel programs refuses every planted race, deadlock and overlap, and says what and where."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.memory_plan import Arena, MemoryPlan, Placement
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate_order import validate_order
from codegen_c.program.parallel import Await, Entry, Notify, ParallelProgram, RunStep, StepList
from codegen_c.program.program import Program, Step, Transfer, Wait, scratch_bytes
from codegen_c.program.share_steps import share_steps
from codegen_c.program.step_order import order_of
from codegen_c.program.tensors import Part
from tests.arena.programs import call, program
from tests.arena.test_validate_states import window
from tests.support.parallel_programs import in_place, sliding
from tvm_ext.core.errors import PlanRejected

NAMES = ("cpu0", "cpu1", "cpu2")


def listed(made: Program, *texts: str) -> ParallelProgram:
    """Lists in words: `3` runs step 3, `!5>1` sends signal 5 to list 1, `?5<0` awaits it from list 0."""
    return ParallelProgram(
        program=made,
        lists=tuple(
            StepList(processor=name, entries=tuple(map(entry, text.split())))
            for name, text in zip(NAMES, texts, strict=False)
        ),
    )


def entry(word: str) -> Entry:
    if word[0] == "!":
        signal, target = word[1:].split(">")
        return Notify(signal=int(signal), target=int(target))
    if word[0] == "?":
        signal, source = word[1:].split("<")
        return Await(signal=int(signal), source=int(source))
    return RunStep(index=int(word))


def placed(made: Program, **offsets: int) -> MemoryPlan:
    """Everything beside everything, but for what has an offset here. A caller holds what has a negative one."""
    sizes = {name: tensor.num_bytes for name, tensor in made.tensors.items() if not tensor.part}
    sizes |= {f"{step.name}_scratch": scratch_bytes(step) for step in made.steps if scratch_bytes(step)}
    places: dict[str, Placement] = {}
    end = 0
    for name, size in sizes.items():
        offset = offsets.get(name, end)
        end += -(-size // 16) * 16
        if offset >= 0:
            places[name] = Placement(
                name=name, memory="ram", offset=offset, num_bytes=size, begin=0, end=1,
                is_scratch=name.endswith("_scratch"),
            )  # fmt: skip
    for name, tensor in made.tensors.items():
        if tensor.part and tensor.part.tensor in places:
            whole = places[tensor.part.tensor]
            places[name] = replace(
                whole, name=name, offset=whole.offset + tensor.part.first, num_bytes=tensor.num_bytes,
                part_of=whole.name,
            )  # fmt: skip
    return MemoryPlan(
        placements=places, arenas=(Arena(memory="ram", num_bytes=end + 64, lower_bound_bytes=0, peak_step=0),)
    )


def rejected(parallel: ParallelProgram, plan: MemoryPlan) -> str:
    with pytest.raises(PlanRejected) as raised:
        validate_order(parallel, plan)
    return str(raised.value)


DIAMOND = program(
    {"x": 16, "a": 16, "b": 16, "c": 16, "y": 16},
    call("s0", "x", "a"),
    call("s1", "a", "b", scratch_bytes=16),
    call("s2", "a", "c", scratch_bytes=16),
    call("s3", "b c", "y"),
)
"""s1 and s2 may run at once."""

APART = placed(DIAMOND)


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
        ([], "p: no processor runs it."),
        (["0 1 2"], "step 3 (s3) is in no list."),
        (["0 1 2 3 4"], "cpu0, entry 4: there is no step 4."),
        (["-1 0 1 2 3"], "cpu0, entry 0: there is no step -1."),
        (["0 1 2 1 3"], "cpu0, entry 3: runs step 1 (s1), as cpu0, entry 1 does."),
        (["0 !0>1 1 2 ?1<1 3", "?0<0 2 !1>0"], "cpu1, entry 1: runs step 2 (s2), as cpu0, entry 3 does."),
        (["0 !0>1 !0>1 1 ?1<1 3", "?0<0 2 !1>0"], "cpu0, entry 2: sends signal 0, as cpu0, entry 1 does."),
        (["0 !0>1 1 ?1<1 3", "?0<0 2 ?0<0 !1>0"], "cpu1, entry 2: awaits signal 0, as cpu1, entry 0 does."),
        (
            ["0 !0>1 1 ?1<1 3", "?0<0 2 !1>0 !2>0"],
            "cpu1, entry 3: nothing awaits signal 2; the next run would find it.",
        ),
        (["0 !0>1 1 ?1<1 ?2<1 3", "?0<0 2 !1>0"], "cpu0, entry 4: nothing sends signal 2."),
        (["0 !0>0 ?0<0 1 2 3"], "cpu0, entry 1: signal 0 needs another list, and names list 0."),
        (["0 !0>3 1 ?1<1 3", "?0<0 2 !1>0"], "cpu0, entry 1: signal 0 needs another list, and names list 3."),
        (["0 !0>1 1 ?1<1 3", "?0<-1 2 !1>0"], "cpu1, entry 0: signal 0 needs another list, and names list -1."),
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
            "a channel counts signals, and takes the one for the other.",
        ),
    ],
)
def test_entries_that_are_missing_or_there_twice(lists: list[str], message: str) -> None:
    assert rejected(listed(DIAMOND, *lists), APART) == message


def test_two_lists_of_one_processor() -> None:
    made = listed(DIAMOND, "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    twice = replace(made, lists=(made.lists[0], replace(made.lists[1], processor="cpu0")))
    assert rejected(twice, APART) == "p: two lists are of one processor; its lists are ['cpu0', 'cpu0']."


def test_a_kernel_for_another_processor() -> None:
    steps = (*DIAMOND.steps[:2], replace(call("s2", "a", "c", scratch_bytes=16), processor="cpu0"), DIAMOND.steps[3])
    made = listed(replace(DIAMOND, steps=steps), "0 !0>1 1 ?1<1 3", "?0<0 2 !1>0")
    assert rejected(made, APART) == "cpu1, entry 1: runs step 2 (s2), a kernel for cpu0."


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (
            ["0 ?1<1 !0>1 1 3", "?0<0 2 !1>0"],
            "p: waits for ever: cpu0, entry 1, for signal 1 of cpu1; cpu1, entry 0, for signal 0 of cpu0.",
        ),
        (
            ["?2<2 !0>1 0 3", "?0<0 !1>2 1", "?1<1 !2>0 2"],
            "p: waits for ever: cpu0, entry 0, for signal 2 of cpu2; cpu1, entry 0, for signal 0 of cpu0; "
            "cpu2, entry 0, for signal 1 of cpu1.",
        ),
        (
            ["!2>1 0 !0>2 ?1<2 1 ?3<1 3", "?2<0 ?4<2 !3>0", "?0<0 2 !1>0 ?5<1 !4>1"],
            "cpu2, entry 3: nothing sends signal 5.",
        ),
        (
            ["0 !0>1 1 ?1<1 3", "?0<0 ?2<2 2 !3>2 !1>0", "?3<1 !2>1"],
            "p: waits for ever: cpu0, entry 3, for signal 1 of cpu1; cpu1, entry 1, for signal 2 of cpu2; "
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
    assert rejected(listed(twice, "0 !0>1 ?1<1 2", "?0<0 1 !1>0"), placed(twice)) == "step 1 (a1): a was made before."


def test_rows_that_nothing_computes() -> None:
    x, a, y = rows().tensors.values()
    gap = rows(sliding("a0", x, a, 1, (0, 2)), sliding("a1", x, a, 1, (3, 4)), sliding("y0", a, y, 1))
    made = listed(gap, "!0>1 0 ?1<1 2", "?0<0 1 !1>0")
    assert rejected(made, placed(gap)) == "step 2 (y0): 16 B of a are not made before it."


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
        "cpu1, entry 1: again goes on while steps run, and cpu0 starts spill; all such transfers need one list."
    )
    apart = listed(FLIGHT, "0 1 !0>1 ?1<1 3 4", "?0<0 2 !1>0")
    assert rejected(apart, placed(FLIGHT)) == (
        "cpu0, entry 1: spill goes on while steps run, and cpu1 waits for it; all such transfers need one list."
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
    assert rejected(made, replace(plan, placements=missing)) == "step 1 (s1): b has no place."
