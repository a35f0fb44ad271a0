"""Kernels of application processors with NEON of AArch64, as processes of QEMU: with and without dot products."""

from __future__ import annotations

import pytest

from codegen_c.kernels.contract import StoredRows
from tests.boards.on_board import assert_on_board
from tests.kernels.harness import HOST
from tests.kernels.host_layers import LAYERS
from tvm_ext.core.platform import Platform

pytestmark = [pytest.mark.board, pytest.mark.process_board]


@pytest.mark.parametrize("name", ["raspberry_pi_4", "raspberry_pi_5"])
def test_bytes_are_those_of_the_references(name: str) -> None:
    """All kernels in one program."""
    pairs = [(kernel, operator) for kernel, layers in LAYERS for operator in layers]
    operators = [operator for _, operator in pairs]
    calls = [kernel.implement(operator, HOST, StoredRows()) for kernel, operator in pairs]
    assert_on_board(Platform.load(name), calls, operators, 5)
