"""Arithmetic of truth values, and comparisons of a tensor with itself: clean C, and NaN is not equal to itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from tests.kernels.tir_cases import Case
from tests.kernels.tir_library import PRELUDE, arguments_of, call, compile_c, entry, lowered

TRUTH = np.array([[False, False, True, True]]), np.array([[False, True, False, True]])
NUMBERS = np.array([[1.0, np.nan, -np.inf, 0.0]], np.float32)


def computed(folder: Path, build: Callable[..., relax.Expr], *inputs: np.ndarray) -> np.ndarray:
    """Truth values that the C of one operator writes, compiled with all warnings as errors."""
    case = Case(name="one", build=build, inputs=tuple((array.shape, str(array.dtype)) for array in inputs))
    plain = lowered(case.function())
    source, library = folder / "one.c", folder / "one.so"
    source.write_text(PRELUDE + entry("one", plain))
    compile_c("gcc", ["-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
    output = np.zeros(inputs[0].shape, np.uint8)
    call(ctypes.CDLL(str(library)), "one", arguments_of(plain, list(inputs), [output]))
    return output.astype(bool)


@pytest.mark.parametrize(("build", "wanted"), [(op.multiply, np.logical_and), (op.add, np.logical_or)])
def test_arithmetic_of_truth_values(tmp_path: Path, build: Callable[..., relax.Expr], wanted: np.ufunc) -> None:
    np.testing.assert_array_equal(computed(tmp_path, build, *TRUTH), wanted(*TRUTH))


@pytest.mark.parametrize("name", ["equal", "not_equal", "less", "less_equal", "greater", "greater_equal"])
def test_comparisons_with_itself(tmp_path: Path, name: str) -> None:
    found = computed(tmp_path, lambda x: getattr(op, name)(x, x), NUMBERS)
    np.testing.assert_array_equal(found, getattr(np, name)(NUMBERS, NUMBERS))
