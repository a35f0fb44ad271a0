"""QuantizeInt8: units, parameters, the QDQ form, and what stays float."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

from relay_passes.analysis.calibrate import calibrate
from relay_passes.analysis.int8_parameters import affine_of_range
from relay_passes.analysis.quantization_units import units_of
from relay_passes.analysis.run_units import UnitRunner
from relay_passes.dataflow import bindings, op_name
from relay_passes.quantization.quantize_int8 import QuantizeInt8
from tests.passes.float_modules import (
    BIAS,
    IMAGE,
    OP,
    RNG,
    build,
    conv,
    image,
    measured,
    operators,
    quantized,
    samples_of,
)
from tests.passes.modules import module_of, without_spans
from tests.passes.stub_backend import ELEMENTWISE
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends.load import load


def test_a_convolution() -> None:
    """Numbers that int8 can say exactly, so that nothing is clipped and no bias corrected."""
    weight = np.array([127 / 64, -1.0], "float32").reshape(2, 1, 1, 1)
    bias = np.array([1.0, -2.0], "float32").reshape(1, 2, 1, 1)
    scales = np.array([1 / 64, np.float32(1) / np.float32(127)], "float32")
    steps = np.rint(bias.reshape(-1).astype("float64") / (scales / np.float32(64))).astype("int32")
    integers = np.array([127, -127], "int8").reshape(2, 1, 1, 1)
    data = np.array([-2, 127 / 64, 0, 1], "float32").reshape(1, 1, 2, 2)

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor((1, 1, 2, 2), "float32")) -> R.Tensor((1, 2, 2, 2), "float32"):
            with R.dataflow():
                c = R.nn.conv2d(x, R.const(weight, "float32"))
                a = R.add(c, R.const(bias, "float32"))
                y = R.nn.relu(a)
                R.output(y)
            return y

    after = QuantizeInt8([{"x": data}], elementwise=ELEMENTWISE)(without_spans(Before))
    out = next(b.value for b in bindings(after["main"]) if op_name(b.value) == "relax.quantize")
    out_scale = float(out.args[1].value.numpy())

    @I.ir_module
    class Expected:
        @R.function
        def main(x: R.Tensor((1, 1, 2, 2), "int8")) -> R.Tensor((1, 2, 2, 2), "int8"):
            with R.dataflow():
                d = R.dequantize(x, R.const(1 / 64, "float32"), R.const(0, "int8"), out_dtype="float32")
                w = R.dequantize(
                    R.const(integers, "int8"), R.const(scales, "float32"), R.const(np.zeros(2, "int8")),
                    out_dtype="float32", axis=0,
                )  # fmt: skip
                b = R.dequantize(
                    R.const(steps.reshape(1, 2, 1, 1), "int32"), R.const(scales / np.float32(64), "float32"),
                    R.const(np.zeros(2, "int32")), out_dtype="float32", axis=1,
                )  # fmt: skip
                c = R.nn.conv2d(d, w)
                a = R.add(c, b)
                r = R.nn.relu(a)
                y = R.quantize(r, R.const(out_scale, "float32"), R.const(-128, "int8"), out_dtype="int8")
                R.output(y)
            return y

    tvm.ir.assert_structural_equal(after["main"], without_spans(Expected)["main"], True)
    largest = 127 / 64 * 127 / 64 + 1
    assert out_scale == pytest.approx(largest / 255, rel=1e-6)


def test_names_stay_with_the_int8_values() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        s = b.emit(OP.add(b.emit(conv(x), "c"), relax.const(BIAS)), "sum")
        return b.emit(OP.exp(b.emit(OP.nn.relu(s), "first")), "second")

    names = [b.var.name for b in bindings(quantized(build(body))["main"]) if str(b.var.ty.dtype) == "int8"]
    assert names[0] == "first" and len(names) == 2


def test_a_residual_block_adds_what_the_convolution_gave_in_int8() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = b.emit(OP.nn.relu(b.emit(OP.add(b.emit(conv(x)), relax.const(BIAS)))))
        second = b.emit(OP.add(b.emit(conv(first)), relax.const(BIAS)))
        return b.emit(OP.nn.relu(b.emit(OP.add(first, second))))

    linear = ["nn.conv2d float32", "add float32"]
    expected = [*linear, "nn.relu float32", "quantize int8", *linear, "quantize int8"]
    assert operators(quantized(build(body))) == [*expected, "add float32", "nn.relu float32", "quantize int8"]


def test_moves_work_on_int8_and_keep_parameters() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(OP.permute_dims(b.emit(OP.nn.max_pool2d(x, (2, 2), strides=(2, 2))), [0, 2, 3, 1]))
        joined = b.emit(OP.concat([turned, turned], axis=3))
        return b.emit(OP.exp(b.emit(OP.reshape(joined, (1, 16)))))

    mod = quantized(build(body))
    assert operators(mod)[1:5] == ["quantize int8", "permute_dims int8", "concat int8", "reshape int8"]
    parameters = {
        (float(b.value.args[1].value.numpy()), int(b.value.args[2].value.numpy()))
        for b in bindings(mod["main"])
        if op_name(b.value) in ("relax.quantize", "relax.dequantize")
    }
    assert len(parameters) == 2, "one pair before exp, one behind it"


def test_silu_is_one_operator() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        c = b.emit(conv(x))
        return b.emit(OP.multiply(c, b.emit(OP.sigmoid(c))))

    mod = build(body)
    assert [(unit.kind, len(unit.members)) for unit in units_of(mod["main"], ELEMENTWISE)] == [
        ("linear", 1),
        ("compute", 2),
    ]
    assert operators(quantized(mod)).count("quantize int8") == 2


def test_a_value_read_elsewhere_is_no_inner_one() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        c = b.emit(conv(x))
        s = b.emit(OP.add(c, relax.const(BIAS)))
        return b.emit(OP.multiply(b.emit(OP.nn.relu(s)), s))

    units = units_of(build(body)["main"], ELEMENTWISE)
    assert [len(unit.members) for unit in units] == [2, 2], "relu stays out of the convolution that is read twice"


def test_what_has_no_int8_form_stays_float() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return b.emit(conv(b.emit(OP.cumsum(b.emit(conv(x)), axis=3))))

    mod = quantized(build(body))
    assert operators(mod) == [
        "nn.conv2d float32", "add float32", "quantize int8", "cumsum float32",
        "quantize int8", "nn.conv2d float32", "add float32", "quantize int8",
    ]  # fmt: skip
    left = measured(mod)["left_float"]
    assert [entry["reason"] for entry in left] == ["cumsum has no int8 form here"]


def test_without_fpu_it_is_named() -> None:
    mod = build(lambda b, x: b.emit(OP.exp(b.emit(OP.cumsum(b.emit(conv(x), "c"), axis=3), "running_sum"))))
    with pytest.raises(UnsupportedModel, match=r"no FPU.*running_sum \(cumsum has no int8 form"):
        quantized(mod, float_allowed=False)


def test_borders_may_stay_float() -> None:
    mod = quantized(build(lambda b, x: b.emit(OP.reshape(b.emit(conv(x)), (1, 32)), "y")), float_io=True)
    assert str(mod["main"].params[0].ty.dtype) == "float32" and str(mod["main"].ret_ty.dtype) == "float32"
    assert operators(mod)[0] == "quantize int8" and op_name(bindings(mod["main"])[-1].value) == "relax.dequantize"


def test_operators_that_lose_too_much_are_left_float_the_worst_first() -> None:
    """exp of numbers up to 20 spans nine decades: int8 keeps one of them."""

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        c = b.emit(conv(x), "c")
        wide = b.emit(OP.exp(b.emit(OP.multiply(c, relax.const(3.0)))), "wide")
        return b.emit(OP.sigmoid(b.emit(OP.multiply(wide, relax.const(0.01)))), "narrow")

    mod = build(body)
    everything = measured(quantized(mod, min_snr_db=-100.0))
    assert not everything["left_float"] and all(entry["dtype"] == "int8" for entry in everything["operators"])
    some = measured(quantized(mod, min_snr_db=100.0))
    assert some["left_float"] and all("dB" in entry["reason"] for entry in some["left_float"])
    floats = {entry["name"] for entry in some["operators"] if entry["dtype"] == "float32"}
    assert floats == {entry["name"] for entry in some["left_float"]}


@pytest.mark.parametrize("float_io", [False, True])
@pytest.mark.slow
def test_the_trial_run_is_what_the_module_computes(float_io: bool) -> None:
    """The numbers the report is made of are those of the QDQ module in TVM, bit for bit."""

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = b.emit(OP.nn.relu(b.emit(OP.add(b.emit(conv(x)), relax.const(BIAS)))))
        second = b.emit(OP.add(first, b.emit(conv(b.emit(OP.cumsum(first, axis=2))))))
        pooled = b.emit(OP.nn.avg_pool2d(second, (2, 2), strides=(2, 2)))
        flat = b.emit(OP.reshape(pooled, (1, 8)))
        return b.emit(OP.nn.softmax(b.emit(OP.matmul(flat, relax.const(RNG.normal(size=(8, 3)).astype("float32"))))))

    mod = build(body)
    qdq = quantized(mod, float_io=float_io, min_snr_db=-100.0)
    labels = _guesses(qdq, samples_of(mod), float_io)
    right = measured(quantized(mod, float_io=float_io, labels=labels, min_snr_db=-100.0))
    wrong = [(label + 1) % 3 for label in labels]
    none = measured(quantized(mod, float_io=float_io, labels=wrong, min_snr_db=-100.0))
    assert right["accuracy_int8"] == 1.0 and none["accuracy_int8"] == 0.0
    assert measured(qdq)["accuracy_int8"] is None
    units = units_of(mod["main"], ELEMENTWISE)
    runner = UnitRunner(mod, units)
    by_name = {unit.result.name: unit.result for unit in units} | {"x": mod["main"].params[0]}
    activations = {
        by_name[b.var.name.removesuffix(".dequantized")]: affine_from(b.value)
        for b in bindings(qdq["main"])
        if b.var.name.endswith(".dequantized") and b.var.name.removesuffix(".dequantized") in by_name
    }
    assert activations == {var: a for var, a in calibrate(runner, samples_of(mod)).narrow.items() if var in activations}


def affine_from(call: relax.Call) -> object:
    scale, zero_point = (arg.value.numpy() for arg in call.args[1:3])
    return type(affine_of_range(0, 1))(scale=float(scale), zero_point=int(zero_point))


def _guesses(qdq: tvm.IRModule, samples: Sequence[dict[str, np.ndarray]], float_io: bool) -> list[int]:
    machine = relax.VirtualMachine(tvm.compile(qdq, "llvm"), tvm.cpu())
    read = next(b.value for b in bindings(qdq["main"]) if op_name(b.value) == "relax.dequantize")
    affine = affine_from(read)
    given = [s["x"] if float_io else affine.quantize(s["x"]) for s in samples]
    return [int(machine["main"](tvm.runtime.tensor(x)).numpy().argmax()) for x in given]


def test_already_quantized() -> None:
    mod = quantized(build(lambda b, x: b.emit(conv(x))))
    with pytest.raises(UnsupportedModel, match="already quantized"):
        quantized(mod)


def test_nothing_to_quantize() -> None:
    with pytest.raises(UnsupportedModel, match="no float operator"):
        quantized(build(lambda b, x: b.emit(OP.cumsum(x, axis=3))))


@pytest.mark.parametrize("operator", [lambda x: OP.reshape(x, (1, -1)), lambda x: OP.nn.relu(x)])
def test_results_of_a_unit_outlive_its_next_run(operator: Callable[[relax.Expr], relax.Expr]) -> None:
    """Operands are copied to the same tensor each time; of an array in another order, too."""
    mod = build(lambda b, x: b.emit(operator(x)))
    runner = UnitRunner(mod, units_of(mod["main"], ELEMENTWISE))
    given = [RNG.uniform(0, 1, IMAGE).astype("float32") for _ in range(2)]
    given += [np.asfortranarray(given[0]), given[1].astype("float64").astype("float32")[..., ::-1]]
    results = [runner.outputs({"x": array})[0] for array in given]
    for array, result in zip(given, results, strict=True):
        np.testing.assert_array_equal(result, array.reshape(result.shape))


def test_functions_with_several_outputs_and_an_unquantized_input() -> None:
    indices = relax.Var("indices", relax.TensorType((2,), "int64"))
    x = image()

    def body(b: relax.BlockBuilder) -> relax.Expr:
        c = b.emit(conv(x), "c")
        return relax.Tuple([c, b.emit(OP.take(c, indices, axis=3), "taken")])

    builder = relax.BlockBuilder()
    with builder.function("main", [x, indices]):
        with builder.dataflow():
            result = builder.emit_output(body(builder))
        builder.emit_func_output(result)
    mod = load(builder.get())
    samples = [{"x": np.ones(IMAGE, "float32"), "indices": np.array([0, 1])}]
    after = QuantizeInt8(samples, elementwise=ELEMENTWISE)(mod)
    relax.analysis.well_formed(after)
    assert [str(param.ty.dtype) for param in after["main"].params] == ["int8", "int64"]


def test_a_scaled_product_and_a_masked_softmax_are_one_operator_each() -> None:
    x = relax.Var("x", relax.TensorType((1, 2, 6, 6), "float32"))
    mask = np.triu(np.full((6, 6), -np.inf, "float32"), 1)

    def body(b: relax.BlockBuilder) -> relax.Expr:
        scores = b.emit(OP.divide(b.emit(OP.matmul(b.emit(OP.nn.relu(x)), x)), relax.const(2.0)))
        return b.emit(OP.nn.softmax(b.emit(OP.add(scores, relax.const(mask)))))

    units = units_of(load(module_of([x], body))["main"], ELEMENTWISE)
    assert [(unit.kind, len(unit.members)) for unit in units] == [("compute", 1), ("compute", 2), ("compute", 2)]


def test_only_what_is_selected_from_floats_is_quantized() -> None:
    """The last step of a loop that computes in float, also through moves ahead of the selection."""

    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        made = builder.emit(OP.cos(x), "made")  # has no int8 form here
        turned = builder.emit(OP.permute_dims(made, [0, 2, 3, 1]), "turned")
        last = builder.emit(OP.strided_slice(turned, [1], [3], [4]), "last")
        return builder.emit(OP.matmul(last, relax.const(np.eye(2, dtype="float32"))), "y")

    assert operators(quantized(build(body), min_snr_db=-100.0)) == [
        "cos float32", "permute_dims float32", "strided_slice float32", "quantize int8",
        "matmul float32", "add float32", "quantize int8",
    ]  # fmt: skip


def test_parts_that_are_all_of_a_value_are_quantized_together() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        made = builder.emit(OP.cos(x), "made")
        parts = [builder.emit(OP.strided_slice(made, [2], [at], [at + 2]), f"part{at}") for at in (0, 2)]
        return builder.emit(OP.add(*(builder.emit(conv(part), f"c{at}") for at, part in enumerate(parts))), "y")

    assert operators(quantized(build(body), min_snr_db=-100.0))[:3] == [
        "cos float32", "quantize int8", "strided_slice int8",
    ]  # fmt: skip


def test_selections_from_integers_stay_integers() -> None:
    def body(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        half = builder.emit(OP.strided_slice(builder.emit(conv(x), "c"), [2], [0], [2]), "half")
        return builder.emit(conv(half), "y")

    assert operators(quantized(build(body), min_snr_db=-100.0)) == [
        "nn.conv2d float32", "add float32", "quantize int8", "strided_slice int8",
        "nn.conv2d float32", "add float32", "quantize int8",
    ]  # fmt: skip


def test_prelu_with_slopes_of_channels_is_one_operator() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        h, zero = b.emit(conv(x)), relax.const(0.0, "float32")
        below = b.emit(OP.multiply(b.emit(OP.minimum(h, zero)), relax.const(np.full((1, 2, 1, 1), 0.2, "float32"))))
        return b.emit(conv(b.emit(OP.add(b.emit(OP.maximum(h, zero)), below))))

    mod, known = build(body), ELEMENTWISE | {"relax.maximum", "relax.minimum"}
    after = QuantizeInt8(samples_of(mod), elementwise=known)(mod)
    assert operators(after).count("quantize int8") == len(measured(after)["operators"]) == 3
