"""RecognizeGroupNorms: InstanceNorm and GroupNorm as exporters and importers write them out."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.recognize_group_norms import RecognizeGroupNorms
from tests.passes.modules import without_spans
from tests.support.virtual_machine import run

GROUP_NORM = "relax.nn.group_norm"


@I.ir_module
class InstanceNorm:
    """As TVM imports ONNX's operator."""

    @R.function
    def main(x: R.Tensor((2, 4, 3, 2), "float32")):
        with R.dataflow():
            centered = R.subtract(x, R.mean(x, axis=[2, 3], keepdims=True))
            variance = R.variance(x, axis=[2, 3], keepdims=True)
            normal = R.divide(centered, R.sqrt(R.add(variance, R.const(0.5, "float32"))))
            scaled = R.multiply(normal, R.const([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], "float32"))
            y = R.add(scaled, R.const([[[0.5]], [[0.5]], [[0.0]], [[1.0]]], "float32"))
            R.output(y)
        return y


@I.ir_module
class GroupNorm:
    """As PyTorch's exporter writes it: an InstanceNorm of groups between two reshapes, then weights and biases."""

    @R.function
    def main(x: R.Tensor((2, 4, 3, 2), "float32")):
        with R.dataflow():
            groups = R.reshape(x, R.shape([2, 2, 12]))
            centered = R.subtract(groups, R.mean(groups, axis=[2], keepdims=True))
            variance = R.variance(groups, axis=[2], keepdims=True)
            normal = R.divide(centered, R.sqrt(R.add(variance, R.const(0.5, "float32"))))
            own = R.add(R.multiply(normal, R.const([[2.0], [3.0]], "float32")), R.const([[0.5], [1.0]], "float32"))
            image = R.reshape(own, R.shape([2, 4, 3, 2]))
            scaled = R.multiply(image, R.const([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], "float32"))
            y = R.add(scaled, R.const([[[0.5]], [[0.5]], [[0.0]], [[1.0]]], "float32"))
            R.output(y)
        return y


@I.ir_module
class Operator:
    """As ONNX's GroupNormalization of opset 21 is imported: an operator without weights, which follow it."""

    @R.function
    def main(x: R.Tensor((2, 4, 3, 2), "float32")):
        with R.dataflow():
            normal = R.nn.group_norm(
                x, R.const([1.0, 1.0, 1.0, 2.0], "float32"), R.const([0.0, 0.0, 0.0, 1.0], "float32"), num_groups=2,
                channel_axis=1, axes=[2, 3], epsilon=0.5,
            )  # fmt: skip
            scaled = R.multiply(normal, R.const([[[1.0]], [[2.0]], [[3.0]], [[4.0]]], "float32"))
            y = R.add(scaled, R.const([[[0.5]], [[0.5]], [[0.0]], [[1.0]]], "float32"))
            R.output(y)
        return y


@pytest.mark.parametrize(("before", "groups"), [(InstanceNorm, 4), (GroupNorm, 2), (Operator, 2)])
def test_what_is_written_out_becomes_one_operator(before: tvm.IRModule, groups: int) -> None:
    after = RecognizeGroupNorms()(before)
    relax.analysis.well_formed(after)
    calls = [binding.value for binding in bindings(after["main"])]
    assert [op_name(call) for call in calls] == [GROUP_NORM]
    assert int(calls[0].attrs.num_groups) == groups
    x = np.random.default_rng(0).standard_normal((2, 4, 3, 2)).astype("float32")
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-5, atol=1e-6)


def test_other_axes_and_other_readers_are_left_alone() -> None:
    """Statistics over rows alone, and the variance of another tensor."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 4, 3, 2), "float32"), z: R.Tensor((2, 4, 3, 2), "float32")):
            with R.dataflow():
                rows = R.variance(x, axis=[2], keepdims=True)
                centered = R.subtract(x, R.mean(x, axis=[2], keepdims=True))
                a = R.divide(centered, R.sqrt(R.add(rows, R.const(0.5, "float32"))))
                other = R.variance(z, axis=[2, 3], keepdims=True)
                apart = R.subtract(a, R.mean(a, axis=[2, 3], keepdims=True))
                y = R.divide(apart, R.sqrt(R.add(other, R.const(0.5, "float32"))))
                R.output(y)
            return y

    after = RecognizeGroupNorms()(Before)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(Before), map_free_vars=True)


def test_factors_of_rows_stay_apart() -> None:
    """A factor for each row is no weight of a channel, and a result that is returned stays a result."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3, 3), "float32")):
            with R.dataflow():
                centered = R.subtract(x, R.mean(x, axis=[2], keepdims=True))
                variance = R.variance(x, axis=[2], keepdims=True)
                normal = R.divide(centered, R.sqrt(R.add(variance, R.const(0.5, "float32"))))
                scaled = R.multiply(normal, R.const([1.0, 2.0, 3.0], "float32"))
                y = R.multiply(scaled, R.const([[1.0], [2.0], [3.0]], "float32"))
                R.output(scaled, y)
            return scaled, y

    after = RecognizeGroupNorms()(Before)
    names = [op_name(binding.value) for binding in bindings(after["main"])]
    assert names == [GROUP_NORM, "relax.multiply", "relax.multiply"]
