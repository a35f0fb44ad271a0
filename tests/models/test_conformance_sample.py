"""A fixed sample of the ONNX backend suite through the generated C: what passes keeps passing, nothing is wrong.

The whole suite: `python benchmarks/onnx_conformance.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.conformance.cases import MODES, load_cases
from benchmarks.conformance.pool import run_all
from benchmarks.conformance.run_case import Outcome

# Case key -> `pass` or `refused`.
EXPECTED: dict[str, str] = json.loads(Path(__file__).with_name("conformance_sample.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """Every case of the sample, run once; a fault in one process loses its case only."""
    cases = [case for case in load_cases(MODES) if case.key in EXPECTED]
    return {case.key: outcome for case, outcome in run_all(cases, num_workers=2, time_limit_s=120)}


def test_sample_is_part_of_the_suite(outcomes: dict[str, Outcome]) -> None:
    assert sorted(outcomes) == sorted(EXPECTED)


@pytest.mark.parametrize("key", sorted(EXPECTED))
def test_case(outcomes: dict[str, Outcome], key: str) -> None:
    outcome = outcomes[key]
    assert outcome.verdict == EXPECTED[key], f"{outcome.verdict}: {outcome.reason}\n{outcome.detail}"
