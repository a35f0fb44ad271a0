"""A model that fits anyway takes rows in ring buffers where they save memory for almost no predicted time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.next_try import Offer, Tried, Try
from tvm_ext.fitting.smaller_plan import ALONE, MOST_TRIES, SHARED, PlanCost, is_worth, may_shrink, smaller_tries
from tvm_ext.packages.package import Package
from tvm_ext.verification.input_ranges import random_inputs

BOARD = Platform.load("cortex_m4")


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four float convolutions of 3x3 on an image of 32x32, with their largest results inside."""
    rng = np.random.default_rng(0)
    channels = (1, 16, 16, 16, 1)
    weights = [
        (rng.standard_normal((after, before, 3, 3)) / 8).astype(np.float32) for before, after in pairwise(channels)
    ]
    names = ["x", "c1", "c2", "c3", "y"]
    nodes = [
        NODE("Conv", [before, f"w{index}"], [after], pads=[1, 1, 1, 1])
        for index, (before, after) in enumerate(pairwise(names))
    ]
    model = model_of(nodes, {"x": (1, 1, 32, 32)}, ["y"], {f"w{index}": one for index, one in enumerate(weights)})
    return saved(model, tmp_path_factory.mktemp("smaller"))


def test_rows_that_cost_nothing_are_the_default(convolutions: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(convolutions)
    small = tvm_ext.build(module, BOARD, tmp_path / "small", BuildOptions(verify=("host",)))
    whole = tvm_ext.build(module, BOARD, tmp_path / "whole", BuildOptions(verify=("host",), optimize="speed"))
    methods = [[one["method"] for one in package.report["fit"]["attempts"]] for package in (small, whole)]
    assert methods == [["whole", "split"], ["whole"]]
    assert 2 * used_bytes(small) < used_bytes(whole)
    inputs = random_inputs({"x": ((1, 1, 32, 32), "float32")}, 3)
    results = [package.run(inputs, on="host")["y"] for package in (small, whole)]
    np.testing.assert_array_equal(*(result.view(np.uint32) for result in results))


def used_bytes(package: Package) -> int:
    return sum(memory["used_bytes"] for memory in package.report["memories"] if memory["kind"] == "ram")


@pytest.mark.parametrize(
    "options",
    [
        BuildOptions(ram=1 << 20),
        BuildOptions(optimize="speed"),
        BuildOptions(keep=("c2",)),
        BuildOptions(pin={"c2": 0}),
        BuildOptions(tune=True),
        BuildOptions(io="stream"),
    ],
)
def test_a_user_who_says_more_gets_whole_layers(options: BuildOptions, convolutions: Path) -> None:
    assert may_shrink(BuildOptions(), BOARD) and not may_shrink(options, BOARD)
    if options.ram:
        assert len(compile_module(tvm_ext.load(convolutions), BOARD, options).attempts) == 1


def test_stages_and_accelerators_run_whole_layers() -> None:
    two = Platform.load("dual_m33")
    assert may_shrink(BuildOptions(), two) and not may_shrink(BuildOptions(placement_objective="throughput"), two)
    assert may_shrink(BuildOptions(processors=("cpu0",), placement_objective="throughput"), two)
    assert not may_shrink(BuildOptions(), Platform.load("cortex_m33_npu"))


WHOLE = Tried(one=Try(method="whole"), arena_bytes=4000, instructions=1_024_000, fits=True)


def test_the_smallest_offers_that_cost_almost_nothing_are_tried() -> None:
    offers = [
        Offer(budget_bytes=b, arena_bytes=b, added_instructions=a) for b, a in ((3500, 0), (3000, 10), (2000, 1000))
    ]
    dear = Offer(budget_bytes=900, arena_bytes=900, added_instructions=1001)
    assert [one.index for one in smaller_tries([*offers, dear], WHOLE, ALONE)] == [2, 1]
    many = [Offer(budget_bytes=b, arena_bytes=b) for b in range(1000, 1000 + 2 * MOST_TRIES)]
    assert [one.index for one in smaller_tries(many, WHOLE, ALONE)] == [*range(MOST_TRIES)]


def test_a_plan_that_breaks_its_promise_is_not_taken() -> None:
    whole = PlanCost(num_bytes=4000, cycles=1_024_000)
    assert is_worth(PlanCost(num_bytes=3000, cycles=1_025_000), whole)
    assert not is_worth(PlanCost(num_bytes=3001, cycles=1_000_000), whole)
    assert not is_worth(PlanCost(num_bytes=1000, cycles=1_025_001), whole)


def test_several_cores_may_spend_more_to_save_less() -> None:
    offers = [Offer(budget_bytes=b, arena_bytes=b, added_instructions=a) for b, a in ((3800, 32_000), (3000, 32_001))]
    assert [one.index for one in smaller_tries(offers, WHOLE, SHARED)] == [0]
    whole = PlanCost(num_bytes=4000, cycles=1_024_000, num_cores=2)
    assert is_worth(PlanCost(num_bytes=3800, cycles=1_056_000, num_cores=2), whole)
    assert not is_worth(PlanCost(num_bytes=3801, cycles=1_000_000, num_cores=2), whole)
    assert not is_worth(PlanCost(num_bytes=1000, cycles=1_056_001, num_cores=2), whole)
