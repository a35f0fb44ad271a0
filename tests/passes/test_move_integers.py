"""MoveIntegers: moves of dequantized tensors move integers."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.move_integers import MoveIntegers
from tests.passes.modules import module_of
from tests.support.virtual_machine import run


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = MoveIntegers()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_concat_of_unequal_scales_requantizes_what_differs() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "int8"), y: R.Tensor((2, 4), "int8")) -> R.Tensor((2, 7), "int8"):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
                b = R.dequantize(y, R.const(0.25, "float32"), R.const(3, "int8"))
                c = R.concat((a, b), axis=1)
                d = R.quantize(c, R.const(0.5, "float32"), R.const(3, "int8"), out_dtype="int8")
                R.output(d)
            return d

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3), "int8"), y: R.Tensor((2, 4), "int8")) -> R.Tensor((2, 7), "int8"):
            with R.dataflow():
                b = R.dequantize(y, R.const(0.25, "float32"), R.const(3, "int8"))
                q = R.quantize(b, R.const(0.5, "float32"), R.const(3, "int8"), out_dtype="int8")
                d = R.concat((x, q), axis=1)
                R.output(d)
            return d

    check(Before, Expected)


def test_padding_with_zero_pads_with_the_zero_point() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tensor((6,), "int8"):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
                b = R.nn.pad(a, [1, 1])
                c = R.quantize(b, R.const(0.5, "float32"), R.const(3, "int8"), out_dtype="int8")
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tensor((6,), "int8"):
            with R.dataflow():
                c = R.nn.pad(x, [1, 1], pad_value=3)
                R.output(c)
            return c

    check(Before, Expected)


def test_leaves_alone_what_is_read_as_floats_too() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tuple(R.Tensor((6,), "float32"), R.Tensor((6,), "int8")):
            with R.dataflow():
                a = R.abs(x)
                b = R.reshape(a, (6,))
                c = R.quantize(b, R.const(0.5, "float32"), R.const(3, "int8"), out_dtype="int8")
                R.output(b, c)
            return (b, c)

    check(Before, Before)


def test_a_pool_that_a_layer_reads_is_one_of_integers() -> None:
    """Its largest elements lie on the grid of what it reads, so they are quantized without a loss."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
                b = R.nn.max_pool2d(a, pool_size=[2, 2], strides=[2, 2])
                c = R.nn.relu(b)
                R.output(c)
            return c

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(3, "int8"))
                b = R.nn.max_pool2d(a, pool_size=[2, 2], strides=[2, 2])
                q = R.quantize(b, R.const(0.5, "float32"), R.const(3, "int8"), out_dtype="int8")
                d = R.dequantize(q, R.const(0.5, "float32"), R.const(3, "int8"))
                c = R.nn.relu(d)
                R.output(c)
            return c

    check(Before, Expected)


def test_rows_of_an_embedding_are_looked_up_as_integers() -> None:
    """The table is a quantized constant, the places come at run time; the same table in a product stays as it is."""
    ids = relax.Var("ids", relax.TensorType((1, 3), "int64"))
    x = relax.Var("x", relax.TensorType((1, 5), "float32"))
    table = np.random.default_rng(0).integers(-127, 128, (5, 4)).astype("i1")

    def embedded(builder: relax.BlockBuilder) -> relax.Expr:
        parameters = relax.const(np.float32(0.5)), relax.const(np.int8(3))
        rows = builder.emit(relax.op.dequantize(relax.const(table), *parameters))
        taken = builder.emit(relax.op.take(rows, ids, axis=0))
        integers = builder.emit(relax.op.quantize(taken, *parameters, out_dtype="int8"))
        product = builder.emit(relax.op.matmul(x, rows))
        return relax.op.add(builder.emit(relax.op.dequantize(integers, *parameters)), product)

    before = module_of([ids, x], embedded)
    after = MoveIntegers()(before)
    takes = [b.value for b in bindings(after["main"]) if op_name(b.value) == "relax.take"]
    assert [str(take.args[0].ty.dtype) for take in takes] == ["int8"]
    assert [op_name(b.value) for b in bindings(after["main"])].count("relax.quantize") == 0
    arrays = np.array([[4, 0, 2]], "i8"), np.ones((1, 5), "f4")
    np.testing.assert_array_equal(run(after, *arrays), run(before, *arrays))
