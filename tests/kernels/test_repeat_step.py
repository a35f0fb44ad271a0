"""A step in a loop over time: states go on, elements are read and stacked either way, and sums keep their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.tir.repeat import repeat_step, step_of
from tvm_ext.core.decisions.composites import RepeatedStep
from tvm_ext.frontends.onnx.operators.emitter import Emitter

COUNT, SIZE = 5, 8
REPEATED = RepeatedStep(count=COUNT, num_states=1, num_sequences=1)


def step() -> relax.Function:
    """h' = h / 2 + x @ w + constant; each step gives 2 h'."""
    builder = relax.BlockBuilder()
    emit = Emitter(builder)
    state, element = (relax.Var(name, relax.TensorType((1, SIZE), "float32")) for name in "hx")
    weights = relax.Var("w", relax.TensorType((SIZE, SIZE), "float32"))
    with builder.function("main", [state, element, weights]):
        with builder.dataflow():
            offsets = relax.const(np.arange(SIZE, dtype="float32"))
            product = emit.add(emit.matmul(element, weights), offsets)
            after = builder.emit(emit.add(emit.multiply(state, 0.5), product))
            results = builder.emit_output(relax.Tuple([after, emit.multiply(after, 2.0)]))
        builder.emit_func_output(results)
    return builder.get()["main"]


@pytest.mark.parametrize("is_backward", [False, True])
def test_each_step_takes_the_state_of_the_one_before(is_backward: bool) -> None:
    loop = repeat_step(step(), replace(REPEATED, is_backward=is_backward))
    rng = np.random.default_rng(0)
    state, elements, weights = (
        rng.integers(-4, 5, shape).astype(np.float32) for shape in ((1, SIZE), (COUNT, 1, SIZE), (SIZE, SIZE))
    )
    stacked = np.empty((COUNT, 1, SIZE), np.float32)
    arrays = [*map(tvm.runtime.tensor, (state, elements, weights, *loop.constants, np.empty_like(state), stacked))]
    tvm.compile(tvm.IRModule({"repeated": loop.function}), target="llvm")["repeated"](*arrays)
    for time in reversed(range(COUNT)) if is_backward else range(COUNT):
        state = state * np.float32(0.5) + (elements[time] @ weights + loop.constants[0])
        np.testing.assert_array_equal(arrays[-1].numpy()[time], 2 * state)
    np.testing.assert_array_equal(arrays[-2].numpy(), state)


def test_the_loop_says_which_step_it_runs() -> None:
    loop = repeat_step(step(), REPEATED)
    carried = RepeatedStep.read(loop.function)
    assert replace(carried, step="") == REPEATED
    assert tvm_ffi.structural_equal(step_of(carried), step())
    assert "repeated_step" in loop.function.script()
