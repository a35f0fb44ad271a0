"""SimplifySoftmax: scores without guards of -inf vectors, factors after their product, vectors along the last axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name, permuted_axes
from relay_passes.simplify.simplify_softmax import SimplifySoftmax
from tests.passes.modules import module_of, without_spans
from tests.support.virtual_machine import run


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = SimplifySoftmax()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(expected), map_free_vars=True)


@I.ir_module
class Guarded:
    @R.function
    def main(q: R.Tensor((2, 3, 4), "float32"), k: R.Tensor((2, 4, 3), "float32")):
        with R.dataflow():
            scores = R.matmul(R.multiply(q, R.const(0.5, "float32")), R.multiply(k, R.const(0.5, "float32")))
            shares = R.nn.softmax(scores)
            some = R.astype(R.logical_not(R.equal(scores, R.const(-np.inf, "float32"))), "int8")
            none = R.logical_not(R.astype(R.max(some, axis=[-1], keepdims=True), "bool"))
            y = R.where(none, R.full_like(shares, R.const(0.0, "float32")), shares)
            R.output(y)
        return y


def test_attention_as_pytorch_decomposes_it() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(q: R.Tensor((2, 3, 4), "float32"), k: R.Tensor((2, 4, 3), "float32")):
            with R.dataflow():
                scores = R.multiply(R.matmul(q, k), R.const(0.25, "float32"))
                y = R.nn.softmax(scores)
                R.output(y)
            return y

    check(Guarded, Expected)
    random = np.random.default_rng(0)
    q, k = (random.standard_normal(shape).astype("float32") for shape in ((2, 3, 4), (2, 4, 3)))
    np.testing.assert_allclose(run(SimplifySoftmax()(Guarded), q, k), run(Guarded, q, k), rtol=1e-5)


def test_scores_that_may_be_left_out_keep_their_guard() -> None:
    """They come as an activation; or a constant mask leaves a vector nothing."""

    @I.ir_module
    class Before:
        @R.function
        def main(scores: R.Tensor((1, 2), "float32")):
            with R.dataflow():
                shares = R.nn.softmax(scores)
                some = R.astype(R.logical_not(R.equal(scores, R.const(-np.inf, "float32"))), "int8")
                none = R.logical_not(R.astype(R.max(some, axis=[-1], keepdims=True), "bool"))
                y = R.where(none, R.full_like(shares, R.const(0.0, "float32")), shares)
                R.output(y)
            return y

    check(Before, Before)


def test_a_factor_of_one_side_and_one_that_others_read_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(q: R.Tensor((3, 4), "float32"), k: R.Tensor((4, 3), "float32")):
            with R.dataflow():
                half = R.multiply(q, R.const(0.5, "float32"))
                one = R.matmul(half, k)
                both = R.matmul(half, R.multiply(k, R.const(0.5, "float32")))
                y = R.add(one, both)
                R.output(y)
            return y

    check(Before, Before)


@pytest.mark.parametrize(
    ("shape", "axis", "moves"),
    [((2, 3, 4), 1, "permute_dims"), ((1, 3, 4, 2), -3, "permute_dims"), ((2, 3, 1), 1, "reshape")],
    ids=["tokens", "channels of an image", "axes of one element after it"],
)
@pytest.mark.parametrize("make", [relax.op.nn.softmax, relax.op.nn.log_softmax], ids=["softmax", "log_softmax"])
def test_another_axis_becomes_the_last(
    make: Callable[..., relax.Expr], shape: tuple[int, ...], axis: int, moves: str
) -> None:
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    before = module_of([x], lambda _: make(x, axis=axis))
    after = SimplifySoftmax()(before)
    relax.analysis.well_formed(after)
    first, softmax, last = (binding.value for binding in bindings(after["main"]))
    assert op_name(first) == op_name(last) == f"relax.{moves}" and int(softmax.attrs.axis) == -1
    array = np.random.default_rng(2).standard_normal(shape).astype("float32")
    np.testing.assert_allclose(run(after, array), run(before, array), rtol=1e-5)


def test_channels_of_an_image_become_channels_last() -> None:
    x = relax.Var("x", relax.TensorType((1, 3, 4, 2), "float32"))
    after = SimplifySoftmax()(module_of([x], lambda _: relax.op.nn.softmax(x, axis=1)))
    first, _, last = (binding.value for binding in bindings(after["main"]))
    assert (permuted_axes(first), permuted_axes(last)) == ((0, 2, 3, 1), (0, 3, 1, 2))


def test_operators_with_several_results_are_left_alone() -> None:
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    before = module_of([x], lambda _: relax.op.split(x, 2, axis=1))
    check(before, before)
