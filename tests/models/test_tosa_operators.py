"""Each operator of TOSA's integer profile: its C has the bytes of the specification's reference model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from tests.support.sweeps import some_of
from tests.support.tosa_cases import RECORDED, TosaCase, all_cases, case_of, digest, file_of
from tests.support.tosa_file import Operator, stored, tosa_file
from tvm_ext.core.options import BuildOptions
from tvm_ext.frontends.load import load
from tvm_ext.frontends.tosa import elements, layers
from tvm_ext.verification.reference_runtimes.ask import run_module

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


_FACTORS = ((1288490189, 11, 7), (1073741824, 12, -128), (1717986918, 47, 5))
"""Multiplier, shift and zero point of the bytes of three RESCALE: two from int8 to int32, and one back."""


def _rescaled(numbers: np.ndarray, multiplier: int, shift: int, doubles: bool) -> np.ndarray:
    """Return RESCALE by the specification's arithmetic, in Python's integers."""
    second = np.where(numbers >= 0, 1 << 30, -(1 << 30)) if doubles and shift > 31 else 0
    return (numbers * multiplier + (1 << (shift - 1)) + second) >> shift


@pytest.mark.parametrize("saturates", [False, True])
@pytest.mark.parametrize("rounding", ["SINGLE_ROUND", "DOUBLE_ROUND"])
def test_sums_of_all_pairs_of_bytes(rounding: str, saturates: bool) -> None:
    """A chain of three RESCALE and an ADD, in 32 bits where they hold the numbers, and with sums that leave them."""
    one, other = (
        grid.astype(np.int8).reshape(1, -1) for grid in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    )
    first, second, last = _FACTORS
    first = (first[0], 6, first[2]) if saturates else first
    attributes = {"scale32": True, "per_channel": False, "input_unsigned": False, "output_unsigned": False}
    kinds = dict.fromkeys("aby", "int8") | dict.fromkeys(("wide_a", "wide_b", "sum"), "int32")
    tensors: dict[str, Any] = {name: (kind, one.shape, None) for name, kind in kinds.items()}
    operators = []
    for given, result, (multiplier, shift, point) in (
        ("a", "wide_a", first), ("b", "wide_b", second), ("sum", "y", last),
    ):  # fmt: skip
        ends = ("int8", point, "int32", 0) if result != "y" else ("int32", 0, "int8", point)
        numbers = {"m": ("int32", multiplier), "s": ("int8", shift), "i": ends[:2], "o": ends[2:]}
        for part, (kind, number) in numbers.items():
            tensors[f"{result}.{part}"] = (kind, (1,), stored(np.array([number]), kind))
        inputs = [given, *(f"{result}.{part}" for part in numbers)]
        rescale = {**attributes, "rounding_mode": rounding}
        operators.append(Operator(name="RESCALE", inputs=inputs, output=result, attributes=rescale))
    operators.insert(2, Operator(name="ADD", inputs=["wide_a", "wide_b"], output="sum"))
    mod = load(tosa_file(tensors, operators, ["a", "b"], ["y"]))
    (found,) = run_module(mod, [{"a": one, "b": other}])[0].values()
    doubles, limit = rounding == "DOUBLE_ROUND", 1 << 31
    wide = [
        np.clip(_rescaled(given.astype(object) - point, multiplier, shift, doubles), -limit, limit - 1)
        for given, (multiplier, shift, point) in ((one, first), (other, second))
    ]
    total = (wide[0] + wide[1] + limit) % (2 * limit) - limit
    expected = np.clip(_rescaled(total, last[0], last[1], doubles) + last[2], -128, 127)
    assert np.array_equal(found, expected.astype(np.int8))
