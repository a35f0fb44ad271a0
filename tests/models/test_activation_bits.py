"""Activations of 16 bits in models quantized here: kernels, comparison with TVM, conversions, states, refusals."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from rich.console import Console

import tvm_ext
from tests.models.test_quantize_states import dtypes, quantized, steps
from tests.support import state_models
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_model
from tvm_ext.core.decisions.models import QuantizationMeasured
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.relax.compile import relax_pipeline
from tvm_ext.report.tables import report_tables

M4 = Platform.load("cortex_m4")
INT16 = BuildOptions(quantize="int8", activations="int16", min_snr_db=-100.0, verify=("host",))


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """A network with every kind of layer that has kernels of 16 bits, a pad, a resize, and two that have none."""
    arrays = {
        "c": weights(8, 3, 3, 3), "d": weights(8, 1, 3, 3, seed=1), "p": weights(8, 8, 1, 1, seed=2),
        "t": weights(8, 4, 2, 2, seed=3), "m": weights(4, 5, seed=4), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "scales": np.array([1, 1, 2, 2], "float32"),
    }  # fmt: skip
    nodes = [
        NODE("Pad", ["x", "pads"], ["padded"]),
        NODE("Conv", ["padded", "c"], ["a"], name="conv"),
        NODE("Relu", ["a"], ["r"]),
        NODE("Conv", ["r", "d"], ["b"], name="deep", group=8, pads=[1, 1, 1, 1]),
        NODE("Sigmoid", ["b"], ["gate"], name="gate"),
        NODE("Mul", ["b", "gate"], ["g"], name="product"),
        NODE("Conv", ["g", "p"], ["e"], name="point"),
        NODE("Add", ["e", "r"], ["sum"], name="sum"),
        NODE("MaxPool", ["sum"], ["small"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        NODE("Resize", ["small", "", "scales"], ["large"], mode="nearest", name="resize"),
        NODE("ConvTranspose", ["large", "t"], ["u"], name="up", strides=[2, 2]),
        NODE("GlobalAveragePool", ["u"], ["mean"], name="mean"),
        NODE("Flatten", ["mean"], ["f"]),
        NODE("MatMul", ["f", "m"], ["scores"], name="dense"),
        NODE("Softmax", ["scores"], ["y"], name="softmax"),
    ]
    folder = tmp_path_factory.mktemp("network")
    return tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], arrays), folder))


@pytest.fixture(scope="module")
def samples() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(5).normal(size=(4, 1, 3, 6, 6)).astype("float32")}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """A convolution and a dense layer."""
    arrays = {"c": weights(4, 3, 3, 3), "m": weights(4 * 16, 5, seed=1)}
    nodes = [
        NODE("Conv", ["x", "c"], ["a"], name="conv"),
        NODE("Flatten", ["a"], ["f"]),
        NODE("MatMul", ["f", "m"], ["y"], name="dense"),
    ]
    folder = tmp_path_factory.mktemp("small")
    return tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], arrays), folder))


def kernels(package: Package) -> list[str]:
    return [step["kernel"] for step in package.report["steps"]]


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of(["cortex_m4"], sweep=["cortex_m55", "always_on"]))
def test_layers_are_integers_of_16_bits(
    platform: str, network: tvm.IRModule, samples: dict[str, np.ndarray], tmp_path: Path
) -> None:
    options = replace(INT16, verify=("host", "qemu"))
    package = tvm_ext.build(network, platform, tmp_path / "out", options, calibration=samples)
    assert package.report["verify"]["host"]["passed"] and package.report["verify"]["qemu"]["passed"]
    found = kernels(package)
    wide = {"qconv2d_i16", "qdepthwise_i16", "qbinary_i16", "qpool2d_i16", "qconv2d_transpose_i16", "qdense_i16"}
    assert wide <= set(found) and not any("f32" in kernel for kernel in found)
    report = package.report["quantization"]
    narrow = {entry["name"] for entry in report["operators"] if entry["dtype"] == "int8"}
    assert narrow == {"gate", "softmax"} == {entry["name"] for entry in report["widths"]}
    assert package.inputs["x"].dtype == "int16" and package.inputs["x"].zero_point == 0


def test_mixed_builds_both_and_is_as_good_as_asked(
    network: tvm.IRModule, samples: dict[str, np.ndarray], tmp_path: Path
) -> None:
    def estimated(activations: Any) -> tuple[float, int]:
        mod, made = compile_model(network, M4, replace(INT16, activations=activations), samples)
        report = QuantizationMeasured.read(mod).report
        assert report is not None
        return report["operators"][-1]["snr_db"], made.modelled_instructions

    (narrow, least), (wide, most) = estimated("int8"), estimated("int16")
    options = replace(INT16, activations="mixed", min_snr_db=(narrow + wide) / 2)
    mixed = tvm_ext.build(network, M4, tmp_path / "mixed", options, calibration=samples)
    operators = mixed.report["quantization"]["operators"]
    assert operators[-1]["snr_db"] >= options.min_snr_db > narrow and mixed.report["verify"]["host"]["passed"]
    widths = {entry["name"]: entry["dtype"] for entry in operators}
    assert mixed.report["quantization"]["left_float"] == [] and set(widths.values()) == {"int8", "int16"}
    assert least < sum(step["modelled_instructions"] for step in mixed.report["steps"]) < most
    assert "in 8 bits it alone leaves" in shown(mixed)


def shown(package: Package) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    for table in report_tables(package.report):
        console.print(table)
    return console.export_text()


def test_weights_of_4_bits_stand_beside_activations_of_16(small: tvm.IRModule, samples: dict[str, np.ndarray]) -> None:
    """Layers that stay at 8 bits may have them; of 16 bits alone there are none."""
    options = replace(INT16, activations="mixed", weights="int4", min_snr_db=-100.0)
    compiled = compile_model(small, M4, options, samples)[1]
    assert any("packed" in call.implementation.kernel for call in compiled.program.kernel_calls())
    with pytest.raises(DoesNotFit, match="and flash = 300"):
        compile_model(small, M4, replace(INT16, flash=300), samples)
    with pytest.raises(BadOptions, match="kernels for weights of 4 bits take activations of 8"):
        replace(INT16, weights="int4")


def test_a_state_of_16_bits(tmp_path: Path) -> None:
    """A filter's delays: mixed finds out over all steps that 8 bits of them lose too much."""
    pairs, data = {"z1": "z1.next", "z2": "z2.next"}, steps(30, x=(1, 8))
    options = {"activations": "mixed", "min_snr_db": 60.0}
    made = quantized(state_models.delays(), pairs, data, tmp_path, **options)
    assert set(dtypes(made).values()) == {"int16"} and made.report["verify"]["host"]["passed"]
    assert made.report["quantization"]["carried_snr_db"] >= 60


def test_inside_tvm_compile(small: tvm.IRModule, samples: dict[str, np.ndarray]) -> None:
    pipeline = relax_pipeline("host", replace(INT16, verify=None), calibration=samples)
    lowered = pipeline(small)
    assert str(lowered["main"].params[0].ty.dtype) == "int16"


def test_nothing_is_quantized() -> None:
    with pytest.raises(BadOptions, match="activations = 'mixed': it says what quantization makes"):
        BuildOptions(activations="mixed")
    with pytest.raises(BadOptions, match="activations = 'int4': allowed are int8, mixed, int16"):
        BuildOptions(quantize="int8", activations="int4")  # type: ignore[arg-type]
