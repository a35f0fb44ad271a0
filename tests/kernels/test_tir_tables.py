"""Tables in place of dear expressions of a loop counter: which are made, and that no bit of a result changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from codegen_c.tir import composite
from codegen_c.tir.composite import lower_composite
from codegen_c.tir.plain_c import PlainC
from codegen_c.tir.tabulate import Tabulated, Unknown, values_of
from tests.kernels.tir_cases import Case
from tests.kernels.tir_library import assert_same_bits, lowered

IMAGE = ((1, 5, 11, 9), "float32")
MODES = ("half_pixel", "asymmetric", "align_corners")


def resized(method: str, mode: str, shape: tuple[int, int] = (17, 14)) -> Case:
    rounding = "floor" if method == "nearest_neighbor" else "round"

    def build(x: relax.Expr) -> relax.Expr:
        return op.image.resize2d(
            x, shape, layout="NCHW", method=method, coordinate_transformation_mode=mode, rounding_method=rounding
        )

    return Case(name=f"{method}_{mode}", build=build, inputs=(IMAGE,))


CASES = [
    *(resized(method, mode) for method in ("nearest_neighbor", "linear", "cubic") for mode in MODES),
]


def test_no_bit_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_tables = {case.name: lowered(case.function()) for case in CASES}
    monkeypatch.setattr(composite, "tabulate", lambda function, first: Tabulated(function=function, tables=()))
    without = {case.name: lowered(case.function()) for case in CASES}
    for case in CASES:
        assert len(with_tables[case.name].constants) > len(without[case.name].constants)
    assert_same_bits(CASES, with_tables, without, tmp_path)


def test_indices_of_a_resize_need_no_floats_and_no_long_integers() -> None:
    plain = lower_composite(resized("nearest_neighbor", "half_pixel").function())
    assert isinstance(plain, PlainC)
    assert "int64_t" not in plain.function.body and "rintf" not in plain.function.body
    assert sorted(data.dtype for _, data in plain.constants) == [np.dtype(np.uint16)] * 2
    assert not any(kind.startswith(("float", "long")) for kind in plain.work)


def test_every_table_is_read() -> None:
    """A share and one less it are one table, as the part of an expression may be."""
    plain = lower_composite(resized("linear", "half_pixel").function())
    assert isinstance(plain, PlainC)
    assert "(void)" not in plain.function.body
    assert [name for name, _ in plain.constants] == [f"constant{index}" for index in range(6)]


def test_what_is_computed_once_has_no_table() -> None:
    plain = lower_composite(Case(name="one", build=lambda x: op.tile(x, (3,)), inputs=(((20,), "float32"),)).function())
    assert isinstance(plain, PlainC) and not plain.constants


def test_values_are_those_of_c() -> None:
    i, turns = tirx.Var("i", "int32"), np.arange(-3, 4)
    share = (tirx.Cast("float32", i) + tirx.const(0.5, "float32")) * tirx.const(1 / 3, "float32")
    single = (turns.astype(np.float32) + np.float32(0.5)) * np.float32(1 / 3)
    assert values_of(share, i, turns).tobytes() == single.tobytes()
    assert values_of(tirx.Cast("int32", share), i, turns).tolist() == [0, 0, 0, 0, 0, 0, 1]
    assert values_of(tirx.FloorMod(i, tirx.const(3)), i, turns).tolist() == [0, 1, 2, 0, 1, 2, 0]
    chosen = tirx.Select(i < 0, tirx.const(7), tirx.Max(i, tirx.const(2)))
    assert values_of(chosen, i, turns).tolist() == [7, 7, 7, 2, 2, 2, 3]


@pytest.mark.parametrize(
    "unknown",
    [
        lambda i: i + tirx.Var("j", "int32"),
        lambda i: i * tirx.const(1 << 30),
        lambda i: tirx.FloorDiv(tirx.const(6), i),
        lambda i: tirx.exp(tirx.Cast("float32", i)),
        lambda i: tirx.Cast("int32", tirx.Cast("float32", i) * tirx.const(1e30, "float32")),
        lambda i: tirx.const(1, "float32") / tirx.Cast("float32", i),
        lambda i: tirx.Cast("uint8", i),
    ],
)
def test_values_that_c_leaves_open_are_not_known(unknown) -> None:
    i = tirx.Var("i", "int32")
    with pytest.raises(Unknown):
        values_of(unknown(i), i, np.arange(4))
