"""Helpers for the tests of DSP kernels: a Cortex-M4 or M7 as target, also where the C runs on the host."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from codegen_c.kernels.contract import Kernel
from codegen_c.kernels.shared import common_shift, own_rounding
from codegen_c.targets.dsp.kernels import convolution
from codegen_c.targets.registry import target_of
from tests.kernels.on_target import for_target, taken_on
from tests.kernels.quantized import FEW
from tvm_ext.core.platform import Platform

CORTEX_M4 = target_of(Platform.load("cortex_m4").processor)
CORTEX_M7 = target_of(Platform.load("cortex_m7").processor, core="cortex-m7")
SOME = settings(FEW, max_examples=7)


def for_cortex_m4(kernel: Kernel) -> Kernel:
    """The kernel as it is for a Cortex-M4, whatever target it is asked for."""
    return for_target(kernel, CORTEX_M4)


def taken_by(kernel: Kernel, operators: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Operators of either rounding that the kernel takes on a Cortex-M4."""
    return taken_on(CORTEX_M4, kernel, operators)


def take_only_shift(shift: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let kernels take no other common shift, nor weights that were packed for another one."""
    monkeypatch.setattr(common_shift, "SHIFTS", (shift,))
    monkeypatch.setattr(own_rounding, "SHIFTS", (shift,))
    for cached in ("packed", "quads"):
        monkeypatch.setattr(convolution, cached, getattr(convolution, cached).__wrapped__)
