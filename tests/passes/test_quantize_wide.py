"""QuantizeInt8 with activations of 16 bits: which units get them, conversions between, and what the report says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from relay_passes.analysis.choose_precision import Ratio, has_wide_form
from relay_passes.analysis.int8_parameters import AffineQuantization
from relay_passes.analysis.quantization_units import units_of
from relay_passes.dataflow import bindings, op_name
from tests.passes.float_modules import BIAS, OP, build, conv, measured, operators, quantized, samples_of
from tests.passes.stub_backend import ELEMENTWISE
from tvm_ext.frontends.load import load


def wide_range(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A value of two sizes: 8 bits lose the small one, which alone reaches the output."""
    weight = np.diag([100.0, 0.5]).astype("float32").reshape(2, 2, 1, 1)
    both = builder.emit(OP.nn.conv2d(x, relax.const(weight)), "both")
    small = relax.const(np.array([[0.0, 1.0], [0.0, -1.0]], "float32").reshape(2, 2, 1, 1))
    kept = builder.emit(OP.nn.conv2d(both, small), "kept")
    return builder.emit(OP.nn.conv2d(builder.emit(OP.sigmoid(kept), "s"), relax.const(conv_weight())), "last")


def conv_weight() -> np.ndarray:
    return np.random.default_rng(9).normal(size=(2, 2, 3, 3)).astype("float32")


def machine(mod: tvm.IRModule) -> Callable[[np.ndarray], np.ndarray]:
    """Main of a module in TVM's virtual machine."""
    main = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())["main"]
    return lambda array: main(tvm.runtime.tensor(array)).numpy()


def affine_of(call: relax.Call) -> AffineQuantization:
    """Parameters that a quantize or dequantize of 16 bits names."""
    scale, zero_point = (arg.value.numpy() for arg in call.args[1:3])
    assert zero_point.dtype == "int16"
    return AffineQuantization(scale=float(scale), zero_point=int(zero_point), dtype="int16")


def test_all_that_have_kernels_get_16_bits_and_the_others_convert() -> None:
    mod = build(wide_range)
    wide = quantized(mod, activations="int16", min_snr_db=-100.0)
    assert operators(wide) == [
        "nn.conv2d float32", "add float32", "quantize int16",
        "nn.conv2d float32", "add float32", "quantize int16", "quantize int8",
        "sigmoid float32", "quantize int8", "quantize int16",
        "nn.conv2d float32", "add float32", "quantize int16",
    ]  # fmt: skip
    assert [str(param.ty.dtype) for param in wide["main"].params] == ["int16"]
    report = measured(wide)
    assert [entry["dtype"] for entry in report["operators"]] == ["int16", "int16", "int8", "int16"]
    (stays,) = report["widths"]
    assert stays["reason"] == "sigmoid has no integer kernel of 16 bits"


def test_mixed_widens_what_loses_most_and_no_more() -> None:
    mod = build(wide_range)
    narrow, wide = (
        measured(quantized(mod, activations=kind, min_snr_db=-100.0))["operators"][-1]["snr_db"]
        for kind in ("int8", "int16")
    )
    asked = narrow + (wide - narrow) * 0.6
    report = measured(quantized(mod, activations="mixed", min_snr_db=asked))
    found = {entry["dtype"] for entry in report["operators"]}
    assert found == {"int8", "int16"} and report["left_float"] == []
    assert report["operators"][-1]["snr_db"] >= asked > narrow + 5
    assert report["operators"][0]["dtype"] == "int16", "the layer that gives both sizes"
    reasons = {entry["name"]: entry["reason"] for entry in report["widths"]}
    assert set(reasons) == {entry["name"] for entry in report["operators"] if entry["dtype"] == "int16"}
    assert all("in 8 bits it alone leaves" in reason for reason in reasons.values())
    assert "widths" not in measured(quantized(mod, activations="mixed", min_snr_db=narrow))


@pytest.mark.parametrize("float_io", [False, True])
def test_moves_follow_and_the_trial_run_is_what_the_module_computes(float_io: bool) -> None:
    """A value that units of both widths read, and moves of inputs: the report is of the module's numbers."""

    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(OP.permute_dims(x, [0, 1, 3, 2]), "turned")
        first = b.emit(OP.nn.relu(b.emit(OP.add(b.emit(conv(turned)), relax.const(BIAS)))), "first")
        both = b.emit(OP.add(b.emit(OP.tanh(first), "t"), b.emit(conv(first), "c")), "both")
        pooled = b.emit(OP.nn.max_pool2d(b.emit(OP.concat([both, first], axis=1)), (2, 2), strides=(2, 2)))
        return b.emit(OP.mean(pooled, axis=[2, 3]), "mean")

    mod = build(body)
    wide = quantized(mod, activations="int16", float_io=float_io, min_snr_db=-100.0)
    moved = [name for name in operators(wide) if name.startswith(("permute_dims", "concat"))]
    assert moved == ["permute_dims int16", "concat int16"]
    steps = bindings(wide["main"])
    reads = next(affine_of(b.value) for b in steps if op_name(b.value) == "relax.dequantize")
    gives = next(affine_of(b.value) for b in reversed(steps) if op_name(b.value) == "relax.quantize")
    machines, ratio = [machine(module) for module in (mod, wide)], Ratio()
    for sample in samples_of(mod):
        exact = machines[0](sample["x"])
        given = sample["x"] if float_io else reads.quantize(sample["x"])
        got = machines[1](given)
        ratio.add(exact, got if float_io else gives.dequantize(got))
    assert ratio.db == measured(wide)["operators"][-1]["snr_db"] > 30


def test_units_without_a_kernel_of_16_bits() -> None:
    def body(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        scaled = b.emit(OP.multiply(x, relax.const(3.0)))
        pooled = b.emit(OP.nn.relu(b.emit(OP.nn.max_pool2d(x, (1, 1)))))
        turned = b.emit(OP.multiply(b.emit(OP.add(scaled, pooled)), relax.const(-1.0)))
        return b.emit(OP.nn.softmax(turned))

    units = units_of(load(build(body))["main"], ELEMENTWISE)
    assert [(unit.operator, has_wide_form(unit)) for unit in units] == [
        ("relax.multiply", True), ("relax.nn.max_pool2d", True), ("relax.nn.relu", True), ("relax.add", True),
        ("relax.multiply", False), ("relax.nn.softmax", False),
    ]  # fmt: skip
