"""Each operator of TOSA's integer profile: its C has the bytes of the specification's reference model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tests.support.tosa_cases import RECORDED, TosaCase, all_cases, case_of, digest, file_of
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.load import load
from tvm_ext.frontends.tosa import elements, layers

NOT_VERIFIED = BuildOptions(verify=())


def _results(cases: list[TosaCase], folder: Path) -> dict[str, np.ndarray]:
    """Return the results of the C of one program with all cases."""
    package = tvm_ext.build(load(file_of(cases), states={}), "host", folder, options=NOT_VERIFIED)
    found = package.run({name: array for case in cases for name, array in case.given.items()})
    return {case.name: np.asarray(found[case.output]) for case in cases}


def _one_of_each() -> list[TosaCase]:
    return list({case.operators[0].name: case for case in all_cases()}.values())


@pytest.mark.parametrize("chosen", some_of([_one_of_each], sweep=[all_cases]))
def test_the_c_of_every_operator_has_the_bytes_of_the_reference_model(
    chosen: Callable[[], list[TosaCase]], tmp_path: Path
) -> None:
    cases, recorded = chosen(), json.loads(RECORDED.read_text())
    found = _results(cases, tmp_path / "out")
    assert {name: digest(result) for name, result in found.items()} == {name: recorded[name] for name in found}


def test_there_is_a_case_of_every_operator_that_is_converted() -> None:
    assert {case.name for case in all_cases()} == set(json.loads(RECORDED.read_text()))
    covered = {operator.name for case in all_cases() for operator in case.operators}
    assert {*elements.CONVERTERS, *layers.CONVERTERS} - covered == {"IDENTITY"}


def test_indices_out_of_range_reach_no_other_memory(tmp_path: Path) -> None:
    indices = np.array([[7, -1, 2]])
    rows, given = np.arange(12).reshape(1, 4, 3), 50 + np.arange(9).reshape(1, 3, 3)
    cases = [
        case_of("scatter", "SCATTER", [("8", rows), ("32", indices), ("8", given)], ("8", (1, 4, 3))),
        case_of("gather", "GATHER", [("8", rows), ("32", indices)], ("8", (1, 3, 3))),
    ]
    found = _results(cases, tmp_path / "out")
    assert np.array_equal(found["scatter"], np.concatenate([rows[:, :2], given[:, 2:], rows[:, 3:]], 1))
    assert np.array_equal(found["gather"], rows[:, [3, 0, 2]])
