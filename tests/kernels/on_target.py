"""Kernels of another processor than the host, whose C runs on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.operators.kinds import Operator


def for_target(kernel: Kernel, own: Target) -> Kernel:
    """The kernel as it is for `own`, whatever target it is asked for."""

    def implement(operator: Operator, target: Target, stored: StoredRows) -> Implementation:
        return kernel.implement(operator, own, stored)

    def is_taken(operator: Operator, target: Target) -> bool:
        """the kernel must take it on its own processor"""
        return kernel.refuses(operator, own) is None

    return replace(kernel, implement=implement, constraints=(is_taken,))


def taken_on(own: Target, kernel: Kernel, operators: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Operators of either rounding that the kernel takes on a target."""
    either = st.builds(replace, operators, rounding=st.sampled_from(("onnx", "tflite")))
    return either.filter(lambda operator: kernel.refuses(operator, own) is None)
