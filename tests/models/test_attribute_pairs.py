"""A slice of benchmarks/attribute_pairs.py: pairs are covered, and a few cases of many operators are right."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from benchmarks.attribute_pairs import batch_outcomes, finished, run, summary
from benchmarks.pairing.covering import covering_rows
from benchmarks.pairing.operator_case import cases_of
from benchmarks.pairing.table import operators
from tests.support.sweeps import some_of

SLICE = ("onnx/AveragePool", "onnx/Resize", "onnx/LayerNormalization", "torch/interpolate")
_CASES = 4


def test_every_pair_of_values_that_can_meet_meets() -> None:
    sizes = [3, 2, 4, 3]

    def is_valid(row: tuple[int, ...]) -> bool:
        return (row[0], row[2]) != (1, 3)

    rows = covering_rows(sizes, is_valid, "pairs")
    met = {(a, row[a], b, row[b]) for row in rows for a, b in combinations(range(4), 2)}
    every = {(a, i, b, j) for a, b in combinations(range(4), 2) for i, j in product(range(sizes[a]), range(sizes[b]))}
    assert all(map(is_valid, rows)) and every - met == {(0, 1, 2, 3)}
    assert len(rows) < 3 * 2 * 4 * 3 / 2 and rows == covering_rows(sizes, is_valid, "pairs")


def test_keys_are_those_of_one_case() -> None:
    keys = [case.key for operator in operators().values() if operator.form == "onnx" for case in cases_of(operator)]
    assert len(keys) == len(set(keys)) > 3000


@pytest.mark.parametrize("title", some_of(SLICE, sweep=sorted({*operators()} - {*SLICE})))
def test_a_few_cases(title: str) -> None:
    if title.startswith("torch/"):
        pytest.importorskip("torch")
    cases = cases_of(operators()[title])
    cases = cases[:: max(1, len(cases) // _CASES)][:_CASES]
    bad = [
        (case.key, outcome)
        for case, outcome in zip(cases, batch_outcomes(cases), strict=True)
        if {outcome.verdict, outcome.quantized} & {"wrong", "foreign"}
    ]
    assert not bad


def test_a_wrong_result_counts() -> None:
    case = cases_of(operators()["onnx/Clip"])[0]
    row = {"case": case.key, "commit": "c", "verdict": "equal", "quantized": "wrong"}
    result = summary({case.key: row, "gone": row})
    assert result["bad"] == [row] and result["forms"]["onnx"]["int8"]["wrong"] == 1


def test_a_slice_takes_random_cases_without_a_result() -> None:
    cases = cases_of(operators()["onnx/Not"])
    done = {case.key: {} for case in cases[1:]}
    assert [case.key for case, _ in run("onnx/Not$", quantized=False, done=done, most=3)] == [cases[0].key]
    taken = [case for case, _ in run("onnx/(Not|Clip)$", quantized=False, most=1)]
    assert sorted(case.operator for case in taken) == ["onnx/Clip", "onnx/Not"]


def test_cases_that_came_out_wrong_run_again_alone() -> None:
    wrong, right = cases_of(operators()["onnx/Clip"])[:2]
    rows = {
        wrong.key: {"verdict": "equal", "quantized": "wrong"},
        right.key: {"verdict": "equal", "quantized": "equal"},
    }
    every = {case.key for operator in operators().values() for case in cases_of(operator)}
    assert every - {*finished(rows, bad=True)} == {wrong.key} and {*finished(rows)} == {*rows}
