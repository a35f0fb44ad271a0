"""Calls of one function become one step where they stand together and do not depend on each other."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.kernels.contract import CFunction
from codegen_c.lowering.merge_steps import merge_steps
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall, Loop
from tests.arena.programs import call, program

SIZES = {"x": 64, "a": 32, "b": 32, "c": 32, "y": 16}


def merged(*steps: KernelCall) -> list[str | tuple[str, ...]]:
    """Names of the steps, those of a merged one together."""
    found = merge_steps(program(SIZES, *steps))
    return [tuple(call.name for call in step.body) if isinstance(step, Loop) else step.name for step in found.steps]


def other(step: KernelCall) -> KernelCall:
    function = CFunction(parameters=(), body="return;")
    return replace(step, implementation=replace(step.implementation, function=function))


def test_independent_calls() -> None:
    steps = call("s0", "x", "a"), call("s1", "x", "b"), call("s2", "x", "c"), other(call("s3", "a b c", "y"))
    assert merged(*steps) == [("s0", "s1", "s2"), "s3"]
    made = merge_steps(program(SIZES, *steps))
    planned, plan = plan_memory(made, activations="ram")
    validate(planned, plan)
    assert plan.arena_bytes == 64 + 3 * 32


def test_calls_that_depend_on_each_other_stay_apart() -> None:
    assert merged(call("s0", "x", "a"), call("s1", "a", "b"), call("s2", "x", "y")) == ["s0", ("s1", "s2")]


def test_calls_of_other_functions_stay_apart() -> None:
    assert merged(call("s0", "x", "a"), other(call("s1", "x", "b")), call("s2", "x", "y")) == ["s0", "s1", "s2"]


def test_nothing_to_merge_gives_the_same_program() -> None:
    whole: Program = program(SIZES, call("s0", "x", "a"), call("s1", "a", "y"))
    assert merge_steps(whole) is whole
