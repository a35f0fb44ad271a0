"""Lower bounds, and what is proved, counted by hand: rows that overlap, sequences of rows, parts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.bound import live_bytes, shared_bytes
from codegen_c.arena.lifetimes import extents, lifetimes
from codegen_c.arena.memory_plan import runs_backward
from codegen_c.arena.overlap import Overlaps, distances, overlaps, row_bytes, sequence_pairs, too_near
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import Spatial
from codegen_c.kernels.shared.window import accumulated
from codegen_c.program.program import Program
from codegen_c.program.sequences import in_series
from codegen_c.program.steps import KernelCall, RowSteps
from codegen_c.program.tensors import Part, Ring, Tensor
from tests.arena.programs import call, program
from tvm_ext.core.row_access import RowAccess

ROWS, ROW_BYTES = 6, 16
WHOLE = ROWS * ROW_BYTES


def access(kernel: int, rows: int = ROWS) -> RowAccess:
    return RowAccess.sliding(rows, rows, taps=kernel, padding=kernel // 2)


def in_rows(step: KernelCall, kernel: int = 1, *, behind: int = 0, in_place: tuple[int, ...] = ()) -> KernelCall:
    """Output row h reads the rows about h, of every input alike."""
    spatial = Spatial(output_rows=ROWS, inputs=(access(kernel),) * len(step.inputs), rows_still_read=behind)
    return replace(step, implementation=replace(step.implementation, spatial=spatial, in_place=in_place))


def images(made: Program) -> Program:
    """The tensors as images of six rows."""
    tensors = {name: replace(t, shape=(1, ROWS, 1, t.shape[0] // ROWS)) for name, t in made.tensors.items()}
    return replace(made, tensors=tensors)


def one(kernel: int, x: int = WHOLE, y: int = WHOLE, **more: object) -> Program:
    return images(program({"x": x, "y": y}, in_rows(call("s", "x", "y"), kernel, **more)))  # type: ignore[arg-type]


def tensor(made: Program, name: str) -> Tensor:
    return made.tensors[name]


@pytest.mark.parametrize(
    ("kernel", "behind", "up", "down"),
    # a row needs the row before it too, and with rows read again later those of the rows before
    [(1, 0, 16, 16), (3, 0, 32, 32), (5, 0, 48, 48), (1, 2, 48, 96), (3, 1, 48, 96)],
)
def test_distances_of_rows_of_one_size(kernel: int, behind: int, up: int, down: int) -> None:
    made = one(kernel, behind=behind)
    (step,) = made.kernel_calls()
    assert distances(step.implementation, 0, tensor(made, "x"), tensor(made, "y")) == (up, down)
    assert shared_bytes(step.implementation, tensor(made, "y"), [(0, tensor(made, "x"))]) == WHOLE - up
    _, plan = plan_memory(made, activations="ram")
    (arena,) = plan.arenas
    assert arena.num_bytes == arena.lower_bound_bytes == WHOLE + up
    assert arena.proved and arena.peak_step == 0


@pytest.mark.parametrize(("x", "y", "up", "down"), [(96, 192, 112, 16), (192, 96, 16, 112)])
def test_distances_where_rows_grow_or_shrink(x: int, y: int, up: int, down: int) -> None:
    """Growing ones are written from the last, shrinking ones from the first."""
    made = one(1, x, y)
    (step,) = made.kernel_calls()
    assert distances(step.implementation, 0, tensor(made, "x"), tensor(made, "y")) == (up, down)
    planned, plan = plan_memory(made, activations="ram")
    validate(planned, plan)
    assert plan.arena_bytes == plan.lower_bound_bytes == 208 and plan.arenas[0].proved


def test_output_rows_of_padding_alone_ahead_of_the_input() -> None:
    """The output begins with its input, and its last row is written first: only then is no row overwritten unread."""
    made = program({"x": WHOLE, "y": WHOLE + 2 * ROW_BYTES}, call("s", "x", "y"))
    tensors = {name: replace(t, shape=(1, t.num_bytes // ROW_BYTES, 1, ROW_BYTES)) for name, t in made.tensors.items()}
    (step,) = made.kernel_calls()
    reads = RowAccess.sliding(ROWS, ROWS + 2, taps=1, padding=2)
    spatial = Spatial(output_rows=ROWS + 2, inputs=(reads,))
    step = replace(step, implementation=replace(step.implementation, spatial=spatial))
    made = replace(made, tensors=tensors, steps=(step,))
    assert distances(step.implementation, 0, tensor(made, "x"), tensor(made, "y")) == (48, 0)
    planned, plan = plan_memory(made, activations="ram")
    validate(planned, plan)
    assert plan.arena_bytes == plan.lower_bound_bytes == WHOLE + 2 * ROW_BYTES
    assert runs_backward(planned.steps[0])


def test_in_place_needs_no_distance() -> None:
    made = one(3, in_place=(0,))
    (step,) = made.kernel_calls()
    assert distances(step.implementation, 0, tensor(made, "x"), tensor(made, "y")) == (0, WHOLE)
    grown = one(3, WHOLE, 2 * WHOLE, in_place=(0,))
    (step,) = grown.kernel_calls()
    assert distances(step.implementation, 0, tensor(grown, "x"), tensor(grown, "y")) == (128, 32)
    _, plan = plan_memory(made, activations="ram")
    assert plan.arena_bytes == plan.lower_bound_bytes == WHOLE and plan.arenas[0].proved


def test_no_distance_without_equal_rows_of_one_image() -> None:
    made = one(1)
    (step,) = made.kernel_calls()
    x, y, spatial = tensor(made, "x"), tensor(made, "y"), step.implementation.spatial
    assert spatial and row_bytes(spatial, 0, x, y) == (16, 16) and row_bytes(spatial, 1, x, y) is None
    assert row_bytes(spatial, 0, replace(x, shape=(1, 97)), y) is None
    assert row_bytes(spatial, 0, x, replace(y, shape=(1, 97))) is None
    assert row_bytes(spatial, 0, x, replace(y, shape=(2, 48))) is None
    assert row_bytes(replace(spatial, accumulates=True), 0, x, y) is None
    assert row_bytes(replace(spatial, inputs=(RowAccess.sliding(0, ROWS, taps=1),)), 0, x, y) is None
    assert distances(step.implementation, 0, x, replace(y, shape=(2, 48))) == (96, 96)
    single = replace(
        step.implementation, spatial=replace(spatial, output_rows=1, inputs=(RowAccess.sliding(ROWS, 1, taps=1),))
    )
    assert distances(single, 0, x, y) == (96, 96), "of one row there is no descending"


def test_which_steps_allow_an_overlap() -> None:
    """Not an output, nor what is read twice or later, in another memory, or whose parts are used later."""
    made = one(1)
    up_and_down = [Overlaps(ascending={("y", "x"): 16}, descending={("x", "y"): 16})]
    assert overlaps(made) == up_and_down
    assert overlaps(replace(made, outputs=("x", "y"))) == []
    later = in_rows(call("t", "x", "z"))
    more = replace(made, tensors=made.tensors | {"z": replace(made.tensors["y"], name="z")})
    assert [set(found.ascending) for found in overlaps(replace(more, steps=(*made.steps, later)))] == [{("z", "x")}]
    assert overlaps(replace(made, steps=(in_rows(call("s", "x x", "y")),))) == []
    assert overlaps(replace(made, tensors=made.tensors | {"y": replace(made.tensors["y"], memory="dtcm")})) == []
    part = replace(made.tensors["y"], name="p", part=Part(tensor="x", first=0))
    parted = replace(more, tensors=more.tensors | {"p": part})
    assert overlaps(replace(made, tensors=made.tensors | {"p": part})) == up_and_down
    read_later = overlaps(replace(parted, steps=(*made.steps, in_rows(call("t", "p", "z")))))
    assert [set(found.ascending) for found in read_later] == [{("z", "x")}], "not y, as a part of x is read later"
    (kept,) = up_and_down
    assert kept.without(["x"]) == kept.without(["y"]) == Overlaps(ascending={}, descending={})
    assert kept.without(["q"]) == kept
    assert kept.without((), [("y", "x")]) == replace(kept, ascending={})


def test_parts_overlap_by_the_offsets_of_their_wholes() -> None:
    """x is rows 0 to 5 of a whole, behind 16 bytes: y may begin where the whole begins."""
    made = one(1)
    whole = replace(made.tensors["x"], name="whole", shape=(1, 128))
    inner = replace(made.tensors["x"], part=Part(tensor="whole", first=16))
    parted = replace(made, tensors={"whole": whole, "x": inner, "y": made.tensors["y"]}, inputs=("whole",))
    (found,) = overlaps(parted)
    assert found == Overlaps(ascending={("y", "whole"): 0}, descending={("whole", "y"): 32})
    pitched = replace(inner, part=Part(tensor="whole", first=16, pitch=24))
    assert overlaps(replace(parted, tensors=parted.tensors | {"x": pitched})) == []
    returning = one(3, behind=2, in_place=(0,))
    returning = replace(returning, tensors=parted.tensors)
    near = {at: too_near(returning, {"whole": at, "y": 16}) for at in (0, 16)}
    assert near == {0: set(), 16: {("y", "whole")}}, "y has to begin where x begins"


def test_two_inputs_that_die() -> None:
    """One of them may lie in the output's place; of sums in place one is as large as it."""
    made = images(program({"x": WHOLE, "u": WHOLE, "y": WHOLE}, in_rows(call("s", "x u", "y")), inputs="x u"))
    _, plan = plan_memory(made, activations="ram")
    assert plan.lower_bound_bytes == plan.arena_bytes == 2 * WHOLE + ROW_BYTES and plan.arenas[0].proved
    (step,) = made.kernel_calls()
    dying = [(0, tensor(made, "x")), (1, tensor(made, "u"))]
    assert shared_bytes(step.implementation, tensor(made, "y"), dying) == WHOLE - ROW_BYTES
    assert shared_bytes(step.implementation, tensor(made, "y"), []) == 0
    placed = replace(step.implementation, in_place=(0, 1))
    assert shared_bytes(placed, tensor(made, "y"), dying) == WHOLE


def test_in_place_of_an_input_of_another_size_raises_no_bound() -> None:
    """x could lie in y's place were it as large; u shares all but a row with y, and the bound is not above that."""
    step = in_rows(call("s", "x u", "y"), in_place=(0,))
    made = images(program({"x": WHOLE // 2, "u": WHOLE, "y": WHOLE}, step, inputs="x u"))
    planned, plan = plan_memory(made, activations="ram")
    validate(planned, plan)
    (arena,) = plan.arenas
    expected = WHOLE // 2 + WHOLE + ROW_BYTES
    assert (arena.num_bytes, arena.lower_bound_bytes, arena.proved) == (expected, expected, True)


def test_only_pairs_that_may_overlap_and_have_a_place_share() -> None:
    made = one(1)
    alive = lifetimes(made)
    for pairs, live in (([], 192), ([("y", "x")], 112), ([("x", "y")], 112), ([("x", "q")], 192)):
        assert live_bytes(made, alive, pairs, "ram", default="ram") == [live]
    for held in ("x", "y"):
        others = {name: span for name, span in alive.items() if name != held}
        assert live_bytes(made, others, [("y", "x")], "ram", default="ram") == [WHOLE]


def test_too_near_is_between_the_same_place_and_apart() -> None:
    made = one(3, behind=2, in_place=(0,))
    pair = {("y", "x")}
    near = {
        x: too_near(made, {"x": x, "y": WHOLE}) for x in (0, 1, WHOLE - 1, WHOLE, WHOLE + 1, 2 * WHOLE - 1, 2 * WHOLE)
    }
    assert near == {0: set(), 1: pair, 95: pair, 96: set(), 97: pair, 191: pair, 192: set()}
    assert too_near(made, {"y": 1}) == set() and too_near(one(3, in_place=(0,)), {"x": 1, "y": 0}) == set()
    elsewhere = replace(made, tensors=made.tensors | {"y": replace(made.tensors["y"], memory="dtcm")})
    assert too_near(elsewhere, {"x": 1, "y": 0}) == set()


def sequence(
    *kernels: int, stored: tuple[int, ...], before: int = 0, outputs: str = "y", scratch_bytes: int = 0
) -> Program:
    """x -> r0 -> r1 ... -> y, row by row through rings of so many rows; `before` bytes are alive all the time."""
    names = ["x", *(f"r{index}" for index in range(len(kernels) - 1)), "y"]
    body = tuple(
        in_rows(call(f"s{index}", names[index], names[index + 1], scratch_bytes), kernel)
        for index, kernel in enumerate(kernels)
    )
    sizes = dict.fromkeys(names, WHOLE) | ({"k": before} if before else {})
    made = program(
        sizes, in_series("q", body, (1,) * len(body)),
        inputs="x k" if before else "x", outputs=f"{outputs} k" if before else outputs,
    )  # fmt: skip
    made = images(made)
    rings = {
        name: replace(made.tensors[name], ring=Ring(rows=ROWS, stored=rows))
        for name, rows in zip(names[1:-1], stored, strict=True)
    }
    return replace(made, tensors=made.tensors | rings)


@pytest.mark.parametrize(
    ("kernels", "stored", "distance"),
    # when row h of y is written, x is needed from row h + 1 on, or from row h where the first window reads above
    [((1, 1), (1,), 0), ((1, 3), (3,), 0), ((3, 1), (1,), 1), ((3, 3), (3,), 0), ((3, 3, 3), (3, 3), 0)],
)
def test_the_lower_bound_of_a_split_program(kernels: tuple[int, ...], stored: tuple[int, ...], distance: int) -> None:
    """Rings, all rows of one end, and those by which the other one lags behind; the plan reaches it."""
    made = sequence(*kernels, stored=stored)
    planned, plan = plan_memory(made, activations="ram")
    validate(planned, plan)
    (arena,) = plan.arenas
    expected = ROW_BYTES * (sum(stored) + ROWS + distance)
    assert (arena.lower_bound_bytes, arena.num_bytes, arena.proved) == (expected, expected, True)


def test_what_a_split_program_keeps_is_not_overlapped() -> None:
    """An input that is an output too, or is in another memory, or sums that may lie in the output from the start."""
    plain = sequence(1, 1, stored=(1,))
    (step,) = plain.steps
    assert isinstance(step, RowSteps) and sequence_pairs(plain, step) == [("y", "x")]
    kept = sequence(1, 1, stored=(1,), outputs="x y")
    assert plan_memory(kept, activations="ram")[1].lower_bound_bytes == ROW_BYTES * (ROWS + 1 + ROWS)
    elsewhere = replace(plain, tensors=plain.tensors | {"y": replace(plain.tensors["y"], memory="dtcm")})
    assert sequence_pairs(elsewhere, step) == []
    sums = replace(step.body[-1], implementation=replace(step.body[-1].implementation, spatial=accumulated(ROWS)))
    assert sequence_pairs(plain, replace(step, body=(*step.body[:-1], sums))) == []
    odd = replace(plain, tensors=plain.tensors | {"x": replace(plain.tensors["x"], shape=(97,))})
    assert sequence_pairs(odd, step) == []


def test_other_tensors_and_scratch_count_beside_a_sequence() -> None:
    made = sequence(1, 1, stored=(1,), before=96, scratch_bytes=48)
    _, plan = plan_memory(made, activations="ram")
    (arena,) = plan.arenas
    expected = ROW_BYTES * (1 + ROWS) + 96 + 48
    assert (arena.lower_bound_bytes, arena.num_bytes, arena.proved) == (expected, expected, True)
    _, apart = plan_memory(made, activations="scratch")
    assert {a.memory: a.lower_bound_bytes for a in apart.arenas} == {"scratch": 48, "ram": expected - 48}


def test_a_split_program_read_later_has_no_dying_input() -> None:
    made = sequence(1, 1, stored=(1,))
    after = in_rows(call("t", "x y", "z"))
    made = replace(
        made,
        steps=(*made.steps, after),
        outputs=("z",),
        tensors=made.tensors | {"z": replace(made.tensors["y"], name="z")},
    )
    _, plan = plan_memory(made, activations="ram")
    (arena,) = plan.arenas
    assert arena.lower_bound_bytes == 2 * WHOLE + ROW_BYTES and arena.proved


def test_a_plan_above_the_bound_is_not_called_proved() -> None:
    """Kernels that come back to rows part pairs only behind the plan: what is proved then is the bound reached."""
    steps = (
        in_rows(call("s0", "x", "a"), 3, behind=3, in_place=(0,)),
        in_rows(call("s1", "a", "y"), 3, behind=3, in_place=(0,)),
    )
    made = images(program({"x": WHOLE, "a": WHOLE, "y": WHOLE}, *steps))
    _, plan = plan_memory(made, activations="ram")
    assert (plan.arena_bytes, plan.lower_bound_bytes, plan.arenas[0].proved) == (WHOLE, WHOLE, True)
    _, plan = plan_memory(made, activations="ram", pinned={"x": 0, "a": WHOLE, "y": 3 * WHOLE})
    assert plan.arena_bytes == 4 * WHOLE and plan.lower_bound_bytes == WHOLE


def test_the_peak_is_the_first_step_of_the_most_bytes() -> None:
    made = program(
        {"x": 16, "a": 64, "b": 32, "y": 64}, call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "b", "y")
    )
    alive = lifetimes(made)
    assert live_bytes(made, alive, [], "ram", default="ram") == [80, 96, 96]
    assert plan_memory(made, activations="ram")[1].arenas[0].peak_step == 1
    assert live_bytes(replace(made, steps=()), {"x": (0, 1)}, [], "ram", default="ram") == [16]
    assert live_bytes(made, alive, [], "dtcm", default="ram") == [0, 0, 0]


def test_parts_matter_from_the_first_byte_written_to_the_last_one_read() -> None:
    """a and b are born in j; c is cut from it, and read by the last step."""
    made = program(
        {"x": 16, "a": 32, "b": 16, "j": 64, "c": 16, "y": 16, "z": 16},
        call("s0", "x", "a"), call("s1", "x", "b"), call("s2", "x", "z"), call("s3", "j", "y"), call("s4", "c y", "z"),
        outputs="z",
    )  # fmt: skip
    parts = {"a": 16, "b": 48, "c": 0}
    tensors = {
        n: replace(t, part=Part(tensor="j", first=parts[n]) if n in parts else None) for n, t in made.tensors.items()
    }
    made = replace(made, tensors=tensors)
    spans = lifetimes(made)
    assert spans["j"] == (0, 5) and spans["a"] == (0, 1) and spans["b"] == (1, 2) and spans["c"] == (4, 5)
    assert extents(made) == {"j": [(16, 48), (16, 64), (16, 64), (16, 64), (0, 0)]}
    written = replace(made, inputs=("x", "c"))
    assert extents(written) == {"j": [(0, 48), (0, 64), (0, 64), (0, 64), (0, 16)]}
    wanted = replace(made, outputs=("z", "b"))
    assert extents(wanted)["j"][-1] == (48, 64)
    live = live_bytes(made, {name: spans[name] for name in ("j", "x")}, [], "ram", default="ram")
    assert live == [48, 64, 64, 48, 0]


def test_what_is_cut_and_never_written_lives_with_the_whole() -> None:
    made = program({"x": 64, "p": 16, "y": 16}, call("s0", "x", "y"), call("s1", "y", "y"))
    made = replace(made, tensors=made.tensors | {"p": replace(made.tensors["p"], part=Part(tensor="x", first=0))})
    assert lifetimes(made)["p"] == lifetimes(made)["x"] == (0, 1)
