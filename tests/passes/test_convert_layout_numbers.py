"""ConvertLayout: modules compute the same numbers in both layouts."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import build, outputs
from tests.models.agree import run
from tests.passes.layouts import RANDOM, TO_FIRST, TO_LAST, WEIGHTS, conv, convert, formed, image, moves
from tests.passes.modules import module_of
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.model_nodes import ModelState


def test_constants_beside_images_move_too() -> None:
    x = image()
    for shape in ((3, 1, 1), (1, 3, 6, 5), (5,), (6, 5), (1,)):
        bias = relax.const(RANDOM.normal(size=shape).astype("float32"))
        mod = module_of([x], lambda b, bias=bias: relax.op.add(b.emit(conv(x), "c"), bias))
        assert_same_numbers(mod, (1, 2, 6, 5))


@pytest.mark.parametrize("shape", [(3, 1, 1), (5,), (6, 5), (6, 1), (1, 5), (1,), ()])
def test_quantized_constants_beside_images_move_too(shape: tuple[int, ...]) -> None:
    """Those of fewer axes than an image stand along its last ones, which are others then."""
    numbers, x = relax.const(RANDOM.integers(-9, 9, shape).astype("int8")), image(shape=(1, 2, 6, 5))
    zero = relax.const(0, "int8")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        a = b.emit(relax.op.quantize(b.emit(conv(x), "c"), relax.const(0.1), zero, out_dtype="int8"), "a")
        real = b.emit(relax.op.dequantize(numbers, relax.const(0.5), zero), "n")
        total = b.emit(relax.op.add(b.emit(relax.op.dequantize(a, relax.const(0.1), zero), "d"), real), "s")
        return relax.op.quantize(total, relax.const(0.2), zero, out_dtype="int8")

    assert_same_numbers(module_of([x], body), (1, 2, 6, 5))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_concatenations_keep_their_meaning(axis: int) -> None:
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        return b.emit(relax.op.concat([c, b.emit(relax.op.nn.max_pool2d(c, (1, 1)), "p")], axis), "both")

    assert_same_numbers(module_of([x], body), (1, 2, 6, 5))


def test_means_and_reshapes() -> None:
    x = image()
    for keep in (False, True):

        def body(b: relax.BlockBuilder, keep: bool = keep) -> relax.Expr:
            m = b.emit(relax.op.mean(b.emit(conv(x), "c"), [2, 3], keepdims=keep), "m")
            return relax.op.reshape(m, [1, 3])

        assert_same_numbers(module_of([x], body), (1, 2, 6, 5))

    def flatten(b: relax.BlockBuilder) -> relax.Expr:
        return relax.op.reshape(b.emit(conv(x), "c"), [1, 90])

    assert_same_numbers(module_of([x], flatten), (1, 2, 6, 5))


def test_a_result_that_is_also_read_inside() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 2, 6, 5), "float32"),
        ) -> R.Tuple(R.Tensor((1, 3, 4, 3), "float32"), R.Tensor((1, 3, 4, 3), "float32")):
            with R.dataflow():
                c = R.nn.conv2d(x, R.const(WEIGHTS, "float32"))
                p = R.nn.max_pool2d(c, pool_size=(1, 1))
                R.output(c, p)
            return (c, p)

    after = convert(formed(Before))
    assert [result.name for result in outputs(after["main"])] == ["c", "p"]
    assert_same_numbers(Before, (1, 2, 6, 5))


def assert_same_numbers(mod: tvm.IRModule, shape: tuple[int, ...]) -> None:
    """Outputs of the module are the same in both layouts, in TVM's VM."""
    x = RANDOM.normal(size=shape).astype("float32")
    for found, expected in zip(run(convert(formed(mod)), [x]), run(mod, [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_states_on_their_way_to_windows_are_kept_channels_last() -> None:
    """Nobody outside sees a state, so no permutation stands at its border; its first value is turned with it."""
    x, kept = image(shape=(1, 2, 1, 5)), image("kept", (1, 2, 5, 5))
    window = relax.Var("window", relax.TensorType((1, 2, 6, 5), "float32"))
    joined = relax.op.concat([kept, x], 2)
    y, left = conv(window), relax.op.strided_slice(window, [2], [1], [6])
    values = [relax.BlockBuilder().normalize(value) for value in (joined, y, left)]
    results = [relax.Var(name, value.ty) for name, value in zip(("y", "left"), values[1:], strict=True)]
    bound = [relax.VarBinding(var, value) for var, value in zip((window, *results), values, strict=True)]
    begins = RANDOM.normal(size=(1, 2, 5, 5)).astype("float32")
    states = KeptStates(states=(ModelState(name="kept", initial=begins),))
    mod = states.write(tvm.IRModule({"main": build([x, kept], bound, results)}))
    after = convert(formed(mod))
    (state,) = KeptStates.read(after).states
    found = after["main"].params[1]
    assert [int(extent) for extent in found.ty.shape.values] == [1, 5, 5, 2]
    np.testing.assert_array_equal(state.initial, begins.transpose(0, 2, 3, 1))
    assert moves(after) == [TO_LAST, "concat", "nn.conv2d", "strided_slice", TO_FIRST]
    frame = RANDOM.normal(size=(1, 2, 1, 5)).astype("float32")
    wanted, given = run(mod, [frame, begins]), run(after, [frame, state.initial])
    np.testing.assert_allclose(given[0], wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given[1], wanted[1].transpose(0, 2, 3, 1))
