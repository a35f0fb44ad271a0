"""FoldPads: convolutions pad by themselves."""

from __future__ import annotations

import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.simplify.fold_pads import FoldPads
from tests.passes.modules import without_spans

PAD = (0, 0, 0, 0, 0, 1, 2, 1)


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = FoldPads()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(expected), map_free_vars=True)


def test_every_convolution_that_reads_it_pads() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"),
            v: R.Tensor((2, 3, 3, 3), "float32"),
            w: R.Tensor((2, 3, 2, 4), "float32"),
        ):
            with R.dataflow():
                p = R.nn.pad(x, PAD)
                a = R.nn.conv2d(p, v, strides=[2, 2])
                b = R.nn.conv2d(p, w, padding=[0, 1, 0, 1])
                R.output(a, b)
            return a, b

    @I.ir_module
    class Expected:
        @R.function
        def main(
            x: R.Tensor((1, 3, 8, 8), "float32"),
            v: R.Tensor((2, 3, 3, 3), "float32"),
            w: R.Tensor((2, 3, 2, 4), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, v, strides=[2, 2], padding=[0, 2, 1, 1])
                b = R.nn.conv2d(x, w, padding=[0, 3, 1, 2])
                R.output(a, b)
            return a, b

    check(Before, Expected)


def test_channels_last() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 8, 8, 3), "float32"), w: R.Tensor((3, 3, 3, 2), "float32")):
            with R.dataflow():
                p = R.nn.pad(x, (0, 0, 1, 0, 0, 2, 0, 0))
                y = R.nn.conv2d(p, w, data_layout="NHWC", kernel_layout="HWIO")
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 8, 8, 3), "float32"), w: R.Tensor((3, 3, 3, 2), "float32")):
            with R.dataflow():
                y = R.nn.conv2d(x, w, padding=[1, 0, 0, 2], data_layout="NHWC", kernel_layout="HWIO")
                R.output(y)
            return y

    check(Before, Expected)


def test_through_a_grid_that_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "int8"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5), R.const(3, "int8"), axis=1)
                p = R.nn.pad(a, (0, 0, 0, 0, 1, 1))
                q = R.quantize(p, R.const(0.5), R.const(3, "int8"), axis=1, out_dtype="int8")
                b = R.dequantize(q, R.const(0.5), R.const(3, "int8"), axis=1)
                y = R.nn.conv1d(b, w)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "int8"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5), R.const(3, "int8"), axis=1)
                y = R.nn.conv1d(a, w, padding=[1, 1])
                R.output(y)
            return y

    check(Before, Expected)


def test_integers_padded_with_their_zero_point() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "int8"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                p = R.nn.pad(x, (0, 0, 0, 0, 1, 1), pad_value=3.0)
                a = R.dequantize(p, R.const(0.5), R.const(3, "int8"), axis=1)
                y = R.nn.conv1d(a, w)
                q = R.nn.pad(x, (0, 0, 0, 0, 1, 1), pad_value=0.0)
                b = R.dequantize(q, R.const(0.5), R.const(3, "int8"), axis=1)
                z = R.nn.conv1d(b, w)
                R.output(y, z)
            return y, z

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "int8"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5), R.const(3, "int8"), axis=1)
                y = R.nn.conv1d(a, w, padding=[1, 1])
                q = R.nn.pad(x, (0, 0, 0, 0, 1, 1), pad_value=0.0)
                b = R.dequantize(q, R.const(0.5), R.const(3, "int8"), axis=1)
                z = R.nn.conv1d(b, w)
                R.output(y, z)
            return y, z

    check(Before, Expected)


def test_a_grid_that_changes_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "int8"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5), R.const(3, "int8"), axis=1)
                p = R.nn.pad(a, (0, 0, 0, 0, 1, 1))
                q = R.quantize(p, R.const(0.25), R.const(3, "int8"), axis=1, out_dtype="int8")
                b = R.dequantize(q, R.const(0.25), R.const(3, "int8"), axis=1)
                y = R.nn.conv1d(b, w)
                R.output(y)
            return y

    check(Before, Before)


def test_what_no_convolution_can_do_stays() -> None:
    """A value, channels, cut edges, a mirror, more than a window."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "float32"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                value = R.nn.conv1d(R.nn.pad(x, (0, 0, 0, 0, 1, 1), pad_value=1.0), w)
                cut = R.nn.conv1d(R.nn.pad(x, (0, 0, 0, 0, -1, 1)), w)
                mirror = R.nn.conv1d(R.nn.pad(x, (0, 0, 0, 0, 1, 1), "reflect"), w)
                wide = R.nn.conv1d(R.nn.pad(x, (0, 0, 0, 0, 3, 0)), w)
                batch = R.nn.conv1d(R.nn.pad(x, (0, 1, 0, 0, 1, 1)), w)
                R.output(value, cut, mirror, wide, batch)
            return value, cut, mirror, wide, batch

    mod = relax.transform.Normalize()(Before)
    check(mod, mod)


def test_what_something_else_reads_stays() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 3, 8), "float32"), w: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                p = R.nn.pad(x, (0, 0, 0, 0, 1, 1))
                y = R.nn.conv1d(p, w)
                z = R.nn.relu(p)
                q = R.nn.pad(x, (0, 0, 0, 0, 1, 0))
                v = R.nn.conv1d(q, w)
                R.output(y, z, q, v)
            return y, z, q, v

    check(Before, Before)
