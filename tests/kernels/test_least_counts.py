"""Loads, stores and arithmetic that TVM's definitions of operators need at least, as the benchmark counts them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tvm import relax
from tvm.relax import op

from benchmarks.measure.generic_definitions import cases
from benchmarks.measure.least_counts import least_counts, least_instructions
from codegen_c.tir.legalize import legalize_composite
from tests.kernels.tir_cases import Case

ROWS = ((24, 30), "float32")


def counts_of(build: Callable[..., relax.Expr], *inputs: tuple[tuple[int, ...], str]) -> dict[str, int]:
    return least_counts(legalize_composite(Case(name="counted", build=build, inputs=inputs).function()))


COUNTS = {
    "relu": {"load": 720, "arithmetic": 720, "store": 720},
    "mish": {"load": 720, "arithmetic": 4 * 720, "exp": 720, "log": 720, "tanh": 720, "store": 720},
    "sum_2_3": {"load": 2880, "arithmetic": 2880, "store": 6},
    "layer_norm": {"load": 5 * 720, "arithmetic": 8 * 720 + 5 * 24, "sqrt": 24, "store": 720},
    "pad_constant": {"load": 720, "store": 26 * 34},
    "pad_reflect": {"load": 26 * 34, "store": 26 * 34},
    "tile": {"load": 48 * 90, "store": 48 * 90},
    "broadcast_to": {"load": 24, "store": 720},
    "triu": {"load": 420, "store": 720},
    "take": {"load": 16 + 16 * 30, "store": 16 * 30},
    "take_1": {"load": 2 * 24 * 16, "store": 24 * 16},
    "scatter_elements": {"load": 720 + 2 * 24 * 16, "store": 720},
    "argmax": {"load": 480 + 5 * 480, "arithmetic": 5 * 480 + 480, "store": 480},
    "matmul": {"load": 2 * 24 * 12 * 30, "arithmetic": 2 * 24 * 12 * 30, "store": 24 * 12},
    "conv2d": {"load": 2 * 1920 * 54, "arithmetic": 2 * 1920 * 54, "store": 1920},
    "max_pool2d": {"load": 720 * 9, "arithmetic": 720 * 9, "store": 720},
    "resize_linear": {"load": 4 * 6480, "arithmetic": 9 * 6480, "store": 6480},
}
"""Of definitions of the benchmark; what a window reads of zeros around an image counts, too."""


@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_definitions(name: str) -> None:
    case = next(case for case in cases() if case.name == name)
    assert least_counts(legalize_composite(case.function())) == COUNTS[name]


def test_what_does_not_depend_on_inner_loops_counts_once() -> None:
    found = counts_of(lambda x, y: op.add(x, op.exp(y)), ROWS, ((24, 1), "float32"))
    assert found == {"load": 720 + 24, "exp": 24, "arithmetic": 720, "store": 720}


def test_a_chain_reads_each_element_once_and_a_reduction_again() -> None:
    assert counts_of(lambda x: op.multiply(x, op.exp(op.negative(x))), ROWS)["load"] == 720
    assert counts_of(lambda x: op.subtract(x, op.max(x, -1, keepdims=True)), ROWS)["load"] == 2 * 720


def test_instructions_are_one_each_and_those_of_calls() -> None:
    assert least_instructions({"load": 10, "store": 10, "arithmetic": 5, "exp": 10}, {"exp": 60.5}) == 630
