"""A loop over time hands states on, reads and stacks elements in both directions, and keeps the bits of sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from codegen_c.tir.legalize import alone
from codegen_c.tir.repeat import repeat_step, step_of
from tvm_ext.core.decisions.composites import RepeatedStep, Symbol
from tvm_ext.frontends.emitter import Emitter
from tvm_ext.verification.judge_floats import NOISE_FACTOR
from tvm_ext.verification.reference_runtimes.float64_runtime import run_reference

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
            offsets = relax.const(np.arange(SIZE, dtype="float32") / 3)
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
    tvm.compile(Symbol(name="loop").write(loop.function), target="llvm")["loop"](*arrays)
    for time in reversed(range(COUNT)) if is_backward else range(COUNT):
        state = state * np.float32(0.5) + (elements[time] @ weights + loop.constants[0])
        np.testing.assert_array_equal(arrays[-1].numpy()[time], 2 * state)
    np.testing.assert_array_equal(arrays[-2].numpy(), state)


def test_the_reference_runs_the_step_in_float64() -> None:
    """Constants of the step are float64 too: float32 would move each result by 1e-8."""
    loop = repeat_step(step(), REPEATED)
    builder = relax.BlockBuilder()
    types = {"h": (1, SIZE), "x": (COUNT, 1, SIZE), "w": (SIZE, SIZE)}
    given = [relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in types.items()]
    with builder.function("main", given):
        with builder.dataflow():
            function = builder.add_func(loop.function, "loop")
            results = [relax.TensorType(types[name], "float32") for name in "hx"]
            arguments = relax.Tuple([*given, *map(relax.const, loop.constants)])
            made = builder.emit(relax.call_tir(function, arguments, results))
            output = builder.emit_output(relax.TupleGetItem(made, 1))
        builder.emit_func_output(output)
    rng = np.random.default_rng(0)
    sample = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in types.items()}
    found = run_reference(tvm.ir.save_json(builder.get()), ["y"], [sample], [])["outputs"][0]["y"]
    state, offsets = sample["h"].astype(np.float64), loop.constants[0].astype(np.float64)
    for time in range(COUNT):
        state = state * 0.5 + (sample["x"][time].astype(np.float64) @ sample["w"].astype(np.float64) + offsets)
        np.testing.assert_allclose(found[time], 2 * state, rtol=1e-13, atol=1e-13)


def _noise_of_gated_steps(gate: np.ndarray, function: str, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return h, and h * function(gate) ** count from a loop in float64 and its noise."""
    builder = relax.BlockBuilder()
    emit = Emitter(builder)
    params = [relax.Var(name, relax.TensorType((1, SIZE), "float32")) for name in ("h", "gate")]
    with builder.function("main", params):
        with builder.dataflow():
            factor = builder.emit(getattr(relax.op, function)(params[1]))
            results = builder.emit_output(relax.Tuple([emit.multiply(params[0], factor)]))
        builder.emit_func_output(results)
    loop = repeat_step(builder.get()["main"], RepeatedStep(count=count, num_states=1))
    builder = relax.BlockBuilder()
    given = [relax.Var(name, relax.TensorType((1, SIZE), "float32")) for name in ("h", "gate")]
    with builder.function("main", given):
        with builder.dataflow():
            called = builder.add_func(loop.function, "loop")
            arguments = relax.Tuple([*given, *map(relax.const, loop.constants)])
            output = builder.emit_output(relax.call_tir(called, arguments, [given[0].ty]))
        builder.emit_func_output(output)
    sample = {"h": np.linspace(0.5, 1, SIZE, dtype=np.float32)[None], "gate": gate.astype(np.float32)}
    found = run_reference(tvm.ir.save_json(builder.get()), ["y"], [sample], [])
    return sample["h"], found["outputs"][0]["y"], found["noise_outputs"][0]["y"]


def test_the_noise_covers_errors_that_repeat_in_each_step() -> None:
    """A gate of 1 - 2.5e-8 is 1 in float32 each time: 4,000 steps differ by 4,000 such errors, of one sign."""
    count, logit = 4000, 17.5
    state, exact, noise = _noise_of_gated_steps(np.full((1, SIZE), logit), "sigmoid", count)
    np.testing.assert_allclose(exact, state / (1 + np.exp(-logit)) ** count, rtol=1e-12)
    drift = np.abs(state - exact)
    assert (drift > 5e-5).all() and (drift < NOISE_FACTOR * noise / 2).all(), "float32 leaves h as it is"
    assert (noise < 2 * 2.0**-23 * count * state.max()).all(), "two roundings a step are all there is"


def test_infinity_has_no_rounding_error_in_a_step() -> None:
    """A rounding error of -inf would be infinite, and exp(-inf + inf) is not a number."""
    gate = np.where(np.arange(SIZE) % 2, -np.inf, 0.0)[None]
    state, exact, noise = _noise_of_gated_steps(gate, "exp", count=3)
    np.testing.assert_array_equal(exact, np.where(np.isinf(gate), 0, state))
    np.testing.assert_array_equal(noise > 0, np.isfinite(gate))
    assert (noise < 1e-6).all()


def test_the_loop_says_which_step_it_runs() -> None:
    loop = repeat_step(step(), REPEATED)
    carried = RepeatedStep.read(loop.function)
    assert replace(carried, step="") == REPEATED
    assert tvm_ffi.structural_equal(step_of(carried)["main"], alone(step())["main"])
    assert "repeated_step" in loop.function.script()
