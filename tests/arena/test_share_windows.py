"""Layers joined in one call: where that pays, and what must be left alone."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import CFunction, Implementation, Parameter, SharedWindows
from codegen_c.lowering.share_windows import with_shared_windows
from codegen_c.program.program import Program
from codegen_c.program.steps import Guard, KernelCall
from codegen_c.program.tensors import Part
from tests.arena.programs import call, program


def layer(name: str, inputs: str, output: str, *, form: str = "1x1", fill: int = 60) -> KernelCall:
    """A layer of 100 instructions, `fill` of which are those of its windows."""
    windows = SharedWindows(
        form=(form,), pixels=1, at_once=1, fill=("fill();",), compute=("compute();",), definitions="",
        fill_instructions=fill, compute_instructions=100 - fill,
    )  # fmt: skip
    parameters = [
        Parameter(name=role, ctype="int8_t", role=role)
        for role in ("input", "output", "scratch")  # type: ignore[arg-type]
    ]
    implementation = Implementation(
        kernel="none", function=CFunction(parameters=tuple(parameters), body=""), reference=list, scratch_bytes=16,
        instructions=100, windows=windows,
    )  # fmt: skip
    return replace(call(name, inputs, output), implementation=implementation, source_nodes=(name,))


SIZES = {"x": 64, "a": 16, "b": 16, "c": 16, "y": 64}
THREE = program(
    SIZES, layer("s0", "x", "a"), layer("s1", "x", "b"), layer("s2", "x", "c"), call("s3", "a b c", "y")
)  # fmt: skip


def calls(of: Program) -> list[tuple[str, int]]:
    """The steps, with the number of layers that each computes."""
    return [(step.name, len(step.joined) or 1) for step in of.kernel_calls()]


def test_layers_of_the_same_windows_are_one_call() -> None:
    found = with_shared_windows(THREE)
    assert calls(found) == [("s0", 3), ("s3", 1)]
    first = next(found.kernel_calls())
    assert first.outputs == ("a", "b", "c") and first.source_nodes == ("s0", "s1", "s2") and first.operator is None
    assert [one.name for one in first.joined] == ["s0", "s1", "s2"]
    assert first.implementation.instructions < 300 and first.implementation.scratch_bytes == 16
    found, plan = plan_memory(found, activations="ram")
    validate(found, plan)
    assert plan.arena_bytes == plan_memory(THREE, activations="ram")[1].arena_bytes


def test_layers_stay_where_nothing_is_saved() -> None:
    little = program(SIZES, *(layer(f"s{i}", "x", name, fill=10) for i, name in enumerate("abc")), *THREE.steps[3:])
    assert with_shared_windows(little) is little
    others = program(SIZES, layer("s0", "x", "a"), layer("s1", "x", "b", form="3x3"), call("s2", "a b", "y"))
    assert with_shared_windows(others) is others


def test_layers_stay_where_their_outputs_would_live_too_long() -> None:
    """s4 is computed late, when most bytes are free: earlier, its output would add to the peak of s2."""
    late = program(
        {"x": 8, "a": 8, "h": 100, "g": 100, "e": 8, "c": 40, "y": 8},
        layer("s0", "x", "a"), call("s1", "a", "h"), call("s2", "h", "g"), call("s3", "g", "e"),
        layer("s4", "x", "c"), call("s5", "e c", "y"),
    )  # fmt: skip
    assert with_shared_windows(late) is late


def test_an_input_that_changes_in_between_is_read_twice() -> None:
    changing = program(
        {**SIZES, "d": 64}, layer("s0", "x", "a"), call("s1", "a", "d"), layer("s2", "x", "b"), call("s3", "b d", "y")
    )
    assert calls(with_shared_windows(changing)) == [("s0", 2), ("s1", 1), ("s3", 1)]
    inside = {**changing.tensors, "d": replace(changing.tensors["d"], part=Part(tensor="x", first=0))}
    changed = replace(changing, tensors=inside)
    assert with_shared_windows(changed) is changed


def test_guarded_prefetched_and_pinned_layers_stay() -> None:
    def second(step: KernelCall) -> Program:
        return program(SIZES, THREE.steps[0], step, call("s3", "a b", "y"))

    plain = layer("s1", "x", "b")
    assert calls(with_shared_windows(second(plain))) == [("s0", 2), ("s3", 1)]
    guarded = second(replace(plain, guards=(Guard(condition="a", holds=True),)))
    assert with_shared_windows(guarded) is guarded
    prefetched = second(replace(plain, prefetched=(("w", "a"),)))
    assert with_shared_windows(prefetched) is prefetched
    elsewhere = second(replace(plain, processor="cpu1"))
    assert with_shared_windows(elsewhere) is elsewhere
    pinned = second(plain)
    assert with_shared_windows(pinned, apart={"b"}) is pinned
