"""Kernels of WebAssembly's vectors in wasmtime: the instructions themselves against the numpy references."""

from __future__ import annotations

import pytest

from codegen_c.kernels.contract import Kernel
from codegen_c.targets.simd128.kernels import products
from tests.boards.on_board import check_random_operators
from tests.kernels.on_target import taken_on
from tests.kernels.test_q_simd128 import NINE_BITS, SIMD128, STRATEGIES
from tvm_ext.core.platform import Platform

pytestmark = pytest.mark.wasm_board

PLATFORM = Platform.load("wasm")


ON_WASM = {**STRATEGIES, products.QCONV2D_NINE_BITS: NINE_BITS[products.QCONV2D_NINE_BITS]}
"""Kernels, and operators that most of them take. One kernel for 9 bits is enough, because all add the same offset."""


@pytest.mark.parametrize("kernel", ON_WASM, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    """One firmware of sixteen random operators, of either type and rounding."""
    check_random_operators(PLATFORM, SIMD128, kernel, taken_on(SIMD128, kernel, ON_WASM[kernel]))
