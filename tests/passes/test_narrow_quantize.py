"""NarrowQuantize: a clip of integers stands in front of their quantize."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, constant, op_name
from relay_passes.simplify.narrow_quantize import NarrowQuantize
from tests.models.agree import run


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = NarrowQuantize()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_a_clip_of_computed_integers_moves() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "uint8"):
            with R.dataflow():
                a = R.nn.relu(x)
                q = R.quantize(a, R.const(0.5, "float32"), R.const(3, "uint8"), out_dtype="uint8")
                c = R.clip(q, 1, 15)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "uint8"):
            with R.dataflow():
                a = R.nn.relu(x)
                b = R.clip(a, -1.0, 6.0)
                q = R.quantize(b, R.const(0.5, "float32"), R.const(3, "uint8"), out_dtype="uint8")
                R.output(q)
            return q

    check(Before, Expected)


def test_inputs_moves_and_integers_that_others_read_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((2, 2), "float32")):
            with R.dataflow():
                a = R.quantize(x, R.const(0.5, "float32"), R.const(3, "uint8"), out_dtype="uint8")
                b = R.clip(a, 1, 15)
                c = R.reshape(y, R.shape([4]))
                d = R.quantize(c, R.const(0.5, "float32"), R.const(3, "uint8"), out_dtype="uint8")
                e = R.clip(d, 1, 15)
                f = R.nn.relu(x)
                g = R.quantize(f, R.const(0.5, "float32"), R.const(3, "uint8"), out_dtype="uint8")
                h = R.clip(g, 1, 15)
                R.output(b, e, g, h)
            return b, e, g, h

    check(Before, Before)


def clipped(shape: tuple[int, ...], scale: relax.Expr, point: relax.Expr, low: int, high: int) -> tvm.IRModule:
    """A clip of an input that is negated and quantized to int8, by axis 0 where there are several scales."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            q = builder.emit(relax.op.quantize(builder.emit(relax.op.negative(x)), scale, point, 0, "int8"))
            result = builder.emit_output(relax.op.clip(q, low, high))
        builder.emit_func_output(result)
    return builder.get()


def test_scales_for_each_channel_stay() -> None:
    scales, points = constant(np.array([0.5, 0.25], np.float32)), constant(np.array([1, 2], np.int8))
    before = clipped((2, 3), scales, points, -7, 7)
    check(before, before)


@pytest.mark.parametrize("scale", [0.1, 0.0123, 1 / 3, 7e-5, 1234.5])
def test_every_integer_is_the_same(scale: float) -> None:
    """Inputs at, right below and right above each tie between two integers."""
    ties = (np.arange(-140, 141) - 0.5).astype(np.float32) * np.float32(scale)
    above, below = (np.nextafter(ties, np.float32(end)) for end in (np.inf, -np.inf))
    values = np.concatenate([ties, above, below, np.array([np.inf, -np.inf], np.float32)])
    for low, high in ((-127, 127), (-8, 7), (3, 3)):
        before = clipped(
            values.shape, constant(np.array(scale, np.float32)), constant(np.array(-5, np.int8)), low, high
        )
        after = NarrowQuantize()(before)
        assert [op_name(binding.value) for binding in bindings(after["main"])][-1] == "relax.quantize"
        np.testing.assert_array_equal(run(after, [values])[0], run(before, [values])[0])
