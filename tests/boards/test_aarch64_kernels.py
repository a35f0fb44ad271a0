"""Kernels of application processors with NEON of AArch64, as processes of QEMU: with and without dot products."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c.kernels.contract import StoredRows
from tests.boards.test_dsp_kernels import run_on_board
from tests.kernels.harness import HOST
from tests.kernels.host_layers import LAYERS
from tests.kernels.quantized import elements
from tvm_ext.core.platform import Platform

pytestmark = [pytest.mark.board, pytest.mark.process_board]


@pytest.mark.parametrize("name", ["raspberry_pi_4", "raspberry_pi_5"])
def test_bytes_are_those_of_the_references(name: str) -> None:
    """All kernels in one program."""
    pairs = [(kernel, operator) for kernel, layers in LAYERS for operator in layers]
    operators = [operator for _, operator in pairs]
    calls = [kernel.implement(operator, HOST, StoredRows()) for kernel, operator in pairs]
    inputs = [[elements(tensor, 5 + i) for i, tensor in enumerate(operator.inputs)] for operator in operators]
    outputs = run_on_board(Platform.load(name), operators, calls, inputs)
    for call, arrays, output in zip(calls, inputs, outputs, strict=True):
        np.testing.assert_array_equal(output, call.reference(arrays)[0], call.kernel)
