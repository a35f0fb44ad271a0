"""ConvertLayout: channels last between windows, the model's own order at its borders."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.composites import composite_of
from relay_passes.dataflow import array_of, bindings, build, op_name, outputs
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.regions.form_composites import FormComposites
from tests.models.agree import run
from tests.passes.modules import module_of, without_spans
from tests.passes.stub_backend import StubBackend
from tvm_ext.core.decisions.models import KeptStates
from tvm_ext.core.model_states import ModelState

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(3, 2, 3, 3)).astype("float32")
NHWC_WEIGHTS = np.ascontiguousarray(WEIGHTS.transpose(0, 2, 3, 1))


def formed(before: tvm.IRModule) -> tvm.IRModule:
    return FormComposites(StubBackend())(without_spans(before))


def convert(mod: tvm.IRModule) -> tvm.IRModule:
    relax.analysis.well_formed(mod)
    after = ConvertLayout()(mod)
    relax.analysis.well_formed(after)
    return after


def moves(mod: tvm.IRModule) -> list[str]:
    """Operators of the composites that main calls, in order; permutations with their axes."""
    found = []
    for binding in bindings(mod["main"]):
        composite = composite_of(mod, binding.value)
        if composite is None:
            continue
        call = bindings(composite)[0].value
        name = (op_name(call) or "").removeprefix("relax.")
        found.append(f"{name} {[int(a) for a in call.attrs.axes]}" if name == "permute_dims" else name)
    return found


def image(name: str = "x", shape: tuple[int, ...] = (1, 2, 6, 5)) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, "float32"))


def conv(x: relax.Expr, weight: np.ndarray = WEIGHTS) -> relax.Expr:
    return relax.op.nn.conv2d(x, relax.const(weight), padding=(1, 1))


TO_LAST, TO_FIRST = "permute_dims [0, 2, 3, 1]", "permute_dims [0, 3, 1, 2]"


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


def test_constants_beside_images_move_too() -> None:
    x = image()
    for shape in ((3, 1, 1), (1, 3, 6, 5), (5,), (6, 5), (1,)):
        bias = relax.const(RANDOM.normal(size=shape).astype("float32"))
        mod = module_of([x], lambda b, bias=bias: relax.op.add(b.emit(conv(x), "c"), bias))
        assert_same_numbers(mod, (1, 2, 6, 5))


@pytest.mark.parametrize("shape", [(3, 1, 1), (5,), (6, 5), (6, 1), (1, 5), (1,), ()])
def test_quantized_constants_beside_images_move_too(shape: tuple[int, ...]) -> None:
    """Those of fewer axes than an image stand along its last ones, which are others then."""
    numbers, x = relax.const(RANDOM.integers(-9, 9, shape).astype("int8")), image(shape=(1, 2, 6, 5))
    zero = relax.const(0, "int8")

    def body(b: relax.BlockBuilder) -> relax.Expr:
        a = b.emit(relax.op.quantize(b.emit(conv(x), "c"), relax.const(0.1), zero, out_dtype="int8"), "a")
        real = b.emit(relax.op.dequantize(numbers, relax.const(0.5), zero), "n")
        total = b.emit(relax.op.add(b.emit(relax.op.dequantize(a, relax.const(0.1), zero), "d"), real), "s")
        return relax.op.quantize(total, relax.const(0.2), zero, out_dtype="int8")

    assert_same_numbers(module_of([x], body), (1, 2, 6, 5))


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


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
def test_concatenations_keep_their_meaning(axis: int) -> None:
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        return b.emit(relax.op.concat([c, b.emit(relax.op.nn.max_pool2d(c, (1, 1)), "p")], axis), "both")

    assert_same_numbers(module_of([x], body), (1, 2, 6, 5))


def test_means_and_reshapes() -> None:
    x = image()
    for keep in (False, True):

        def body(b: relax.BlockBuilder, keep: bool = keep) -> relax.Expr:
            m = b.emit(relax.op.mean(b.emit(conv(x), "c"), [2, 3], keepdims=keep), "m")
            return relax.op.reshape(m, [1, 3])

        assert_same_numbers(module_of([x], body), (1, 2, 6, 5))

    def flatten(b: relax.BlockBuilder) -> relax.Expr:
        return relax.op.reshape(b.emit(conv(x), "c"), [1, 90])

    assert_same_numbers(module_of([x], flatten), (1, 2, 6, 5))


def test_a_result_that_is_also_read_inside() -> None:
    @I.ir_module
    class Before:
        @R.function
        def main(
            x: R.Tensor((1, 2, 6, 5), "float32"),
        ) -> R.Tuple(R.Tensor((1, 3, 4, 3), "float32"), R.Tensor((1, 3, 4, 3), "float32")):
            with R.dataflow():
                c = R.nn.conv2d(x, R.const(WEIGHTS, "float32"))
                p = R.nn.max_pool2d(c, pool_size=(1, 1))
                R.output(c, p)
            return (c, p)

    after = convert(formed(Before))
    assert [result.name for result in outputs(after["main"])] == ["c", "p"]
    assert_same_numbers(Before, (1, 2, 6, 5))


def assert_same_numbers(mod: tvm.IRModule, shape: tuple[int, ...]) -> None:
    """Outputs of the module are the same in both layouts, in TVM's VM."""
    x = RANDOM.normal(size=shape).astype("float32")
    for found, expected in zip(run(convert(formed(mod)), [x]), run(mod, [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_states_on_their_way_to_windows_are_kept_channels_last() -> None:
    """Nobody outside sees a state, so no permutation stands at its border; its first value is turned with it."""
    x, kept = image(shape=(1, 2, 1, 5)), image("kept", (1, 2, 5, 5))
    window = relax.Var("window", relax.TensorType((1, 2, 6, 5), "float32"))
    joined = relax.op.concat([kept, x], 2)
    y, left = conv(window), relax.op.strided_slice(window, [2], [1], [6])
    values = [relax.BlockBuilder().normalize(value) for value in (joined, y, left)]
    results = [relax.Var(name, value.ty) for name, value in zip(("y", "left"), values[1:], strict=True)]
    bound = [relax.VarBinding(var, value) for var, value in zip((window, *results), values, strict=True)]
    begins = RANDOM.normal(size=(1, 2, 5, 5)).astype("float32")
    states = KeptStates(states=(ModelState(name="kept", initial=begins),))
    mod = states.write(tvm.IRModule({"main": build([x, kept], bound, results)}))
    after = convert(formed(mod))
    (state,) = KeptStates.read(after).states
    found = after["main"].params[1]
    assert [int(extent) for extent in found.ty.shape.values] == [1, 5, 5, 2]
    np.testing.assert_array_equal(state.initial, begins.transpose(0, 2, 3, 1))
    assert moves(after) == [TO_LAST, "concat", "nn.conv2d", "strided_slice", TO_FIRST]
    frame = RANDOM.normal(size=(1, 2, 1, 5)).astype("float32")
    wanted, given = run(mod, [frame, begins]), run(after, [frame, state.initial])
    np.testing.assert_allclose(given[0], wanted[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given[1], wanted[1].transpose(0, 2, 3, 1))
