"""Kernels for Helium on the host: the same C with the plain loops of tvm_ext_helium.h, held against the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Operator
from codegen_c.targets.registry import target_of
from tests.kernels.harness import run_every_way
from tests.kernels.quantized import elements
from tvm_ext.core.platform import Platform

M55 = target_of(Platform.load("cortex_m55").processor)
M55_SIZE = target_of(M55.processor, optimize="size")


def implementation(kernel: Kernel, operator: Operator, stored: StoredRows, target: Target = M55) -> Implementation:
    refusal = kernel.refuses(operator, target)
    assert refusal is None, refusal
    return kernel.implement(operator, target, stored)


def takes(kernel: Kernel) -> Callable[[Operator], bool]:
    """Filter of operators for hypothesis: those the kernel does not refuse."""
    return lambda operator: kernel.refuses(operator, M55) is None


def assert_same_bytes(kernel: Kernel, operators: list[Operator], seed: int, target: Target = M55) -> None:
    """Each operator's C, run every way, gives the portable kernel's bytes."""
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    every = run_every_way(operators, inputs, lambda operator, stored: implementation(kernel, operator, stored, target))
    for operator, arrays, runs in zip(operators, inputs, every, strict=True):
        expected = portable(operator).reference(arrays)[0]
        np.testing.assert_array_equal(runs.implementation.reference(arrays)[0], expected)
        np.testing.assert_array_equal(runs.whole, expected)
        for way, found in runs.others.items():
            np.testing.assert_array_equal(found, expected, err_msg=way)


def portable(operator: Operator) -> Implementation:
    """Implementation for a processor without vectors."""
    chosen = select(operator, target_of(replace(M55.processor, simd="none")))
    assert isinstance(chosen, Implementation), chosen
    return chosen
