"""Operations of plain C that a generic step is modelled by: what is counted, and how near it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from codegen_c.kernels.work import instructions_of
from codegen_c.tir.composite import lower_composite
from codegen_c.tir.plain_c import PlainC
from tests.kernels.tir_cases import Case

IMAGE, ROWS = ((1, 3, 24, 25), "float32"), ((24, 25), "float32")


def work_of(build: Callable[..., relax.Expr], *inputs: tuple[tuple[int, ...], str]) -> Mapping[str, int]:
    plain = lower_composite(Case(name="counted", build=build, inputs=inputs).function())
    assert isinstance(plain, PlainC)
    return plain.work


def test_a_chain_is_counted_once_for_each_element() -> None:
    work = work_of(lambda x: op.exp(op.add(op.multiply(x, x), x)), ROWS)
    assert work == {
        "load": 600, "float arithmetic": 600, "float product": 600, "float exp": 600, "store": 600,
        "tested turn": 600, "loop": 1,
    }  # fmt: skip


def test_what_does_not_change_in_a_loop_is_counted_outside_of_it() -> None:
    work = work_of(lambda x, y: op.add(x, op.multiply(y, y)), ROWS, ((24, 1), "float32"))
    assert work["load"] == 600 + 24
    assert (work["float arithmetic"], work["float product"]) == (600, 24)


def test_loops_of_few_turns_are_written_out() -> None:
    assert not {"turn", "loop"} & set(work_of(op.exp, ((2, 4), "float32")))


def test_turns_side_by_side_are_counted_once() -> None:
    work = work_of(op.nn.relu, ROWS)
    assert (work["load"], work["float limit"], work["store"]) == (600, 600, 600)
    assert (work["turn"], work["loop"]) == (150, 1)


def test_what_one_loop_leaves_in_an_array_is_read_once_in_the_next() -> None:
    def scaled(x: relax.Expr) -> relax.Expr:
        return op.divide(x, op.sqrt(op.sum(x, 1, keepdims=True)))

    work = work_of(scaled, ROWS)
    assert work["float sqrt"] == 24 and work["float divide"] == 600


def test_places_that_an_input_holds_are_compared_once() -> None:
    work = work_of(lambda x, i: op.take(x, i, axis=1), ROWS, ((20,), "int64"))
    assert work["long place"] == 24 * 20 and not any(kind.endswith("extreme") for kind in work)


def test_comparisons_that_are_results_become_numbers() -> None:
    assert work_of(op.less, ROWS, ROWS)["truth"] == 600
    assert "truth" not in work_of(lambda x, y: op.where(op.less(x, y), x, y), ROWS, ROWS)


def test_a_function_costs_what_the_processor_has_for_it() -> None:
    work = {"float exp": 100, "float arithmetic": 100}
    single, soft = (instructions_of(work, fpu=fpu, isa="armv7e-m") for fpu in ("single", "none"))
    assert 6_000 < single < 8_000
    assert 90_000 < soft < 130_000
    doubles = {"double arithmetic": 100}
    assert instructions_of(doubles, fpu="double", isa="armv7e-m") < instructions_of(
        doubles, fpu="single", isa="armv7e-m"
    )


EXECUTED = {
    "exp": (op.exp, ROWS, 39_447, 581_109),
    "gelu": (op.nn.gelu, ROWS, 28_215, 725_639),
    "softmax": (lambda x: op.nn.softmax(x, -1), ROWS, 50_057, 805_970),
    "softmax_channels": (lambda x: op.nn.softmax(x, 1), IMAGE, 136_181, 1_805_488),
    "variance": (lambda x: op.variance(x, [2, 3]), IMAGE, 13_573, 347_683),
    "argmax": (lambda x: op.argmax(x, axis=1), IMAGE, 10_212, 52_572),
    "permute": (lambda x: op.permute_dims(x, [0, 2, 3, 1]), IMAGE, 5_411, 5_411),
}
"""A definition of TVM, its input, and instructions executed on a Cortex-M4 in QEMU with and without FPU, by GCC 12."""


@pytest.mark.parametrize("name", EXECUTED)
def test_modelled_instructions_are_near_those_executed(name: str) -> None:
    build, shape, by_fpu, by_library = EXECUTED[name]
    work = work_of(build, shape)
    for fpu, executed in (("single", by_fpu), ("none", by_library)):
        modelled = instructions_of(work, fpu=fpu, isa="armv7e-m")
        assert 1 / 1.5 < modelled / executed < 1.5, (fpu, modelled)


def test_vectors_save_what_their_lanes_share() -> None:
    odd = ((23, 25), "float32")  # 143 vectors and three elements
    plain = lower_composite(Case(name="counted", build=op.add, inputs=(odd, odd)).function())
    assert isinstance(plain, PlainC)
    work = plain.form(has_vectors=True, is_small=False).work
    assert work["saved store"] == 575 - 146
    assert work["remainder"] == 1
    scalar, vectors = (instructions_of(work, fpu="single", isa=isa) for isa in ("armv7e-m", "armv8.1-m.main"))
    assert vectors < 0.6 * scalar


def test_few_vectors_are_written_out() -> None:
    """Five vectors are 20 elements of a row; a loop is of 24 * 20 in one row."""
    rows = lambda x: op.permute_dims(x, [0, 2, 1, 3])  # noqa: E731
    few = for_vectors(rows, ((1, 3, 24, 20), "float32"))
    assert few["saved turn"] == few["turn"] == 3 * 24 * 20
    assert for_vectors(op.add, *(((24, 20), "float32"),) * 2)["saved turn"] == 480 - 120


def for_vectors(build: Callable[..., relax.Expr], *inputs: tuple[tuple[int, ...], str]) -> Mapping[str, int]:
    plain = lower_composite(Case(name="counted", build=build, inputs=inputs).function())
    assert isinstance(plain, PlainC)
    return plain.form(has_vectors=True, is_small=False).work


def test_sums_beside_each_other_are_vectors_and_many_rows_need_pointers() -> None:
    few, many = (for_vectors(lambda x: op.sum(x, 0), ((rows, 40), "float32")) for rows in (8, 24))
    assert few["saved float arithmetic"] == 8 * 30 and "pointer" not in few
    assert many["saved float arithmetic"] == 24 * 30 and many["pointer"] == 24 * 10
    assert "saved load" not in for_vectors(lambda x: op.sum(x, 0), ((64, 40), "float32"))  # not written out


def test_neighbours_are_put_together_and_taken_apart() -> None:
    pairs = for_vectors(lambda x, y: op.stack((x, y), axis=2), ROWS, ROWS)
    assert pairs["saved store"] == 1200 - 300 and pairs["saved load"] == 1200 - 300
    assert not {"branch", "integer compare"} & set(pairs)  # which of both is known where it is written out
    apart = for_vectors(lambda x: op.nn.avg_pool2d(x, (1, 4), strides=(1, 4)), ((1, 1, 8, 64), "float32"))
    assert apart["saved load"] == 512 - 128


def test_what_the_turn_before_stored_is_not_loaded() -> None:
    assert work_of(lambda x: op.cumsum(x, axis=1), ROWS)["load"] == 600


def test_a_side_of_a_choice_is_loaded_where_it_is_taken() -> None:
    slope = relax.const(np.arange(24, dtype=np.float32))
    work = work_of(lambda x: op.nn.prelu(x, slope, axis=0), ((24, 64), "float32"))
    assert work["load"] == 24 * 64 + 24 * 16  # once for four turns side by side


def test_both_sides_of_a_known_choice_count_in_their_turns() -> None:
    work = work_of(lambda x: op.nn.pad(x, [1, 1, 0, 0]), ROWS)
    assert work["store"] == 26 * 25


@pytest.mark.parametrize(
    ("isa", "fpu", "each"), [("armv7e-m", "single", 1), ("armv7e-m", "none", 32), ("armv6-m", "none", 119)]
)
def test_products_cost_what_multiplies_them(isa: str, fpu: str, each: int) -> None:
    assert instructions_of({"float product": 1000}, fpu=fpu, isa=isa) == pytest.approx(1000 * each, rel=0.11)


@pytest.mark.parametrize("build", [op.exp, op.sqrt, op.nn.relu, lambda x: op.cumsum(x, axis=1), lambda x: op.sum(x, 1)])
def test_choices_functions_and_running_sums_have_no_vectors(build: Callable[..., relax.Expr]) -> None:
    assert not [kind for kind in work_of(build, ROWS) if kind.startswith("saved")]
