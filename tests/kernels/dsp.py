"""Helpers for the tests of DSP kernels: a Cortex-M4 as target, also where the C runs on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.operators.kinds import Operator
from codegen_c.targets.registry import target_of
from tests.kernels.quantized import FEW
from tvm_ext.core.platform import Platform

CORTEX_M4 = target_of(Platform.load("cortex_m4").processor)
SOME = settings(FEW, max_examples=7)


def for_cortex_m4(kernel: Kernel) -> Kernel:
    """The kernel as it is for a Cortex-M4, whatever target it is asked for."""

    def implement(operator: Operator, target: Target, stored: StoredRows) -> Implementation:
        return kernel.implement(operator, CORTEX_M4, stored)

    def is_taken(operator: Operator, target: Target) -> bool:
        """the kernel must take it on a Cortex-M4"""
        return kernel.refuses(operator, CORTEX_M4) is None

    return replace(kernel, implement=implement, constraints=(is_taken,))


def taken_by(kernel: Kernel, operators: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Operators of either rounding that the kernel takes on a Cortex-M4."""
    either = st.builds(replace, operators, rounding=st.sampled_from(("onnx", "tflite")))
    return either.filter(lambda operator: kernel.refuses(operator, CORTEX_M4) is None)
