"""Budgets of an encoder block, int8: what some plan meets is not refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import saved
from tests.support.transformer_models import encoder_block
from tvm_ext import BuildOptions
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import Io
from tvm_ext.core.platform import Platform
from tvm_ext.pipeline import compile_model, compile_within

BOARD = "cortex_m4"
TOKENS, WIDTH, HEADS = 16, 16, 2


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """The block in QDQ form."""
    path = saved(encoder_block(TOKENS, WIDTH, HEADS), tmp_path_factory.mktemp("block"))
    x = np.random.default_rng(0).standard_normal((2, 1, TOKENS, WIDTH)).astype(np.float32)
    return compile_model(tvm_ext.load(path), Platform.load(BOARD), BuildOptions(quantize="int8"), {"x": x})[0]


def within_of(block: tvm.IRModule, io: Io) -> Callable[[int | None], Compiled]:
    return compile_within(block, Platform.load(BOARD), BuildOptions(memories="default", io=io))


def nearest_of(within: Callable[[int | None], Compiled], budget: int) -> int:
    with pytest.raises(DoesNotFit) as found:
        within(budget)
    assert found.value.nearest_bytes is not None
    return found.value.nearest_bytes


def test_the_nearest_is_the_least_whatever_was_asked_for(block: tvm.IRModule) -> None:
    """Results computed again by rows come out smaller than they were asked for; where rows alone are enough, the search
    for them finds nothing."""
    within = within_of(block, "arena")
    least = nearest_of(within, 1)
    assert {nearest_of(within, budget) for budget in (least // 2, least - 1)} == {least}
    assert within(least).plan.arena_bytes == least
