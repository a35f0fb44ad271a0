"""Kernels for Helium on the host: the same C with the plain loops of tvm_ext_helium.h, held against the reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen_c.kernels import select
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.operators import Operator
from tests.kernels.harness import compile_kernels, run_in_place, run_kernel, run_ring, smallest_rings
from tests.kernels.quantized import elements
from tvm_ext.core.platform import Platform

M55 = Target(processor=Platform.load("cortex_m55").processor)
M55_SIZE = Target(processor=M55.processor, optimize="size")


def implementation(kernel: Kernel, operator: Operator, stored: StoredRows, target: Target = M55) -> Implementation:
    refusal = kernel.refuses(operator, target)
    assert refusal is None, refusal
    return kernel.implement(operator, target, stored)


def takes(kernel: Kernel) -> Callable[[Operator], bool]:
    """Filter of operators for hypothesis: those the kernel does not refuse."""
    return lambda operator: kernel.refuses(operator, M55) is None


def assert_same_bytes(kernel: Kernel, operators: list[Operator], seed: int, target: Target = M55) -> None:
    """Each operator's C, whole, by rows, in the smallest rings and in place, gives the portable kernel's bytes."""
    inputs = [[elements(t, seed + i) for i, t in enumerate(operator.inputs)] for operator in operators]
    plain = [implementation(kernel, operator, StoredRows(), target) for operator in operators]
    single = [bool(i.spatial) and o.output.shape[0] == 1 for i, o in zip(plain, operators, strict=True)]
    stored = [smallest_rings(i) if one else None for i, one in zip(plain, single, strict=True)]
    rings = [implementation(kernel, o, rows, target) for o, rows in zip(operators, stored, strict=True) if rows]
    entries = compile_kernels([*plain, *rings])
    ringed = iter(zip(rings, entries[len(plain) :], strict=True))
    for operator, arrays, whole, rows, entry in zip(
        operators, inputs, plain, stored, entries[: len(plain)], strict=True
    ):
        expected = portable(operator).reference(arrays)[0]
        np.testing.assert_array_equal(whole.reference(arrays)[0], expected)
        np.testing.assert_array_equal(run_kernel(operator, whole, arrays, entry=entry)[0], expected)
        if whole.spatial:
            one_by_one = [(h, h + 1) for h in range(whole.spatial.output_rows)]
            np.testing.assert_array_equal(run_kernel(operator, whole, arrays, one_by_one, entry)[0], expected)
        if rows:
            ring, ring_entry = next(ringed)
            np.testing.assert_array_equal(run_ring(operator, ring, rows, arrays, ring_entry)[0], expected)
        for index in whole.in_place:
            if operator.inputs[index].dtype == operator.output.dtype:
                np.testing.assert_array_equal(run_in_place(whole, arrays, index, entry), expected)


def portable(operator: Operator) -> Implementation:
    """What a processor without vectors gets."""
    chosen = select(operator, Target(processor=replace(M55.processor, simd="none")))
    assert isinstance(chosen, Implementation), chosen
    return chosen
