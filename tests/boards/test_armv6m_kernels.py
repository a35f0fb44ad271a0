"""Kernels of Armv6-M on a Cortex-M0+: the instructions themselves against the numpy references."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import Kernel, StoredRows
from codegen_c.targets.armv6m.kernels import products as products_armv6m
from tests.boards.on_board import check_random_operators, run_on_board
from tests.kernels.on_target import taken_on
from tests.kernels.test_q_armv6m import CORTEX_M0PLUS, STRATEGIES, words_of_four_channels
from tests.support.packages import Packages
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.board


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    """One firmware of sixteen random operators, of either type and rounding."""
    operators = taken_on(CORTEX_M0PLUS, kernel, STRATEGIES[kernel])
    check_random_operators(Platform.load("cortex_m0plus"), CORTEX_M0PLUS, kernel, operators)


def test_words_of_four_channels() -> None:
    """The assembly of dense layers at depths with and without remainders, of either type."""
    made = [words_of_four_channels(depth, dtype) for depth in (1, 4, 70) for dtype in ("int8", "uint8")]
    operators = [operator for operator, _ in made]
    calls = [products_armv6m.QDENSE.implement(operator, CORTEX_M0PLUS, StoredRows()) for operator in operators]
    outputs = run_on_board(Platform.load("cortex_m0plus"), operators, calls, [[x] for _, x in made])
    for implementation, (_, x), result in zip(calls, made, outputs, strict=True):
        np.testing.assert_array_equal(result, implementation.reference([x])[0])


def test_keyword_spotting_takes_few_instructions(packages: Packages) -> None:
    """At most 4.5 for each multiply-add, and 1.25 times as many as modelled; output verified."""
    report = packages.shared("kws_int8", "cortex_m0plus", BuildOptions(verify=("host", "qemu"))).report
    verified = report["verify"]["qemu"]
    assert verified["passed"]
    assert verified["instructions"] < 4.5 * report["macs"]
    kernels = {step["kernel"] for step in report["steps"]}
    assert {"qconv2d_armv6m", "qdepthwise_armv6m", "qdense_armv6m"} <= kernels
    modelled = sum(step["modelled_instructions"] for step in report["steps"] if step["macs"])
    assert modelled / 1.25 < verified["instructions"] < 1.25 * modelled
