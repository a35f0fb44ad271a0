"""MergeReshapes: axes of one element around products of two activations."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name, static_shape
from relay_passes.simplify.merge_reshapes import MergeReshapes
from tests.passes.modules import without_spans
from tests.support.virtual_machine import run


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = MergeReshapes()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(expected), map_free_vars=True)


@I.ir_module
class Decomposed:
    """Parts of one dense layer as PyTorch cuts them: (tokens, 1, parts, width), and stacks of rank 3."""

    @R.function
    def main(x: R.Tensor((5, 1, 12), "float32")):
        with R.dataflow():
            parts = R.reshape(R.reshape(x, (5, 1, 2, 6)), (1, 5, 1, 2, 6))
            turned = R.squeeze(R.permute_dims(parts, [3, 1, 2, 0, 4]), [3])
            q = R.take(turned, R.const(0, "int64"), axis=0)
            k = R.take(turned, R.const(1, "int64"), axis=0)
            queries = R.reshape(R.permute_dims(R.reshape(q, (5, 2, 3)), [1, 0, 2]), (1, 2, 5, 3))
            keys = R.permute_dims(R.expand_dims(R.permute_dims(R.reshape(k, (5, 2, 3)), [1, 0, 2]), [0]), [0, 1, 3, 2])
            first = R.reshape(R.broadcast_to(queries, (1, 2, 5, 3)), (2, 5, 3))
            scores = R.matmul(first, R.reshape(keys, (2, 3, 5)))
            y = R.reshape(R.permute_dims(R.reshape(scores, (1, 2, 5, 5)), [2, 0, 1, 3]), (5, 10))
            R.output(y)
        return y


def test_heads_of_a_decomposed_block_are_permutations_of_reshapes() -> None:
    after = MergeReshapes()(Decomposed)
    relax.analysis.well_formed(after)
    x = np.random.default_rng(0).standard_normal((5, 1, 12)).astype("float32")
    np.testing.assert_array_equal(run(after, x), run(Decomposed, x))
    names = [op_name(binding.value) for binding in bindings(after["main"])]
    assert names.count("relax.permute_dims") == 3 and names.count("relax.strided_slice") == 2
    assert set(names) == {f"relax.{name}" for name in ("permute_dims", "strided_slice", "matmul", "reshape")}
    product = next(binding.var for binding in bindings(after["main"]) if op_name(binding.value) == "relax.matmul")
    assert static_shape(product) == (1, 2, 5, 5), "its operands are permutations, which FoldPermutes takes up"


def test_functions_without_products_of_activations_are_left_alone() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 4), "float32")):
            with R.dataflow():
                y = R.reshape(R.expand_dims(x, [0]), (4, 1))
                R.output(y)
            return y

    check(Before, Before)


def test_places_outside_and_reshapes_that_join_permuted_axes_stay() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((2, 3), "float32"), places: R.Tensor((2,), "int64")):
            with R.dataflow():
                joined = R.reshape(R.permute_dims(x, [1, 0]), (2, 3))
                taken = R.take(joined, places, axis=0)
                y = R.matmul(taken, R.permute_dims(x, [1, 0]))
                R.output(y)
            return y

    check(Before, Before)
