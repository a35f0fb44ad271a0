"""Zeros that a sum of products does not add, and indices in 32 bits: where, and that no bit of a result changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from codegen_c.tir import composite
from codegen_c.tir.hoist_loads import narrow_indices
from tests.kernels.tir_cases import Case
from tests.kernels.tir_library import assert_same_bits, lowered

IMAGE = (((1, 3, 9, 7), "float32"),)
WEIGHTS = np.random.default_rng(5).standard_normal((4, 3, 3, 3)).astype(np.float32)


def convolved(weights: np.ndarray) -> Callable[..., relax.Expr]:
    return lambda x: op.nn.conv2d(x, relax.const(weights), padding=1)


def transposed(x: relax.Expr) -> relax.Expr:
    return op.nn.conv2d_transpose(x, relax.const(np.ascontiguousarray(WEIGHTS.transpose(1, 0, 2, 3))), strides=2)


CASES = [
    Case(name="convolution", build=convolved(WEIGHTS), inputs=IMAGE),
    Case(name="negative_zeros", build=convolved(np.where(WEIGHTS > 0, WEIGHTS, np.float32(-0.0))), inputs=IMAGE),
    Case(name="transposed", build=transposed, inputs=IMAGE),
    Case(name="average", build=lambda x: op.nn.avg_pool2d(x, (3, 3), strides=(2, 2), padding=1), inputs=IMAGE),
]


def test_no_bit_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = {case.name: lowered(case.function()) for case in CASES}
    monkeypatch.setattr(composite, "skip_zeros", lambda function, constants, **_: function)
    added = {case.name: lowered(case.function()) for case in CASES}
    for case in CASES:
        assert "if (" in skipped[case.name].function.body and "if (" not in added[case.name].function.body
        assert skipped[case.name].macs == added[case.name].macs
    assert_same_bits(CASES, skipped, added, tmp_path)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_a_weight_that_is_not_finite_times_zero_is_no_number(value: float) -> None:
    weights = WEIGHTS.copy()
    weights[0, 0, 0, 0] = value
    assert "if (" not in lowered(Case(name="kept", build=convolved(weights), inputs=IMAGE).function()).function.body


def test_weights_that_an_input_brings_may_be_anything() -> None:
    inputs = (*IMAGE, ((4, 3, 3, 3), "float32"))
    case = Case(name="given", build=lambda x, w: op.nn.conv2d(x, w, padding=1), inputs=inputs)
    assert "if (" not in lowered(case.function()).function.body


def test_products_and_extremes_are_no_sums() -> None:
    case = Case(name="most", build=lambda x: op.nn.max_pool2d(x, (3, 3), padding=1), inputs=IMAGE)
    assert "if (" not in lowered(case.function()).function.body


def test_places_of_64_bits_become_32_where_they_are_known() -> None:
    def build(x: relax.Expr, indices: relax.Expr) -> relax.Expr:
        return op.take(x, indices, axis=0)

    case = Case(name="taken", build=build, inputs=(((24, 30), "float32"), ((16,), "int64")))
    body = lowered(case.function()).form(has_vectors=False, is_small=True).function.body
    assert "int32_t i1_place = (int32_t)($_inside_i64(" in body and "(int64_t)" not in body


def narrowed(index: tirx.Expr, counter: tirx.Var, turns: int, places: dict[tirx.Var, tuple[int, int]]) -> str:
    """Type of the index of a store in a loop, after narrowing."""
    target = tirx.decl_buffer((1 << 20,), "float32", "target")
    store = tirx.BufferStore(target, tirx.const(0, "float32"), [index])
    loop = tirx.For(counter, tirx.IntImm("int32", 0), tirx.IntImm("int32", turns), tirx.ForKind.SERIAL, store)
    return str(narrow_indices(tirx.PrimFunc([target], loop), places).body.body.indices[0].ty.dtype)


def test_indices_whose_parts_may_be_large_stay_as_they_are() -> None:
    counter, place = tirx.Var("i", "int32"), tirx.decl_buffer((1,), "int32", "place")
    wide = tirx.Cast("int64", counter) * tirx.const(30, "int64") + tirx.Cast("int64", tirx.BufferLoad(place, [0]))
    assert narrowed(wide, counter, 24, {place: (0, 690)}) == "int32"
    assert narrowed(wide, counter, 24, {}) == "int64"
    assert narrowed(wide, counter, 24, {place: (0, (1 << 31) - 1)}) == "int64"
    assert narrowed(wide, counter, 1 << 27, {place: (0, 690)}) == "int64"


def test_a_variable_of_unknown_size_keeps_its_type() -> None:
    """What an input of 64 bits holds, beside no place."""
    indices = (((30,), "int64"),)
    case = Case(name="hot", build=lambda i: op.one_hot(i, _one(), _zero(), 20, -1), inputs=indices)
    assert "int64_t ax1_place = input0[ax0];" in lowered(case.function()).function.body


def _one() -> tirx.Expr:
    return tirx.const(1.0, "float32")


def _zero() -> tirx.Expr:
    return tirx.const(0.0, "float32")
