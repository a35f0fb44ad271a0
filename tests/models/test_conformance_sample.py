"""A fixed sample of the ONNX backend suite through the generated C: what passes keeps passing, nothing is wrong.

Every refusal has one of ten reasons. The whole suite: `python benchmarks/onnx_conformance.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.conformance.cases import MODES, Case, load_cases
from benchmarks.conformance.pool import run_all
from benchmarks.conformance.reasons import REASONS, counted, read_case, reasons_of
from benchmarks.conformance.run_case import Outcome
from tests.support.sweeps import some_of

# Case key -> `pass` or `refused`.
EXPECTED: dict[str, str] = json.loads(Path(__file__).with_name("conformance_sample.json").read_text(encoding="utf-8"))
RECORDED = Path(__file__).parents[2] / "benchmarks" / "results" / "onnx_reasons.json"
ALWAYS = sorted(EXPECTED)[::10]
REST = sorted({*EXPECTED} - {*ALWAYS})


@pytest.fixture(scope="module")
def suite() -> dict[str, Case]:
    return {case.key: case for case in load_cases(MODES)}


@pytest.fixture(scope="module")
def outcomes(suite: dict[str, Case], request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """Cases of the sample that are asked for, run once; a fault in one process loses its case only."""
    named = (item.callspec.params for item in request.session.items if getattr(item, "function", None) is test_case)
    cases = [suite[key] for key in sorted({params["key"] for params in named} & {*suite})]
    return {case.key: outcome for case, outcome in run_all(cases, num_workers=2, time_limit_s=120)}


def test_sample_is_part_of_the_suite(suite: dict[str, Case]) -> None:
    assert {*EXPECTED} <= {*suite}


@pytest.mark.parametrize("key", some_of(ALWAYS, sweep=REST))
def test_case(outcomes: dict[str, Outcome], key: str) -> None:
    outcome = outcomes[key]
    assert outcome.verdict == EXPECTED[key], f"{outcome.verdict}: {outcome.reason}\n{outcome.detail}"


def test_refusals_of_the_sample_have_reasons(suite: dict[str, Case]) -> None:
    refused = [suite[key] for key in sorted(EXPECTED) if EXPECTED[key] == "refused"][::4]
    found = {case.key: read_case(case) for case in refused}
    assert {outcome.verdict for outcome in found.values()} == {"refused"}
    known = {reason.says for reason in REASONS}
    assert set().union(*(reasons_of(outcome.detail) for outcome in found.values())) <= known


def test_reasons_do_not_overlap() -> None:
    for reason in REASONS:
        assert reasons_of(f"model.onnx: cannot be compiled because of:\n  ai.onnx.A, once (a): {reason.says}") == {
            reason.says
        }
    assert len(REASONS) == 10


def test_a_clause_without_a_reason_is_found() -> None:
    message = "m: cannot be compiled because of:\n  ai.onnx.A, twice (a, b): odd\n  ai.onnx.B, 2 times (c): strange"
    assert reasons_of(message) == {"strange"}


@pytest.mark.sweep
def test_the_whole_suite_is_accepted_or_refused_with_a_reason(suite: dict[str, Case]) -> None:
    """The counts are those of the page on verification."""
    cases, loaded = [*suite.values()], dict[str, Outcome]()
    for case, outcome in run_all(cases, num_workers=2, time_limit_s=120, run=read_case):
        loaded[case.key] = outcome
    assert {outcome.verdict for outcome in loaded.values()} == {"pass", "refused"}
    records = {key: {"verdict": outcome.verdict, "detail": outcome.detail} for key, outcome in loaded.items()}
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert counted(records) == {mode: recorded[mode] for mode in MODES}
