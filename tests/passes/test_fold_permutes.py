"""FoldPermutes: products of activations read their operands as they lie."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.fold_permutes import FoldPermutes
from tests.passes.modules import module_of, without_spans
from tests.support.virtual_machine import run


def check(before: tvm.IRModule, expected: tvm.IRModule) -> tvm.IRModule:
    after = FoldPermutes()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(without_spans(after), without_spans(expected), map_free_vars=True)
    return after


@I.ir_module
class Attention:
    @R.function
    def main(
        q: R.Tensor((1, 6, 2, 4), "float32"),
        k: R.Tensor((1, 5, 2, 4), "float32"),
        v: R.Tensor((1, 5, 2, 4), "float32"),
    ):
        with R.dataflow():
            heads = R.permute_dims(q, [0, 2, 1, 3])
            keys = R.permute_dims(R.permute_dims(k, [0, 2, 1, 3]), [0, 1, 3, 2])
            values = R.permute_dims(v, [0, 2, 1, 3])
            scores = R.multiply(R.matmul(heads, keys), R.const(0.5, "float32"))
            sums = R.matmul(R.nn.softmax(scores), values)
            y = R.permute_dims(sums, [0, 2, 1, 3])
            R.output(y)
        return y


def test_attention_keeps_the_heads_of_a_vector_together() -> None:
    @I.ir_module
    class Expected:
        @R.function
        def main(
            q: R.Tensor((1, 6, 2, 4), "float32"),
            k: R.Tensor((1, 5, 2, 4), "float32"),
            v: R.Tensor((1, 5, 2, 4), "float32"),
        ):
            with R.dataflow():
                scores = R.einsum((q, k), "acbd,aebd->acbe")
                scaled = R.multiply(scores, R.const(0.5, "float32"))
                shares = R.nn.softmax(scaled)
                y = R.einsum((shares, v), "acbd,adbe->acbe")
                R.output(y)
            return y

    after = check(Attention, Expected)
    random = np.random.default_rng(0)
    inputs = [random.standard_normal((1, length, 2, 4)).astype("float32") for length in (6, 5, 5)]
    np.testing.assert_allclose(run(after, *inputs), run(Attention, *inputs), rtol=1e-5, atol=1e-6)


def test_what_is_read_otherwise_is_permuted_there() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 3, 4), "float32"), b: R.Tensor((2, 5, 4), "float32")):
            with R.dataflow():
                p = R.permute_dims(b, [0, 2, 1])
                y = R.matmul(a, p)
                z = R.sum(p, axis=[1])
                R.output(y, z)
            return y, z

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((2, 3, 4), "float32"), b: R.Tensor((2, 5, 4), "float32")):
            with R.dataflow():
                y = R.einsum((a, b), "abc,adc->abd")
                p = R.permute_dims(b, [0, 2, 1])
                z = R.sum(p, axis=[1])
                R.output(y, z)
            return y, z

    check(Before, Expected)


def test_rows_of_the_first_operand_stay_whole() -> None:
    """Its last axis would be another: it is permuted as before, and so is a result that nothing takes up."""

    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((2, 4, 3), "float32"), b: R.Tensor((2, 5, 4), "float32")):
            with R.dataflow():
                t = R.permute_dims(a, [0, 2, 1])
                y = R.matmul(t, R.permute_dims(b, [0, 2, 1]))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(a: R.Tensor((2, 4, 3), "float32"), b: R.Tensor((2, 5, 4), "float32")):
            with R.dataflow():
                t = R.permute_dims(a, [0, 2, 1])
                y = R.einsum((t, b), "abc,adc->abd")
                R.output(y)
            return y

    check(Before, Expected)


def test_heads_of_several_sequences_are_permuted() -> None:
    """Rows of the first operand and elements of the second lie between a sequence and its heads."""

    @I.ir_module
    class Before:
        @R.function
        def main(q: R.Tensor((3, 6, 2, 4), "float32"), k: R.Tensor((3, 5, 2, 4), "float32")):
            with R.dataflow():
                heads = R.permute_dims(q, [0, 2, 1, 3])
                keys = R.permute_dims(k, [0, 2, 3, 1])
                y = R.matmul(heads, keys)
                R.output(y)
            return y

    @I.ir_module
    class Turned:
        @R.function
        def main(q: R.Tensor((3, 6, 2, 4), "float32"), k: R.Tensor((3, 2, 5, 4), "float32")):
            with R.dataflow():
                heads = R.permute_dims(q, [0, 2, 1, 3])
                keys = R.permute_dims(k, [0, 1, 3, 2])
                y = R.matmul(heads, keys)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function
        def main(q: R.Tensor((3, 6, 2, 4), "float32"), k: R.Tensor((3, 2, 5, 4), "float32")):
            with R.dataflow():
                heads = R.permute_dims(q, [0, 2, 1, 3])
                y = R.einsum((heads, k), "abcd,abed->abce")
                R.output(y)
            return y

    check(Before, Before)
    check(Turned, Expected)


def test_masks_are_permuted_instead_of_scores() -> None:
    """A mask over queries and keys is one for each query, all of its heads, and its keys."""
    mask = np.triu(np.full((6, 5), -1e4, "f4"), 1)

    def attention(builder: relax.BlockBuilder) -> relax.Expr:
        heads = builder.emit(relax.op.permute_dims(q, [0, 2, 1, 3]))
        scores = builder.emit(relax.op.matmul(heads, k))
        return builder.emit(relax.op.permute_dims(builder.emit(relax.op.add(scores, relax.const(mask))), [0, 2, 1, 3]))

    q, k = (relax.Var(name, relax.TensorType(s, "float32")) for name, s in (("q", (1, 6, 2, 4)), ("k", (1, 2, 4, 5))))
    before = module_of([q, k], lambda builder: relax.op.nn.softmax(attention(builder)))
    after = FoldPermutes()(before)
    assert [op_name(b.value) for b in bindings(after["main"])] == ["relax.einsum", "relax.add", "relax.nn.softmax"]
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape).astype("f4") for shape in ((1, 6, 2, 4), (1, 2, 4, 5))]
    np.testing.assert_allclose(run(after, *arrays), run(before, *arrays), rtol=1e-5, atol=1e-7)


def test_functions_without_such_products_are_left_alone() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(a: R.Tensor((1, 2, 3), "float32"), b: R.Tensor((1, 3, 4), "float32")):
            with R.dataflow():
                p = R.nn.relu(R.permute_dims(R.matmul(a, b), [0, 2, 1]))
                R.output(p)
            return p

    check(Before, Before)
