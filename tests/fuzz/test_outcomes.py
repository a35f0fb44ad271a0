"""Outcomes that the fuzzer calls failures."""

from __future__ import annotations

import pytest

from benchmarks.fuzzing.examine import sorted_error
from benchmarks.fuzzing.outcome import FAILURES, REFUSED, REJECTED
from tvm_ext.core.errors import DefectNotice, DoesNotFit, PlanRejected


@pytest.mark.parametrize("error", [PlanRejected("row 0 is gone"), DefectNotice("split: this plan was rejected")])
def test_a_rejected_plan_is_a_failure_also_where_another_way_fits(error: Exception) -> None:
    outcome = sorted_error(error, is_valid=True)
    assert outcome.kind == REJECTED and outcome.is_failure and REJECTED in FAILURES


def test_a_model_that_does_not_fit_is_none() -> None:
    assert sorted_error(DoesNotFit("1 B less"), is_valid=True).kind == REFUSED
