"""FormComposites: where a composite ends, and which operators stay apart."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import is_composite
from relay_passes.dataflow import bindings, op_name
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from tests.passes.forming import conv, dequantize, form, groups, quantize, tensor
from tests.passes.modules import module_of
from tests.passes.stub_backend import StubBackend


def test_a_residual_is_added_by_the_later_convolution() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        first = b.emit(conv(x), "first")
        second = b.emit(conv(first), "second")
        total = b.emit(relax.op.add(first, second), "total")
        return b.emit(relax.op.nn.relu(total), "out")

    after = groups(form(module_of([x], body)))
    assert [names for _, names in after][:2] == [["nn.conv2d"], ["nn.conv2d", "add", "nn.relu"]]


def test_a_value_read_twice_inside_is_fused() -> None:
    """x * sigmoid(x), behind a convolution and by itself."""
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        silu = b.emit(relax.op.multiply(c, b.emit(relax.op.sigmoid(c), "s")), "silu")
        p = b.emit(relax.op.nn.max_pool2d(silu, (1, 1)), "p")
        padded = b.emit(relax.op.nn.pad(p, [0] * 8), "padded")
        return b.emit(relax.op.multiply(padded, b.emit(relax.op.sigmoid(padded), "t")), "out")

    found = [names for _, names in groups(form(module_of([x], body)))]
    assert found[0] == ["nn.conv2d", "sigmoid", "multiply"]
    assert ["sigmoid", "multiply"] in found


def test_the_chain_ends_where_a_value_is_seen_outside() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        a = b.emit(relax.op.nn.relu(c), "a")
        e = b.emit(relax.op.exp(a), "e")
        return relax.op.concat([a, e], 1)

    found = [names for _, names in groups(form(module_of([x], body)))]
    assert found == [["nn.conv2d", "nn.relu"], ["exp"], ["concat"]]


def test_results_of_the_function_are_seen_outside() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.exp(x)
                b = R.nn.relu(a)
                R.output(a, b)
            return (a, b)

    assert groups(form(Before)) == [("a", ["exp"]), ("b", ["nn.relu"])]


def test_operands_of_another_shape_are_not_fused() -> None:
    x, row = tensor("x"), tensor("row", (1, 1, 1, 4))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        return b.emit(relax.op.add(c, row), "out")

    assert [names for _, names in groups(form(module_of([x, row], body)))][:2] == [["nn.conv2d"], ["add"]]


def test_a_quantized_chain_whose_inner_value_is_used_outside_is_refused() -> None:
    """No composite may return a float beside its integers."""
    x = tensor("x", dtype="int8")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        a = b.emit(dequantize(x), "a")
        c = b.emit(conv(a), "c")
        q = b.emit(quantize(c), "q")
        return relax.op.add(b.emit(dequantize(q), "d"), c)

    mod = form(module_of([x], body))
    assert not any("quantize" in names and "nn.conv2d" in names for _, names in groups(mod))
    assert all(isinstance(func.ret_ty, relax.TensorType) for _, func in mod.functions_items() if is_composite(func))


def test_a_quantized_chain_of_two_anchors_is_refused() -> None:
    x = tensor("x", dtype="int8")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        a = b.emit(dequantize(x), "a")
        return b.emit(quantize(b.emit(conv(b.emit(conv(a), "c")), "d")), "q")

    assert not any(names.count("nn.conv2d") > 1 for _, names in groups(form(module_of([x], body))))


def test_quantized_silu_is_one_chain_in_whatever_order_its_operands_stand() -> None:
    x = tensor("x", dtype="int8")
    for swapped in (False, True):

        def body(b: relax.BlockBuilder, swapped: bool = swapped) -> relax.Expr:
            c = b.emit(conv(b.emit(dequantize(x), "a")), "c")
            s = b.emit(relax.op.sigmoid(c), "s")
            return b.emit(quantize(b.emit(relax.op.multiply(s, c) if swapped else relax.op.multiply(c, s), "m")), "q")

        found = [names for _, names in groups(form(module_of([x], body)))]
        assert found[0] == ["dequantize", "nn.conv2d", "sigmoid", "multiply", "quantize"]


def test_a_shared_dequantize_is_no_hindrance_once_it_is_duplicated() -> None:
    x = tensor("x", dtype="int8")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        a = b.emit(dequantize(x), "a")
        q = b.emit(quantize(b.emit(conv(a), "c")), "q")
        total = b.emit(relax.op.add(a, b.emit(dequantize(q), "d")), "total")
        return b.emit(quantize(total), "out")

    mod = module_of([x], body)
    shared = [names for _, names in groups(form(mod))]
    assert ["dequantize"] in shared, "a dequantize with two readers stays by itself"
    apart = [sorted(names) for _, names in groups(form(DuplicateDequantize()(mod)))]
    assert apart[:2] == [
        ["dequantize", "nn.conv2d", "quantize"],
        ["add", "dequantize", "dequantize", "quantize"],
    ]


def test_operators_with_several_results() -> None:
    x = tensor("x", (2, 4))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        parts = b.emit(relax.op.split(x, 2, 1), "parts")
        first = b.emit(relax.TupleGetItem(parts, 0), "first")
        return b.emit(relax.op.add(first, b.emit(relax.TupleGetItem(parts, 1), "second")), "out")

    mod = form(module_of([x], body))
    assert [names for _, names in groups(mod)][:4] == [["split"], ["left TupleGetItem"], ["left TupleGetItem"], ["add"]]


def test_a_refused_chain_falls_apart_into_operators() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        return b.emit(relax.op.nn.relu(b.emit(conv(x), "c")), "y")

    found = [names for _, names in groups(form(module_of([x], body), StubBackend(max_operators=1)))]
    assert found[:2] == [["nn.conv2d"], ["nn.relu"]]


@pytest.mark.parametrize("length", [3, 40])
def test_long_chains_are_cut(length: int) -> None:
    x = tensor("x", (4,))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        y = x
        for _ in range(length):
            y = b.emit(relax.op.exp(y))
        return y

    found = [len(names) for _, names in groups(form(module_of([x], body)))]
    assert sum(found) == length and max(found) <= 12


class OfChannelsLast(StubBackend):
    """Takes convolutions over images with their channels last alone, as kernels do."""

    def refuses(self, composite: relax.Function) -> str | None:
        windows = [b.value.attrs for b in bindings(composite) if op_name(b.value) == "relax.nn.conv2d"]
        last = all((one.data_layout, one.kernel_layout) == ("NHWC", "OHWI") for one in windows)
        return super().refuses(composite) if last else "its layout is not NHWC"


@pytest.mark.parametrize(("data", "kernel"), [("NCHW", "OIHW"), ("NHWC", "HWIO"), ("NHWC", "OHWI")])
def test_the_backend_is_asked_in_the_layout_that_a_composite_will_have(data: str, kernel: str) -> None:
    x, weights = tensor("x", (1, 2, 2, 2)), np.ones((2, 2, 1, 1) if kernel == "OIHW" else (1, 1, 2, 2), "float32")
    weights = np.ones((2, 1, 1, 2), "float32") if kernel == "OHWI" else weights

    def body(b: relax.BlockBuilder) -> relax.Expr:
        y = relax.op.nn.conv2d(x, relax.const(weights), data_layout=data, kernel_layout=kernel)
        return b.emit(relax.op.nn.relu(b.emit(y)))

    (found,) = groups(form(module_of([x], body), OfChannelsLast()))
    assert found[1] == ["nn.conv2d", "nn.relu"]
