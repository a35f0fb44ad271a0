"""Operators that int8 would make slower stay in float by predicted cycles. The solver is compared with all choices."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

import tvm_ext
from relay_passes.analysis.module_costs import ModuleCosts, OperatorCost
from relay_passes.quantization.leave_costly import CostRule
from relay_passes.solvers.two_sides import NEVER, Exchange, TwoSides
from tests.support.onnx_models import model_of, saved, weights
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.stages import cost_rule
from tvm_ext.frontends.shapes import ModelNotice

UNVERIFIED = BuildOptions(quantize="int8", verify=(), min_snr_db=-100.0)
PRICES = st.integers(0, 30)


@st.composite
def problems(draw: st.DrawFn) -> TwoSides:
    count = draw(st.integers(1, 6))
    sides = [draw(st.sampled_from([(True, True), (True, True), (False, True), (True, False)])) for _ in range(count)]
    exchanges = [
        Exchange(maker=maker, readers=readers, leaving=draw(PRICES), entering=draw(PRICES))
        for maker in range(count)
        if (readers := tuple(other for other in range(maker + 1, count) if draw(st.booleans())))
    ]
    first, second = ([draw(PRICES) if pair[side] else NEVER for pair in sides] for side in (0, 1))
    return TwoSides(first=first, second=second, exchanges=exchanges)


@given(problems())
def test_the_best_sides_are_those_of_all_choices(problem: TwoSides) -> None:
    items = range(len(problem.first))
    choices = [frozenset(some) for count in range(len(items) + 1) for some in combinations(items, count)]
    assert problem.price(problem.best()) == min(map(problem.price, choices))


def test_of_equal_choices_the_first_side_is_taken() -> None:
    assert TwoSides(first=(3, 3), second=(3, 3), exchanges=()).best() == {0, 1}


def powers(path: Path, count: int) -> Path:
    """A network of two convolutions with a chain of powers between, which int8 computes in float one by one."""
    names, nodes = ["h", *(f"p{i}" for i in range(count))], list[onnx.NodeProto]()
    nodes.append(helper.make_node("Conv", ["x", "w"], ["c"], name="first", pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Conv", ["x", "v"], ["d"], name="second", pads=[1, 1, 1, 1]))
    nodes.append(helper.make_node("Sigmoid", ["c"], ["h"], name="positive"))
    nodes.append(helper.make_node("Sigmoid", ["d"], ["e"], name="exponent"))
    nodes += [helper.make_node("Pow", [before, "e"], [after], name=after) for before, after in pairwise(names)]
    nodes.append(helper.make_node("Conv", [names[-1], "u"], ["y"], name="last"))
    arrays = {"w": weights(8, 4, 3, 3), "v": weights(8, 4, 3, 3), "u": weights(4, 8, 1, 1)}
    return saved(model_of(nodes, {"x": (1, 4, 8, 8)}, ["y"], arrays), path, f"powers_{count}")


def built(path: Path, folder: Path, platform: str, options: BuildOptions) -> tvm_ext.Package:
    data = {"x": np.random.default_rng(1).normal(size=(8, 1, 4, 8, 8)).astype("float32")}
    return tvm_ext.build(tvm_ext.load(path), platform, folder, options, calibration=data)


@pytest.mark.slow
def test_a_chain_that_integers_compute_in_float_stays_in_float(tmp_path: Path) -> None:
    """Left in float, the chain executes fewer instructions on the board, as predicted, and still verifies."""
    path, on_board = powers(tmp_path, 3), replace(UNVERIFIED, verify=("qemu",))
    in_float = built(path, tmp_path / "float", "cortex_m4", on_board).report
    # Weights of 4 bits ask for fewer bytes, so that nothing is left in float for its cycles.
    in_integers = built(path, tmp_path / "int8", "cortex_m4", replace(on_board, weights="mixed")).report
    left = {entry["name"]: entry["reason"] for entry in in_float["quantization"]["left_float"]}
    assert set(left) == {"p0", "p1", "p2"} and in_integers["quantization"]["left_float"] == []
    assert all("in integers it takes" in reason and "in float" in reason for reason in left.values())
    predicted = [report["quantization"]["costs"]["int8"]["cycles"] for report in (in_float, in_integers)]
    boards = [report["verify"]["qemu"] for report in (in_float, in_integers)]
    assert predicted[0] < predicted[1] and boards[0]["instructions"] < boards[1]["instructions"]
    assert all(board["passed"] for board in boards)


@pytest.mark.slow
def test_two_conversions_may_cost_more_than_float_saves(tmp_path: Path) -> None:
    report = built(powers(tmp_path, 1), tmp_path / "single", "cortex_m4", UNVERIFIED).report
    assert report["quantization"]["left_float"] == []


@pytest.mark.slow
def test_a_network_that_int8_makes_slower_is_said(tmp_path: Path) -> None:
    path = powers(tmp_path, 3)
    with pytest.warns(ModelNotice, match=r"predicted to take [\d,]+ cycles and in float [\d,]+"):
        report = built(path, tmp_path / "slow", "cortex_m55", UNVERIFIED).report
    costs = report["quantization"]["costs"]
    assert costs["int8"]["cycles"] > costs["float32"]["cycles"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelNotice)
        built(path, tmp_path / "fast", "cortex_m4", UNVERIFIED)


def test_costs_count_where_cycles_were_measured_and_speed_is_asked_for() -> None:
    assert cost_rule(Platform.load("host"), UNVERIFIED) is None
    board = Platform.load("cortex_m4")
    assert cost_rule(board, UNVERIFIED).moves_to_float
    for options in ({"quantize": "auto"}, {"weights": "int4"}, {"activations": "int16"}, {"flash": 1 << 20}):
        assert not cost_rule(board, replace(UNVERIFIED, **options)).moves_to_float


def test_units_stay_in_float_only_where_the_whole_becomes_better() -> None:
    def of(cycles: int, weights_bytes: int, peak_bytes: int) -> ModuleCosts:
        operator = OperatorCost(inputs=frozenset(), cycles=cycles, only_moves=False)
        return ModuleCosts(operators=(operator,), weights_bytes=weights_bytes, peak_bytes=peak_bytes)

    rule = CostRule(costs_of=lambda mod: None, most_peak_bytes=600)
    before, in_float = of(100, 100, 500), of(90, 400, 800)
    assert rule.allows(of(99, 200, 600), before, in_float)
    assert not rule.allows(of(100, 100, 500), before, in_float)  # not faster
    assert not rule.allows(of(90, 700, 600), before, in_float)  # larger than the float network
    assert not rule.allows(of(90, 100, 601), before, in_float)  # a peak that may not fit
