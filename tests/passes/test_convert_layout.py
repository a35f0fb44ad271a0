"""ConvertLayout: channels last between windows, the model's own order at its borders."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import composite_of
from relay_passes.dataflow import array_of, bindings, op_name
from relay_passes.regions.form_composites import FormComposites
from tests.passes.layouts import NHWC_WEIGHTS, RANDOM, TO_FIRST, TO_LAST, WEIGHTS, conv, convert, formed, image, moves
from tests.passes.modules import module_of
from tests.passes.stub_backend import StubBackend


def test_a_transposed_convolution_is_a_window_of_its_own() -> None:
    """A decoder begins with one, and no other window stands beside it."""
    weight = RANDOM.normal(size=(2, 3, 3, 3)).astype("float32")
    x = image()
    before = module_of([x], lambda builder: relax.op.nn.conv2d_transpose(x, relax.const(weight), strides=(2, 2)))
    assert moves(convert(formed(before))) == [TO_LAST, "nn.conv2d_transpose", TO_FIRST]


def test_a_convolution_between_two_permutations() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 6, 5), "float32")) -> R.Tensor((1, 3, 4, 3), "float32"):
            with R.dataflow():
                y = R.nn.conv2d(x, R.const(WEIGHTS, "float32"))
                R.output(y)
            return y

    @I.ir_module
    class Expected:
        @R.function(private=True)
        def permute_dims_x_nhwc(x: R.Tensor((1, 2, 6, 5), "float32")) -> R.Tensor((1, 6, 5, 2), "float32"):
            R.func_attr({"Composite": "tvm_ext.permute_dims", "Primitive": True, "layout": [0, 2, 3, 1], "tensor": "x"})
            with R.dataflow():
                x_nhwc = R.permute_dims(x, [0, 2, 3, 1])
                R.output(x_nhwc)
            return x_nhwc

        @R.function(private=True)
        def y(x: R.Tensor((1, 6, 5, 2), "float32")) -> R.Tensor((1, 4, 3, 3), "float32"):
            R.func_attr({"Composite": "tvm_ext.nn_conv2d", "Primitive": True, "layout": [0, 2, 3, 1], "tensor": "y"})
            with R.dataflow():
                y = R.nn.conv2d(x, R.const(NHWC_WEIGHTS, "float32"), data_layout="NHWC", kernel_layout="OHWI")
                R.output(y)
            return y

        @R.function(private=True)
        def permute_dims_y(y: R.Tensor((1, 4, 3, 3), "float32")) -> R.Tensor((1, 3, 4, 3), "float32"):
            R.func_attr({"Composite": "tvm_ext.permute_dims", "Primitive": True})
            with R.dataflow():
                r = R.permute_dims(y, [0, 3, 1, 2])
                R.output(r)
            return r

        @R.function
        def main(x: R.Tensor((1, 2, 6, 5), "float32")) -> R.Tensor((1, 3, 4, 3), "float32"):
            cls = Expected
            with R.dataflow():
                a = cls.permute_dims_x_nhwc(x)
                b = cls.y(a)
                y = cls.permute_dims_y(b)
                R.output(y)
            return y

    after = convert(formed(Before))
    tvm.ir.assert_structural_equal(after, Expected, map_free_vars=True)
    assert [b.var.name for b in bindings(after["main"])] == ["x.nhwc", "y.nhwc", "y"]


def test_left_alone() -> None:
    """No window, other ranks, an operator without a rule."""

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 2, 6, 5), "float32")) -> R.Tensor((10, 6), "float32"):
            with R.dataflow():
                a = R.nn.relu(x)
                c = R.cumsum(a, axis=1)
                y = R.reshape(c, R.shape([10, 6]))
                R.output(y)
            return y

    mod = formed(Before)
    tvm.ir.assert_structural_equal(convert(mod), mod)


def test_neighbours_meet_without_permutations() -> None:
    """Element-wise operators and pools between convolutions follow; only the borders move."""
    x, second = image(), RANDOM.normal(size=(4, 3, 3, 3)).astype("float32")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        p = b.emit(relax.op.nn.max_pool2d(c, (2, 2)), "p")
        e = b.emit(relax.op.exp(p), "e")
        s = b.emit(relax.op.add(e, p), "s")
        return conv(s, second)

    assert moves(convert(formed(module_of([x], body)))) == [
        TO_LAST, "nn.conv2d", "nn.max_pool2d", "nn.conv2d", TO_FIRST,
    ]  # fmt: skip


def test_a_value_read_twice_is_moved_once() -> None:
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        return relax.op.concat([b.emit(conv(x), "a"), b.emit(conv(x), "b")], 1)

    found = moves(convert(formed(module_of([x], body))))
    assert found.count(TO_LAST) == 1 and found.count(TO_FIRST) == 1 and len(found) == 5


def test_extents_of_one_are_reshaped() -> None:
    """One channel in, or one pixel out: no byte moves."""
    x = image(shape=(1, 1, 6, 5))
    weight = RANDOM.normal(size=(3, 1, 6, 5)).astype("float32")
    mod = module_of([x], lambda _: relax.op.nn.conv2d(x, relax.const(weight)))
    assert moves(convert(formed(mod))) == ["reshape", "nn.conv2d", "reshape"]


def test_the_model_s_own_permutation_is_composed() -> None:
    """Channels last at the model's end: no permutation there at all, and the output keeps its name."""
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        return relax.op.exp(b.emit(relax.op.permute_dims(c, [0, 2, 3, 1]), "t"))

    assert moves(convert(formed(module_of([x], body)))) == [TO_LAST, "nn.conv2d", "exp"]


def test_what_stands_between_the_model_s_own_permutation_and_a_window_follows() -> None:
    """An NHWC input that the model turns, scales and convolves is never turned."""
    x = image(shape=(1, 6, 5, 2))
    scale = relax.const(RANDOM.normal(size=(1, 2, 1, 1)).astype("float32"))

    def body(b: relax.BlockBuilder) -> relax.Expr:
        t = b.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), "t")
        return conv(b.emit(relax.op.multiply(t, scale), "m"))

    def read_twice(b: relax.BlockBuilder) -> relax.Expr:
        t = b.emit(relax.op.permute_dims(x, [0, 3, 1, 2]), "t")
        e = b.emit(relax.op.exp(t), "e")
        return relax.op.add(relax.op.cumsum(t, 1), relax.op.cumsum(e, 1))

    assert moves(convert(formed(module_of([x], body)))) == ["multiply", "nn.conv2d", TO_FIRST]
    assert moves(convert(formed(module_of([x], read_twice)))).count(TO_FIRST) == 1, "once, for both readers"


def test_an_operator_without_a_rule_gets_the_model_s_layout() -> None:
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        return conv(b.emit(relax.op.cumsum(b.emit(conv(x), "c"), 1), "s"), WEIGHTS.transpose(1, 0, 2, 3).copy())

    found = moves(convert(formed(module_of([x], body))))
    assert found == [TO_LAST, "nn.conv2d", TO_FIRST, "cumsum", TO_LAST, "nn.conv2d", TO_FIRST]


def test_quantized_weights_move_under_their_dequantize() -> None:
    x = relax.Var("x", relax.TensorType((1, 2, 6, 5), "int8"))
    weights, scales = RANDOM.integers(-9, 9, (3, 2, 3, 3)).astype("int8"), np.array([1, 2, 4], "float32")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        zero = relax.const(0, "int8")
        w = relax.op.dequantize(relax.const(weights), relax.const(scales), relax.const(np.zeros(3, "int8")), axis=0)
        a = b.emit(relax.op.dequantize(x, relax.const(0.5), zero), "a")
        c = b.emit(relax.op.nn.conv2d(a, b.emit(w, "w")), "c")
        return relax.op.quantize(c, relax.const(0.5), zero, out_dtype="int8")

    mod = convert(formed(module_of([x], body)))
    (composite,) = [f for b in bindings(mod["main"]) if (f := composite_of(mod, b.value)) and len(bindings(f)) > 1]
    calls = {op_name(b.value): b.value for b in bindings(composite) if op_name(b.value) != "relax.dequantize"}
    moved = [b.value for b in bindings(composite) if array_of(b.value.args[0]) is not None]
    np.testing.assert_array_equal(array_of(moved[0].args[0]), weights.transpose(0, 2, 3, 1))
    assert int(moved[0].attrs.axis) == 0 and calls["relax.nn.conv2d"].attrs.kernel_layout == "OHWI"


def test_names_and_spans_are_kept() -> None:
    x = image()
    span = tvm.ir.Span(tvm.ir.SourceName("Conv_0"), 0, 0, 0, 0)

    def body(b: relax.BlockBuilder) -> relax.Expr:
        call = b.normalize(conv(x))
        c = b.emit(relax.Call(call.op, call.args, call.attrs, call.ty_args, span), "conv")
        return relax.op.cumsum(c, 1)

    mod = convert(FormComposites(StubBackend())(module_of([x], body)))
    by_name = {b.var.name: b.value for b in bindings(mod["main"])}
    assert by_name["conv"].span.source_name.name == "Conv_0"
    assert list(composite_of(mod, by_name["conv"]).attrs["source_nodes"]) == ["Conv_0"]
    assert "conv.nchw" in by_name


def test_a_part_of_an_image_is_taken_with_its_channels_last() -> None:
    """The part is one composite with the permutation; one in steps of two, which is no run, is left alone."""
    x = image()

    def cropped(step: int) -> list[object]:
        def make(builder: relax.BlockBuilder) -> relax.Expr:
            part = builder.emit(relax.op.strided_slice(x, [2, 3], [1, 0], [6, 5], [step, step]))
            return relax.op.nn.conv2d(part, relax.const(WEIGHTS), padding=1)

        after = convert(formed(module_of([x], make)))
        composites = [composite_of(after, b.value) for b in bindings(after["main"])]
        return [[op_name(b.value) for b in bindings(one)] for one in composites if one is not None]

    assert cropped(1)[0] == ["relax.permute_dims", "relax.strided_slice"]
    assert cropped(2)[:2] == [["relax.strided_slice"], ["relax.permute_dims"]]
