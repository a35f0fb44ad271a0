"""Lists of several processors: signals where values cross or bytes are used again, none that others imply."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from codegen_c.program.accesses import Access, accesses
from codegen_c.program.parallel import Await, Notify, ParallelProgram, order_of
from codegen_c.program.program import Program
from codegen_c.program.share_steps import lists_of, share_steps
from codegen_c.program.steps import AffineRow, Loop, RowRange, Transfer, Wait
from codegen_c.program.tensors import Constant, Part
from tests.arena.lists import DIAMOND
from tests.arena.programs import call, program
from tests.support.parallel_programs import random_lists, random_program, sliding
from tvm_ext.core.errors import PlanRejected


def words(parallel: ParallelProgram) -> list[str]:
    """Lists in words: `s3` runs it, `!5>1` sends signal 5 to list 1, `?5<0` awaits it from list 0."""
    return [
        " ".join(
            f"!{e.signal}>{e.target}" if isinstance(e, Notify)
            else f"?{e.signal}<{e.source}" if isinstance(e, Await)
            else parallel.program.steps[e.index].name
            for e in steps.entries
        )
        for steps in parallel.lists
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (["s0 s1 s2 s3"], ["s0 s1 s2 s3"]),
        (["s0 s1 s2 s3", ""], ["s0 s1 s2 s3", ""]),
        (["s0 s1 s3", "s2"], ["s0 !0>1 s1 ?1<1 s3", "?0<0 s2 !1>0"]),  # the value is the begin's signal, too
        (["s2", "s0 s1 s3"], ["!0>1 ?1<1 s2 !2>1 ?3<1", "?0<0 s0 !1>0 s1 ?2<0 s3 !3>0"]),
        (["", "s0 s1 s2 s3"], ["!0>1 ?1<1", "?0<0 s0 s1 s2 s3 !1>0"]),
        (["s0", "s1 s3", "s2"], ["s0 !0>1 !1>2 ?3<1", "?0<0 s1 ?2<2 s3 !3>0", "?1<0 s2 !2>1"]),
        (["s0 s2 s1 s3"], ["s0 s2 s1 s3"]),
    ],
)
def test_signals_of_a_diamond(lists: list[str], expected: list[str]) -> None:
    assert words(share_steps(DIAMOND, dict(zip(("c0", "c1", "c2"), map(str.split, lists), strict=False)))) == expected


def test_an_assignment_keeps_the_order_of_the_program() -> None:
    lists = lists_of(DIAMOND, ("c0", "c1"), {"s2": "c1", "s3": "c0"})
    assert lists == {"c0": ["s0", "s1", "s3"], "c1": ["s2"]}


def test_steps_stand_in_an_order_that_all_lists_keep() -> None:
    made = share_steps(DIAMOND, {"c0": ["s0", "s3"], "c1": ["s2", "s1"]})
    assert [step.name for step in made.program.steps] == ["s0", "s2", "s1", "s3"]
    assert words(made) == ["s0 !0>1 ?1<1 s3", "?0<0 s2 s1 !1>0"]
    assert made.num_signals == 2 and made.channels() == {(0, 1): (0,), (1, 0): (1,)}


def test_bytes_used_again_ask_for_a_signal() -> None:
    """b takes the place of x, which s2 reads on the other processor; scratch of both steps is one."""
    places = {"x": ("ram", 0), "a": ("ram", 16), "b": ("ram", 0), "c": ("ram", 32), "y": ("ram", 16)}
    lists = {"c0": ["s0", "s1", "s3"], "c1": ["s2"]}
    assert words(share_steps(DIAMOND, lists, places)) == ["s0 !0>1 s1 ?1<1 s3", "?0<0 s2 !1>0"]
    over = {**places, "c": ("ram", 0), "b": ("ram", 32)}
    assert words(share_steps(DIAMOND, lists, {**over, "x": ("ram", 48)})) == ["s0 !0>1 s1 ?1<1 s3", "?0<0 s2 !1>0"]
    shared = {**places, "s1_scratch": ("ram", 48), "s2_scratch": ("ram", 63)}
    assert words(share_steps(DIAMOND, lists, shared)) == ["s0 s1 !0>1 ?1<1 s3", "?0<0 s2 !1>0"]
    apart = {**places, "s1_scratch": ("ram", 48), "s2_scratch": ("ram", 64)}
    assert words(share_steps(DIAMOND, lists, apart)) == ["s0 !0>1 s1 ?1<1 s3", "?0<0 s2 !1>0"]
    elsewhere = {**places, "s1_scratch": ("ram", 48), "s2_scratch": ("fast", 48)}
    assert words(share_steps(DIAMOND, lists, elsewhere)) == ["s0 !0>1 s1 ?1<1 s3", "?0<0 s2 !1>0"]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"c0": ["s0", "s1", "s3"]}, "p: steps that are not in exactly one per-core schedule: s2."),
        (
            {"c0": ["s0", "s1", "s2", "s3"], "c1": ["s1"]},
            "p: steps that are not in exactly one per-core schedule: s1.",
        ),
        (
            {"c0": ["s0", "s1", "s2", "s3", "s9"]},
            "p: steps that are not in exactly one per-core schedule: s9.",
        ),
        (
            {"c0": ["s3", "s0"], "c1": ["s1", "s2"]},
            "p: in these schedules s0, s1, s2, s3 wait for each other. Keep the program's order.",
        ),
    ],
)
def test_lists_that_cannot_be(lists: dict[str, list[str]], message: str) -> None:
    with pytest.raises(PlanRejected) as raised:
        share_steps(DIAMOND, lists)
    assert str(raised.value) == message


def test_no_lists_at_all() -> None:
    with pytest.raises(PlanRejected, match="p: steps that are not in exactly one per-core schedule: all"):
        share_steps(replace(DIAMOND, steps=()), {})


SPILL = Transfer(name="s1", source="a", target="b", number=0)


def test_transfers_that_go_on_are_one_processors() -> None:
    steps = (call("s0", "x", "a"), SPILL, Wait(name="s2", transfers=(SPILL,)), call("s3", "b", "y"))
    made = replace(DIAMOND, steps=steps)
    assert words(share_steps(made, {"c0": ["s0", "s1", "s2"], "c1": ["s3"]})) == ["s0 s1 s2 !0>1 ?1<1", "?0<0 s3 !1>0"]
    with pytest.raises(PlanRejected) as raised:
        share_steps(made, {"c0": ["s0", "s1"], "c1": ["s2", "s3"]})
    assert str(raised.value) == (
        "p: s1 and s2 start or wait for transfers on different processors; assign all of them to one."
    )
    plain = replace(made, steps=(steps[0], replace(SPILL, number=None), call("s2", "a", "c"), steps[3]))
    assert words(share_steps(plain, {"c0": ["s0", "s1"], "c1": ["s2", "s3"]}))[1] == "?0<0 s2 ?1<0 s3 !2>0"


def images(*, taps: int) -> tuple[Program, list[str]]:
    base = program({"x": 64, "a": 64, "y": 64})
    tensors = {name: replace(tensor, shape=(1, 4, 1, 16)) for name, tensor in base.tensors.items()}
    x, a, y = tensors.values()
    steps = [
        sliding(f"{n}{i}", s, t, taps, (2 * i, 2 * i + 2)) for n, s, t in (("a", x, a), ("y", a, y)) for i in (0, 1)
    ]
    made = share_steps(replace(base, tensors=tensors, steps=tuple(steps)), {"c0": ["a0", "y0"], "c1": ["a1", "y1"]})
    return made.program, words(made)


def test_rows_cross_where_a_window_reaches_over() -> None:
    assert images(taps=1)[1] == ["!0>1 a0 y0 ?1<1", "?0<0 a1 y1 !1>0"]
    assert images(taps=3)[1] == ["!0>1 a0 !1>1 ?2<1 y0 ?3<1", "?0<0 a1 !2>0 ?1<0 y1 !3>0"]


def test_bytes_of_rows() -> None:
    made, _ = images(taps=3)
    first = made.steps[0]
    assert [(a.space, a.low, a.high, a.writes) for a in accesses(made, first)] == [
        (("", "x"), 0, 48, False), (("", "a"), 0, 32, True),
    ]  # fmt: skip
    rows = RowRange(begin=AffineRow(base=3, step=-1), end=AffineRow(base=4, step=-1))
    down = Loop(name="down", count=2, body=(replace(first, rows=rows),))
    assert [(a.low, a.high) for a in accesses(made, down)] == [(16, 64), (32, 64)]
    part = replace(made.tensors["a"], part=Part(tensor="j", first=4, pitch=24))
    spread = replace(made, tensors={**made.tensors, "a": part, "j": replace(part, name="j", part=None)})
    written = accesses(spread, first)[1]
    assert (written.space, written.low, written.high, written.run, written.pitch) == (("", "j"), 4, 44, 16, 24)
    batch = replace(made, tensors={**made.tensors, "a": replace(made.tensors["a"], shape=(2, 4, 1, 8))})
    assert [(a.low, a.high) for a in accesses(batch, first)] == [(0, 48), (0, 64)]


def test_a_constant_that_is_fetched_is_read_where_it_was_copied_to() -> None:
    fetch = Transfer(name="fetch", source="w", target="b", source_is_constant=True)
    reading = replace(call("one", "x", "y"), constants=("w",), prefetched=(("w", "b"),))
    weights = Constant(name="w", data=np.zeros(16, np.uint8), memory="flash")
    made = replace(DIAMOND, steps=(fetch, reading), constants={"w": weights})
    assert words(share_steps(made, {"c0": ["one"], "c1": ["fetch"]})) == ["!0>1 ?1<1 one", "?0<0 fetch !1>0"]


def test_strided_bytes_meet_as_their_bytes_do() -> None:
    rng = random.Random(1)

    def drawn() -> tuple[Access, set[int]]:
        low, run, count = rng.randrange(40), rng.randint(1, 6), rng.randint(1, 5)
        pitch = rng.choice([0, 7])
        high = low + (run if not pitch else (count - 1) * pitch + run)
        made = Access(
            space=("", "t"), low=low, high=high, writes=rng.random() < 0.5, run=run if pitch else 0, pitch=pitch
        )
        return made, {low + k * pitch + i for k in range(count if pitch else 1) for i in range(run)}

    seen = set[bool]()
    for _ in range(4000):
        (one, ones), (other, others) = drawn(), drawn()
        assert one.meets(other) == bool(ones & others) == other.meets(one)
        assert one.conflicts(other) == (one.meets(other) and (one.writes or other.writes))
        seen.add(one.meets(other))
    assert seen == {True, False}
    other = Access(space=("", "t"), low=1, high=100, writes=True, run=1, pitch=9)
    assert replace(other, low=0, high=90, run=1, pitch=10).meets(other)  # taken to, where pitches differ
    assert not replace(other, space=("", "u")).meets(other)


@pytest.mark.parametrize("seed", range(12))
def test_signals_order_what_has_to_be_and_none_is_implied(seed: int) -> None:
    """By reachability in the graph of steps, written down anew here."""
    made = share_steps(given := random_program(seed, 12), random_lists(given, seed, 3))
    steps = made.program.steps
    order, nodes = order_of(made), len(steps)
    home = {name: number for number, text in enumerate(words(made)) for name in text.split()}
    for j in range(nodes):
        for i in range(j):
            touched = [[(a, b) for a in accesses(made.program, steps[i]) for b in accesses(made.program, steps[j])]]
            if any(a.conflicts(b) for pairs in touched for a, b in pairs) or home[steps[i].name] == home[steps[j].name]:
                assert order.before(i, j)
            assert not order.before(j, i)


def test_the_same_lists_every_time() -> None:
    given = random_program(3, 20)
    lists = random_lists(given, 3, 3)
    again = random_program(3, 20)
    assert share_steps(given, lists).lists == share_steps(again, lists).lists


def test_words_of_the_counters_are_sent_and_taken_in_one_order() -> None:
    for seed in range(20):
        given = random_program(seed, 15)
        made = share_steps(given, random_lists(given, seed, 3))
        for (source, target), sent in made.channels().items():
            taken = [e.signal for e in made.lists[target].entries if isinstance(e, Await) and e.source == source]
            assert tuple(taken) == sent
