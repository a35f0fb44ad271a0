"""RecognizeNormalizations: LayerNorm and RMSNorm as exporters write them out."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.recognize_normalizations import RecognizeNormalizations
from tests.passes.modules import without_spans
from tests.support.virtual_machine import run


@I.ir_module
class LayerNorm:
    """As PyTorch's exporter writes opset 16: Pow, Sqrt, Div, and a weight and bias."""

    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            centered = R.subtract(x, R.mean(x, axis=[-1], keepdims=True))
            squares = R.power(centered, R.const(2.0, "float32"))
            variance = R.mean(squares, axis=[-1], keepdims=True)
            length = R.sqrt(R.add(variance, R.const(0.5, "float32")))
            scaled = R.multiply(R.divide(centered, length), R.const([1.0, 2.0, 3.0, 4.0], "float32"))
            y = R.add(scaled, R.const([0.5, 0.5, 0.0, 1.0], "float32"))
            R.output(y)
        return y


@I.ir_module
class RmsNorm:
    """As Llama's: products by the inverse root, the weight first."""

    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            squares = R.mean(R.multiply(x, x), axis=[2], keepdims=True)
            inverse = R.rsqrt(R.add(R.const(0.5, "float32"), squares))
            y = R.multiply(R.const([1.0, 2.0, 3.0, 4.0], "float32"), R.multiply(x, inverse))
            R.output(y)
        return y


@I.ir_module
class InverseRoot:
    """1 / sqrt, computed apart from the centered vectors; without weight and bias."""

    @R.function
    def main(x: R.Tensor((2, 3, 4), "float32")):
        with R.dataflow():
            mean = R.mean(x, axis=[-1], keepdims=True)
            apart = R.subtract(x, mean)
            squares = R.mean(R.multiply(apart, apart), axis=[-1], keepdims=True)
            root = R.sqrt(R.add(squares, R.const(0.5, "float32")))
            y = R.multiply(R.divide(R.const(1.0, "float32"), root), R.subtract(x, mean))
            R.output(y)
        return y


@pytest.mark.parametrize(
    ("before", "operator"),
    [(LayerNorm, "relax.nn.layer_norm"), (RmsNorm, "relax.nn.rms_norm"), (InverseRoot, "relax.nn.layer_norm")],
)
def test_what_is_written_out_becomes_one_operator(before: tvm.IRModule, operator: str) -> None:
    after = RecognizeNormalizations()(before)
    relax.analysis.well_formed(after)
    assert [op_name(binding.value) for binding in bindings(after["main"])] == [operator]
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("float32")
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-6)


def test_layer_norm() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((2, 3, 4), "float32")):
            with R.dataflow():
                y = R.nn.layer_norm(
                    x, R.const([1.0, 2.0, 3.0, 4.0], "float32"), R.const([0.5, 0.5, 0.0, 1.0], "float32"), axes=[-1],
                    epsilon=0.5,
                )  # fmt: skip
                R.output(y)
            return y

    after = RecognizeNormalizations()(LayerNorm)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(Expected), map_free_vars=True)


def test_other_axes_are_left_alone() -> None:
    """A mean over rows, another vector's length, and a root without its square."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4, 4), "float32"), z: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                rows = R.mean(R.multiply(x, x), axis=[0], keepdims=True)
                a = R.divide(x, R.sqrt(R.add(rows, R.const(0.5, "float32"))))
                columns = R.mean(R.multiply(z, z), axis=[1], keepdims=True)
                b = R.divide(a, R.sqrt(R.add(columns, R.const(0.5, "float32"))))
                means = R.mean(b, axis=[1], keepdims=True)
                y = R.divide(b, R.sqrt(R.add(means, R.const(0.5, "float32"))))
                R.output(y)
            return y

    after = RecognizeNormalizations()(Before)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(Before), map_free_vars=True)


def test_what_others_read_in_between_is_computed_for_them() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")):
            with R.dataflow():
                squares = R.mean(R.multiply(x, x), axis=[-1], keepdims=True)
                scaled = R.divide(x, R.sqrt(R.add(squares, R.const(0.5, "float32"))))
                y = R.multiply(scaled, R.const([1.0, 2.0, 3.0, 4.0], "float32"))
                R.output(squares, scaled, y)
            return squares, scaled, y

    after = RecognizeNormalizations()(Before)
    names = [op_name(binding.value) for binding in bindings(after["main"])]
    assert names == ["relax.multiply", "relax.mean", "relax.nn.rms_norm", "relax.multiply"]
