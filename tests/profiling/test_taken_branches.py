"""Steps that a run skipped, from the functions that it called."""

from __future__ import annotations

import pytest

from tests.profiling.test_estimate_cycles import FUNCTIONS, sites
from tvm_ext.profiling.layer_names import PackageSteps, layer_names, without_skipped
from tvm_ext.profiling.taken_branches import guards_in_report, skipped_steps

ORDER = ["first", "a1", "a2", "b1", "last"]
GUARDS = {"a1": [("c", True)], "a2": [("c", True)], "b1": [("c", False)]}


@pytest.mark.parametrize(
    ("calls", "skipped"),
    [
        ([{"first", "last"}, {"a1", "b1"}, {"a2"}, {"first", "last"}], ["b1"]),
        ([{"first", "last"}, {"a1", "b1"}, {"first", "last"}], ["a1", "a2"]),
        ([{"first"}, {"last"}], None),
        ([{"first"}, {"a1", "b1"}, {"a2", "last"}, {"last"}, {"last"}], None),
    ],
)
def test_the_calls_tell_the_branch(calls: list[set[str]], skipped: list[str] | None) -> None:
    assert skipped_steps(ORDER, calls, GUARDS) == skipped


def test_equal_calls_of_both_branches_tell_nothing() -> None:
    assert skipped_steps(["a", "b"], [{"a", "b"}], {"a": [("c", True)], "b": [("c", False)]}) is None


def test_a_condition_inside_of_a_branch_that_is_not_taken_decides_nothing() -> None:
    guards = {"inner": [("c", True), ("d", True)], "other": [("c", False)]}
    assert skipped_steps(["inner", "other"], [{"other"}], guards) == ["inner"]


def test_very_many_branches_end_soon() -> None:
    order = [f"{index}" for index in range(60)]
    guards = {name: [(f"c{index}", True)] for index, name in enumerate(order)}
    assert skipped_steps(order, [set(order)] * 30, guards) is None


def test_a_shared_function_gets_the_layer_of_the_branch_that_ran() -> None:
    steps = PackageSteps(
        functions={"m_conv": ["a", "b"], "m_pool": ["p"]}, order=[["a"], ["p"], ["b"]],
        guards={"a": [("c", True)], "p": [("c", True)], "b": [("c", False)]},
    )  # fmt: skip
    taken, skipped = without_skipped(sites(2), FUNCTIONS, steps)
    assert skipped == ["a", "p"] and layer_names(sites(2), FUNCTIONS, taken) == ["run", "b"]
    taken, skipped = without_skipped(sites(2, 4), FUNCTIONS, steps)
    assert skipped == ["b"] and layer_names(sites(2, 4), FUNCTIONS, taken) == ["run", "a", "p"]
    assert without_skipped(sites(4), FUNCTIONS, steps) == (steps, None)


def test_damaged_guards_are_left_out() -> None:
    steps = [
        {"name": "a", "guards": [{"condition": "c", "holds": True}, {"condition": 3, "holds": True}, "x"]},
        {"name": "b", "guards": 5}, {"name": 3, "guards": []}, {"name": "c"},
    ]  # fmt: skip
    assert guards_in_report(steps) == {"a": [("c", True)]}
