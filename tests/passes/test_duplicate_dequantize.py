"""DuplicateDequantize: one dequantize per consumer."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.dataflow import bindings, op_name, with_span
from relay_passes.own_operators import range_quantize
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from tests.passes.modules import module_of
from tvm_ext.core.names import RANGE_QUANTIZE

WEIGHTS = np.arange(4, dtype="int8")


def check(before: tvm.IRModule, expected: tvm.IRModule) -> None:
    after = DuplicateDequantize()(before)
    relax.analysis.well_formed(after)
    tvm.ir.assert_structural_equal(after, expected, map_free_vars=True)


def test_activation_and_weight_with_several_consumers() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                w = R.dequantize(R.const(WEIGHTS, "int8"), R.const(2.0, "float32"), R.const(0, "int8"))
                b = R.multiply(a, w)
                c = R.add(a, b)
                d = R.subtract(c, w)
                e = R.maximum(a, d)
                R.output(e)
            return e

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                w = R.dequantize(R.const(WEIGHTS, "int8"), R.const(2.0, "float32"), R.const(0, "int8"))
                b = R.multiply(a, w)
                a1 = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                c = R.add(a1, b)
                w1 = R.dequantize(R.const(WEIGHTS, "int8"), R.const(2.0, "float32"), R.const(0, "int8"))
                d = R.subtract(c, w1)
                a2 = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                e = R.maximum(a2, d)
                R.output(e)
            return e

    check(Before, Expected)
    names = [binding.var.name for binding in bindings(DuplicateDequantize()(Before)["main"])]
    assert names == ["a", "w", "b", "a.dup1", "c", "w.dup1", "d", "a.dup2", "e"]


def test_result_of_the_function_keeps_the_original() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                b = R.exp(a)
                R.output(a, b)
            return (a, b)

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((4,), "int8")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                a1 = R.dequantize(x, R.const(0.5, "float32"), R.const(0, "int8"))
                b = R.exp(a1)
                R.output(a, b)
            return (a, b)

    check(Before, Expected)


def test_copies_keep_the_span() -> None:
    x = relax.Var("x", relax.TensorType((4,), "int8"))
    call = relax.BlockBuilder().normalize(relax.op.dequantize(x, relax.const(0.5), relax.const(0, "int8")))
    span = tvm.ir.Span(tvm.ir.SourceName("DequantizeLinear_3"), 0, 0, 0, 0)

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        a = builder.emit(with_span(call, span))
        return relax.op.add(a, builder.emit(relax.op.exp(a)))

    after = bindings(DuplicateDequantize()(module_of([x], body))["main"])
    copies = [b.value for b in after if b.value.op.name == "relax.dequantize"]
    assert [copy.span.source_name.name for copy in copies] == ["DequantizeLinear_3"] * 2


def test_left_alone() -> None:
    """One consumer, though it reads twice; a shared quantize; a shared anything else."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "int8")):
            with R.dataflow():
                q = R.quantize(x, R.const(0.5, "float32"), R.const(0, "int8"), out_dtype="int8")
                a = R.dequantize(q, R.const(0.5, "float32"), R.const(0, "int8"))
                b = R.multiply(a, a)
                c = R.add(b, b)
                d = R.subtract(c, b)
                R.output(d, q)
            return (d, q)

    check(Module, Module)


def test_layers_that_share_a_range() -> None:
    """Each gets a range_quantize of its own, as each gets a dequantize."""
    x = relax.Var("x", relax.TensorType((2, 4), "float32"))

    def body(builder: relax.BlockBuilder) -> relax.Expr:
        shared = builder.emit(range_quantize(x, "onnx"))
        return builder.emit(relax.op.add(builder.emit(relax.op.nn.relu(shared)), shared))

    before = module_of([x], body)
    names = [op_name(binding.value) for binding in bindings(DuplicateDequantize()(before)["main"])]
    assert names[:4] == [RANGE_QUANTIZE, "relax.nn.relu", RANGE_QUANTIZE, "relax.add"]
