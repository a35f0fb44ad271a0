"""Tolerances of outputs, just inside and just outside: 1e-4, 1e-5; integers are equal."""

from __future__ import annotations

import numpy as np
import pytest

from tvm_ext.verification.verify import BOARD_TOLERANCE, FLOAT_TOLERANCE, compare, difference, num_differing

SIZE = 100


@pytest.mark.parametrize(("tolerance", "unit"), [(FLOAT_TOLERANCE, 1e-4), (BOARD_TOLERANCE, 1e-5)])
@pytest.mark.parametrize(("units", "passes"), [(0.99, True), (1.01, False), (-0.99, True), (-1.01, False)])
def test_floats_of_outputs(tolerance: float, unit: float, units: float, passes: bool) -> None:
    """Relative to the largest of the output, wherever the difference stands."""
    wanted = np.array([0.0, -8.0, 1.0])
    for place in range(3):
        found = wanted.copy()
        found[place] += 8 * units * unit
        result = compare([{"y": found}], [{"y": wanted}], tolerance=tolerance)
        assert result.passed is passes and (result.elements, result.differing) == (3, 1)


def test_the_tolerance_itself_passes() -> None:
    wanted, limit = np.ones(1), 2.0**-13
    assert compare([{"y": wanted + limit}], [{"y": wanted}], tolerance=limit).passed
    assert not compare([{"y": np.nextafter(wanted + limit, 2)}], [{"y": wanted}], tolerance=limit).passed


def test_integers_of_outputs_are_equal_or_wrong() -> None:
    wanted = np.arange(4, dtype=np.int8)
    assert compare([{"y": wanted}], [{"y": wanted}], tolerance=1.0).passed
    assert not compare([{"y": wanted + np.eye(4, dtype=np.int8)[2]}], [{"y": wanted}], tolerance=1.0).passed


@pytest.mark.parametrize("small", [0, 1])
def test_magnitudes_are_those_of_all_samples(small: int) -> None:
    """Samples that happen to give little of an output are not held to more digits of it than others."""
    wanted = [{"y": np.array([1e-2, np.inf])}, {"y": np.array([1e-2, 0.0])}]
    wanted[small] = {"y": np.array([4e-4, 0.0])}
    for gap, passes in ((0.99e-6, True), (1.01e-6, False)):
        found = [dict(values) for values in wanted]
        found[small] = {"y": wanted[small]["y"] + np.array([gap, 0.0])}
        assert compare(found, wanted, tolerance=1e-4).passed is passes


def test_each_output_of_each_sample_is_judged_and_counted() -> None:
    """The worst of all is told, also where what comes behind it is right; magnitudes are those of each output."""
    right, small = np.array([1.0, 2.0]), np.array([1e-3])
    wanted = [{"a": right, "b": small}, {"a": right, "b": small}]
    assert compare(wanted, wanted, tolerance=1e-4).elements == 6
    for sample in range(2):
        for name in ("a", "b"):
            found = [dict(values) for values in wanted]
            found[sample][name] = wanted[sample][name] * (1 + 1e-3)
            result = compare(found, wanted, tolerance=1e-4)
            assert not result.passed and result.differing == right.size * (name == "a") + (name == "b")
            assert result.max_rel_error == pytest.approx(1e-3, rel=1e-6)
            assert result.max_abs_error == pytest.approx(2e-3 if name == "a" else 1e-6, rel=1e-6)


def test_what_is_no_number_is_outside_of_every_scale() -> None:
    wanted = np.array([np.inf, np.nan, 2.0])
    assert difference(np.array([np.inf, np.nan, 3.0]), wanted) == (1.0, 0.5)
    assert difference(np.array([np.inf, 0.0, 2.0]), wanted) == (np.inf, np.inf)
    assert difference(np.array([1.0]), np.array([np.inf])) == (np.inf, np.inf)
    assert difference(np.zeros((0, 2)), np.zeros((0, 2))) == (0.0, 0.0)
    assert difference(np.zeros((0, 2)), np.zeros((0, 3))) == (np.inf, np.inf)
    assert difference(np.ones(1), np.zeros(1)) == (1.0, np.inf)


def test_elements_that_differ() -> None:
    odd = np.array([np.nan, 1.0, -0.0])
    assert num_differing(np.array([np.nan, 2.0, 0.0]), odd) == 1
    assert num_differing(np.array([0.0, 1.0, 0.0]), odd) == 1
    assert num_differing(odd[:2], odd) == 3
    assert num_differing(np.array([1, 3]), np.array([2, 3])) == 1
