"""Budgets of an encoder block, int8: what some plan meets is not refused; heads of attention one after the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tests.support.transformer_models import encoder_block
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_model, compile_within
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.options import Io
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

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


@pytest.mark.parametrize("io", some_of(["caller"], sweep=["arena", "stream"]))
@pytest.mark.parametrize("quantize", ["int8", "none"])
def test_heads_one_after_the_other_keep_every_bit(block: tvm.IRModule, io: Io, quantize: str, tmp_path: Path) -> None:
    """Keys and values of one head lie there at a time: with all of them, no plan comes to so few bytes."""
    model = block if quantize == "int8" else tvm_ext.load(saved(encoder_block(TOKENS, WIDTH, HEADS), tmp_path))
    within = within_of(model, io)
    whole, least = within(None), within(nearest_of(within, 1))
    assert least.attempts[-1].method.startswith("heads")
    assert any(name.endswith("heads_0_1") for name in least.program.tensors)
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, 0)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, destroyed = run_poisoned(least, inputs)
    assert destroyed and found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8))
