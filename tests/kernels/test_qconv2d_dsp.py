"""Convolutions by the DSP extension: C with its plain fallback against the portable kernels' reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen_c.kernels import qconv2d_dsp, select
from codegen_c.kernels.contract import Implementation, StoredRows
from codegen_c.operators import QConv2d, Window
from tests.kernels.dsp import CORTEX_M4, for_cortex_m4
from tests.kernels.harness import HOST
from tests.kernels.quantized import FEW, assert_c_equals_reference, elements, seeds
from tests.kernels.test_q_refusals import CONV
from tests.kernels.test_qconv2d import convolutions

ungrouped = convolutions().filter(lambda operator: operator.groups == 1)
CASES = settings(FEW, max_examples=12)


@CASES
@given(st.lists(ungrouped, min_size=1, max_size=5), seeds)
def test_conv2d(operators: list[QConv2d], seed: int) -> None:
    inputs = [[elements(operator.inputs[0], seed)] for operator in operators]
    assert_c_equals_reference(list(operators), inputs, for_cortex_m4(qconv2d_dsp.KERNEL))
