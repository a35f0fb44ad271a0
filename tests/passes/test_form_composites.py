"""FormComposites: QDQ chains, anchors with what follows them, and single operators become private functions."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import composite_of, is_composite
from relay_passes.dataflow import bindings, op_name, with_span
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from tests.passes.modules import module_of, without_spans
from tests.passes.stub_backend import StubBackend

IMAGE, WEIGHTS = (1, 2, 4, 4), np.ones((2, 2, 1, 1), "float32")
BYTES = np.ones((2, 2, 1, 1), "int8")
BIAS = np.ones((1, 2, 1, 1), "int32")


def form(before: tvm.IRModule, backend: StubBackend | None = None) -> tvm.IRModule:
    relax.analysis.well_formed(before)
    after = FormComposites(backend or StubBackend())(before)
    relax.analysis.well_formed(after)
    return after


def check(before: tvm.IRModule, expected: tvm.IRModule, backend: StubBackend | None = None) -> None:
    tvm.ir.assert_structural_equal(form(without_spans(before), backend), expected, map_free_vars=True)


def groups(mod: tvm.IRModule) -> list[tuple[str, list[str]]]:
    """Per binding of main, in order: its variable, and the operators computed there; other names are skipped."""
    found = []
    for binding in bindings(mod["main"]):
        if isinstance(binding.value, relax.Var):
            continue
        composite = composite_of(mod, binding.value)
        inner = bindings(composite) if composite else [binding]
        names = [(op_name(b.value) or type(b.value).__name__).removeprefix("relax.") for b in inner]
        found.append((binding.var.name, names if composite else [f"left {name}" for name in names]))
    return found


def test_an_anchor_takes_what_follows_it() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), r: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor(
            (1, 2, 4, 4), "float32"
        ):
            with R.dataflow():
                c = R.nn.conv2d(x, R.const(WEIGHTS, "float32"))
                a = R.add(c, r)
                y = R.nn.relu(a)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def y(x: R.Tensor((1, 2, 4, 4), "float32"), r: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor(
            (1, 2, 4, 4), "float32"
        ):
            R.func_attr({"Composite": "tvm_ext.nn_conv2d", "Primitive": True})
            with R.dataflow():
                c = R.nn.conv2d(x, R.const(WEIGHTS, "float32"))
                a = R.add(c, r)
                y = R.nn.relu(a)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32"), r: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor(
            (1, 2, 4, 4), "float32"
        ):
            cls = Expected
            with R.dataflow():
                y = cls.y(x, r)
                R.output(y)
            return y

    check(Before, Expected)


def test_a_quantized_chain() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "int8"):
            with R.dataflow():
                w = R.dequantize(R.const(BYTES, "int8"), R.const(0.5, "float32"), R.const(0, "int8"))
                a = R.dequantize(x, R.const(0.25, "float32"), R.const(1, "int8"))
                c = R.nn.conv2d(a, w)
                y = R.quantize(c, R.const(0.5, "float32"), R.const(0, "int8"), out_dtype="int8")
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def y(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "int8"):
            R.func_attr({"Composite": "tvm_ext.qnn_conv2d", "Primitive": True})
            with R.dataflow():
                w = R.dequantize(R.const(BYTES, "int8"), R.const(0.5, "float32"), R.const(0, "int8"))
                a = R.dequantize(x, R.const(0.25, "float32"), R.const(1, "int8"))
                c = R.nn.conv2d(a, w)
                y = R.quantize(c, R.const(0.5, "float32"), R.const(0, "int8"), out_dtype="int8")
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "int8"):
            cls = Expected
            with R.dataflow():
                y = cls.y(x)
                R.output(y)
            return y

    check(Before, Expected)


def test_quantized_products_with_a_real_result() -> None:
    """A convolution of dequantized operands takes these along, with a dequantized bias; its result stays float."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "float32"):
            with R.dataflow():
                w = R.dequantize(R.const(BYTES, "int8"), R.const(0.5, "float32"), R.const(0, "int8"))
                a = R.dequantize(x, R.const(0.25, "float32"), R.const(1, "int8"))
                c = R.nn.conv2d(a, w)
                b = R.dequantize(R.const(BIAS, "int32"), R.const(0.125, "float32"), R.const(0, "int32"))
                d = R.add(c, b)
                y = R.nn.relu(d)
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def y(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "float32"):
            R.func_attr({"Composite": "tvm_ext.nn_conv2d", "Primitive": True})
            with R.dataflow():
                w = R.dequantize(R.const(BYTES, "int8"), R.const(0.5, "float32"), R.const(0, "int8"))
                a = R.dequantize(x, R.const(0.25, "float32"), R.const(1, "int8"))
                c = R.nn.conv2d(a, w)
                b = R.dequantize(R.const(BIAS, "int32"), R.const(0.125, "float32"), R.const(0, "int32"))
                d = R.add(c, b)
                y = R.nn.relu(d)
                R.output(y)
            return y

        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "int8")) -> R.Tensor((1, 2, 4, 4), "float32"):
            cls = Expected
            with R.dataflow():
                y = cls.y(x)
                R.output(y)
            return y

    check(Before, Expected)


def test_float_activations_keep_their_dequantized_weights_apart() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 2, 4, 4), "float32")) -> R.Tensor((1, 2, 4, 4), "float32"):
            with R.dataflow():
                w = R.dequantize(R.const(BYTES, "int8"), R.const(0.5, "float32"), R.const(0, "int8"))
                y = R.nn.conv2d(x, w)
                R.output(y)
            return y

    assert groups(form(Module)) == [("w", ["dequantize"]), ("y", ["nn.conv2d"])]


def test_left_alone() -> None:
    """Operators that the backend refuses, and an element of a tuple."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2, 4), "float32")) -> R.Tensor((2, 2), "float32"):
            with R.dataflow():
                s = R.split(x, indices_or_sections=2, axis=1)
                a = s[0]
                y = R.tan(a)
                R.output(y)
            return y

    check(Module, Module, StubBackend(refused=frozenset({"relax.split", "relax.tan"})))


def test_functions_with_control_flow_are_left_alone() -> None:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((2,), "float32"), flag: R.Tensor((), "bool")) -> R.Tensor((2,), "float32"):
            if flag:  # noqa: SIM108
                y = R.nn.relu(x)
            else:
                y = R.exp(x)
            return y

    check(Module, Module)


def tensor(name: str, shape: tuple[int, ...] = IMAGE, dtype: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, dtype))


def conv(x: relax.Expr) -> relax.Expr:
    return relax.op.nn.conv2d(x, relax.const(WEIGHTS))


def dequantize(x: relax.Expr) -> relax.Expr:
    return relax.op.dequantize(x, relax.const(0.5), relax.const(0, "int8"))


def quantize(x: relax.Expr) -> relax.Expr:
    return relax.op.quantize(x, relax.const(0.5), relax.const(0, "int8"), out_dtype="int8")


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


def test_names_and_source_nodes() -> None:
    """A function is named after its anchor's node; spans of all members are kept, each node listed once."""
    x = tensor("input:0")

    def spanned(b: relax.BlockBuilder, expr: relax.Expr, node: str, name: str) -> relax.Expr:
        span = tvm.ir.Span(tvm.ir.SourceName(node), 0, 0, 0, 0)
        return b.emit(with_span(b.normalize(expr), span), name)

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = spanned(b, conv(x), "block/Conv_1", "conv out")
        s = spanned(b, relax.op.sigmoid(c), "block/Silu", "silu_s")
        return spanned(b, relax.op.multiply(c, s), "block/Silu", "silu out")

    mod = form(module_of([x], body))
    binding = bindings(mod["main"])[0]
    composite = composite_of(mod, binding.value)
    assert binding.var.name == "silu out" and binding.value.span.source_name.name == "block/Conv_1"
    assert binding.value.op.name_hint == "block_conv_1"
    assert list(composite.attrs["source_nodes"]) == ["block/Conv_1", "block/Silu"]
    assert [b.var.name for b in bindings(composite)] == ["conv out", "silu_s", "silu out"]
    assert [b.value.span.source_name.name for b in bindings(composite)] == ["block/Conv_1", "block/Silu", "block/Silu"]
    assert [param.name for param in composite.params] == ["input:0"]


def test_every_variable_is_bound_once_in_the_module() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        return relax.op.concat([b.emit(conv(x), "c"), b.emit(relax.op.exp(x), "e")], 1)

    mod = form(module_of([x], body))
    bound = [b.var for _, func in mod.functions_items() for b in bindings(func)]
    assert len(set(bound)) == len(bound)


def test_equal_names_are_told_apart() -> None:
    x = tensor("x")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        y = x
        for name in ("a/b", "a.b", "int"):
            y = b.emit(relax.op.nn.max_pool2d(y, (1, 1)), name)
        return y

    mod = form(module_of([x], body))
    called = [b.value.op.name_hint for b in bindings(mod["main"]) if composite_of(mod, b.value)]
    assert called[:3] == ["a_b", "a_b_2", "int_"]


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
