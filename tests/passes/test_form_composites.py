"""FormComposites: QDQ chains, anchors with what follows them, and single operators become private functions."""

from __future__ import annotations

from tvm.script import ir as I
from tvm.script import relax as R

from tests.passes.forming import BIAS, BYTES, WEIGHTS, check, form, groups
from tests.passes.stub_backend import StubBackend


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
