"""Strips of columns that are written where the whole image has them: which are, and faults that validators find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.arena.validate_order import validate_order
from codegen_c.kernels.contract import Copy, Implementation, Spatial, StoredRows
from codegen_c.lowering.views import with_views
from codegen_c.program.program import Program
from codegen_c.program.sequences import in_series
from codegen_c.program.steps import KernelCall, Step
from codegen_c.program.tensors import Part, Ring
from tests.arena.lists import listed
from tests.arena.programs import call, program
from tvm_ext.core.errors import PlanRejected
from tvm_ext.core.row_access import RowAccess

ROWS = 4
SHAPES = {"a": (1, ROWS, 4, 2), "b": (1, ROWS, 2, 2), "j": (1, ROWS, 6, 2), "p": (1, ROWS, 8, 1), "q": (1, ROWS, 8, 1)}


def spatial(name: str, inputs: str, output: str, *, row_pitched: bool = True) -> KernelCall:
    """A step that computes each row from the same rows, and may leave room between rows."""
    step, same = call(name, inputs, output), RowAccess.same(ROWS)
    rows = Spatial(output_rows=ROWS, inputs=(same,) * len(inputs.split()))

    def keeping(stored: StoredRows) -> Implementation:
        return replace(step.implementation, kernel=f"a row every {stored.row_pitch}", spatial=rows)

    implementation = replace(step.implementation, spatial=rows, row_pitched=row_pitched, keeping=keeping)
    return replace(step, implementation=implementation, stored=StoredRows(at_once=1))


JOIN = replace(
    spatial("join", "a b", "j"),
    implementation=replace(
        spatial("join", "a b", "j").implementation,
        copies=(
            Copy(input=0, source_first=0, target_first=0, count=32, run=8, pitch=12),
            Copy(input=1, source_first=0, target_first=8, count=16, run=4, pitch=12),
        ),
    ),
)


def strips(*, row_pitched: bool = True, last: str = "j x") -> Program:
    """x -> p -> a and x -> q -> b in two sequences, joined in j, which is read with x."""
    first = in_series("first", (spatial("s0", "x", "p"), spatial("s1", "p", "a", row_pitched=row_pitched)), (1, 1))
    second = in_series("second", (spatial("s2", "x", "q"), spatial("s3", "q", "b")), (1, 1))
    made = program(
        {"x": 64, "p": 32, "q": 32, "a": 32, "b": 16, "j": 48, "y": 16}, first, second, JOIN, call("s4", last, "y")
    )
    tensors = {n: replace(tensor, shape=SHAPES.get(n, tensor.shape)) for n, tensor in made.tensors.items()}
    tensors |= {name: replace(tensors[name], ring=Ring(rows=ROWS, stored=1)) for name in "pq"}
    return replace(made, tensors=tensors)


def with_parts(a: Part, b: Part, *, steps: tuple[Step, ...] | None = None) -> Program:
    """Strips in the joined image as given, without the step that joins them."""
    made = strips()
    tensors = made.tensors | {"a": replace(made.tensors["a"], part=a), "b": replace(made.tensors["b"], part=b)}
    return replace(made, tensors=tensors, steps=steps or (*made.steps[:2], made.steps[3]))


def part(first: int, pitch: int = 12) -> Part:
    return Part(tensor="j", first=first, pitch=pitch, run_axes=2)


def rejected(made: Program) -> str:
    made, plan = plan_memory(made, activations="ram")
    with pytest.raises(PlanRejected) as raised:
        validate(made, plan)
    return str(raised.value)


def test_strips_are_written_where_they_are_joined() -> None:
    viewed = with_views(strips())
    assert [step.name for step in viewed.steps] == ["first", "second", "s4"]
    assert (viewed.tensors["a"].part, viewed.tensors["b"].part) == (part(0), part(8))
    kernels = {one.name: one.implementation.kernel for one in viewed.kernel_calls()}
    assert kernels["s1"] == kernels["s3"] == "a row every 12" and kernels["s0"] == "none"
    viewed, plan = plan_memory(viewed, activations="ram")
    validate(viewed, plan)
    assert plan.placements["b"].offset == plan.placements["j"].offset + 8
    assert plan.placements["b"].num_bytes == 3 * 12 + 4, "from the first to the last row"
    copied = plan_memory(strips(), activations="ram")[1]
    assert (plan.arena_bytes, copied.arena_bytes) == (64 + 48 + 16, 64 + 48 + 32)


def test_strips_stay_apart_where_that_takes_less() -> None:
    """The whole result is taken from the first strip on; here x dies in the last one, and that strip grows over it."""
    assert "join" in [step.name for step in with_views(strips(last="j")).steps]


@pytest.mark.parametrize(("row_pitched", "last"), [(False, "j x"), (True, "j x a")], ids=["kernel", "reader"])
def test_strips_that_have_to_be_copied(row_pitched: bool, last: str) -> None:
    """A kernel that leaves no room, and a strip that another step reads."""
    assert "join" in [step.name for step in with_views(strips(row_pitched=row_pitched, last=last)).steps]


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (part(0), part(7), "a and b are both written to the same elements of j."),
        (part(0), part(9), "b is not a part of j."),
        (part(0, 13), part(8, 13), "b is not a part of j."),
        (part(0), Part(tensor="j", first=8, pitch=12), "b is not a part of j."),
        (part(0), Part(tensor="j", first=32), "a and b are both written to the same elements of j."),
    ],
    ids=["meets", "leaves", "too far apart", "pixels apart", "in one run"],
)
def test_the_validator_finds_strips_at_wrong_places(a: Part, b: Part, message: str) -> None:
    assert rejected(with_parts(a, b)).startswith(message)


def test_the_validator_finds_a_strip_that_nobody_writes() -> None:
    made = with_parts(part(0), part(8))
    assert rejected(replace(made, steps=(made.steps[0], made.steps[2]))).startswith(
        "step 1 (s4): 16 B of j do not hold its value but hold nothing"
    )


def test_the_validator_finds_rows_that_a_run_does_not_divide() -> None:
    """Of a strip whose runs are whole images no row lies by itself."""
    a = Part(tensor="j", first=0, pitch=48, run_axes=3)
    made = with_parts(a, part(8))
    assert "with runs of 32 B cannot be divided into 4 equal rows" in rejected(
        replace(made, tensors=made.tensors | {"b": replace(made.tensors["b"], part=Part(tensor="j", first=32))})
    )


def test_the_validator_finds_a_strip_that_is_written_over() -> None:
    """The second strip's ring in the columns of the first one."""
    viewed, plan = plan_memory(with_views(strips()), activations="ram")
    inside = replace(plan.placements["q"], offset=plan.placements["j"].offset)
    with pytest.raises(PlanRejected, match=r"step 2 \(s4\): 8 B of j do not hold its value but hold"):
        validate(viewed, replace(plan, placements=plan.placements | {"q": inside}))


def test_strips_on_two_processors() -> None:
    """They share no byte, so nothing need order them; columns that meet are found."""
    made = with_parts(part(0), part(8))
    _, plan = plan_memory(made, activations="ram")
    apart = plan.placements | {"q": replace(plan.placements["q"], offset=256)}
    arenas = tuple(replace(arena, num_bytes=272) for arena in plan.arenas)
    roomy = replace(plan, placements=apart, arenas=arenas)
    validate_order(listed(made, "!0>1 0 ?1<1 2", "?0<0 1 !1>0"), roomy)
    meeting = with_parts(part(0), part(7))
    moved = replace(roomy, placements=apart | {"b": replace(apart["b"], offset=apart["b"].offset - 1)})
    with pytest.raises(PlanRejected, match="no signal orders the two"):
        validate_order(listed(meeting, "!0>1 0 ?1<1 2", "?0<0 1 !1>0"), moved)
