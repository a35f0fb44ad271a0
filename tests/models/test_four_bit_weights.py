"""Weights of 4 bits: packages give int8's bytes and onnxruntime's answers; made here, they keep a budget of flash."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.models.test_quantize import accuracy
from tests.support.four_bits import small_weights
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_model, compile_within
from tvm_ext.core.decisions.models import QuantizationMeasured
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.relax.compile import relax_pipeline

INT4 = BuildOptions(quantize="int8", weights="int4", min_snr_db=-100.0, verify=("host",))


def kernels(package: Package) -> list[str]:
    return [step["kernel"] for step in package.report["steps"] if "packed" in step["kernel"]]


PACKED = {
    "host": ["qconv2d_packed_host", "qdepthwise_packed_host", "qconv2d_packed_host", "qdense_packed_host"],
    "cortex_m4": ["qconv2d_packed_dsp", "qdepthwise_packed_dsp", "qconv2d_packed_dsp", "qdense_packed_dsp"],
    "cortex_m55": ["qconv2d_packed_helium", "qpointwise_packed_helium", "qdense_packed_helium"],
}


@pytest.mark.parametrize("platform", some_of(["cortex_m4"], sweep=["host", "cortex_m55"]))
def test_packages_give_the_bytes_of_int8_and_agree_with_onnxruntime(platform: str, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(small_weights(), tmp_path))
    packages = {
        kind: tvm_ext.build(module, platform, tmp_path / kind, BuildOptions(weights=kind, verify=verify))
        for kind, verify in (("int8", ()), ("mixed", ("host",)))
    }  # fmt: skip
    plain, packed = packages.values()
    assert kernels(plain) == [] and kernels(packed) == PACKED[platform]
    assert packed.report["weights_bytes"] < 0.75 * plain.report["weights_bytes"]
    assert packed.report["verify"]["host"]["passed"]
    assert packed.report["verify"]["host"]["reference"].startswith("onnxruntime")
    sample = {"x": np.random.default_rng(2).normal(size=(1, 3, 6, 6)).astype("float32")}
    np.testing.assert_array_equal(packed.run(sample)["dense.d"], plain.run(sample)["dense.d"])


@pytest.mark.board
@pytest.mark.parametrize("platform", ["cortex_m4", "cortex_m55"])
def test_on_boards(platform: str, tmp_path: Path) -> None:
    options = BuildOptions(weights="int4", verify=("host", "qemu"))
    package = tvm_ext.build(tvm_ext.load(saved(small_weights(), tmp_path)), platform, tmp_path / "out", options)
    assert kernels(package) == PACKED[platform]
    assert package.report["verify"]["qemu"]["passed"]


@pytest.mark.parametrize("platform", some_of(["cortex_m4"], sweep=["host"]))
def test_accuracy_of_a_model_quantized_here(platform: str, digits: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(digits / "digits.onnx")
    options = replace(INT4, verify=())
    package = tvm_ext.build(module, platform, tmp_path / "out", options, calibration=digits / "digits_calibration.npz")
    assert len(kernels(package)) == (5 if platform == "cortex_m4" else 4)
    assert accuracy(package, digits) >= 0.96


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    """A float network: a convolution, a depthwise one, and a dense layer."""
    arrays = {"c": weights(8, 3, 3, 3), "d": weights(8, 1, 3, 3, seed=1), "m": weights(8 * 16, 5, seed=2)}
    nodes = [
        NODE("Conv", ["x", "c"], ["a"], name="first"),
        NODE("Conv", ["a", "d"], ["b"], name="second", group=8, pads=[1, 1, 1, 1]),
        NODE("Flatten", ["b"], ["f"]),
        NODE("MatMul", ["f", "m"], ["y"], name="third"),
    ]
    folder = tmp_path_factory.mktemp("trained")
    return tvm_ext.load(saved(model_of(nodes, {"x": (1, 3, 6, 6)}, ["y"], arrays), folder))


@pytest.fixture(scope="module")
def samples() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(5).normal(size=(6, 1, 3, 6, 6)).astype("float32")}


def made(mod: tvm.IRModule, samples: dict[str, np.ndarray], **changes: object) -> Compiled:
    options = replace(INT4, **{"weights": "int8", **changes})
    return compile_model(mod, Platform.load("cortex_m4"), options, samples)[1]


def four_bits(compiled: Compiled) -> list[str]:
    return [
        call.implementation.kernel for call in compiled.program.kernel_calls() if "packed" in call.implementation.kernel
    ]


def test_a_budget_of_flash_is_kept_by_the_layers_that_cost_least(
    trained: tvm.IRModule, samples: dict[str, np.ndarray]
) -> None:
    plain, least = made(trained, samples), made(trained, samples, weights="int4")
    sizes = [compiled.program.weights_bytes for compiled in (plain, least)]
    assert four_bits(plain) == [] and four_bits(least) == PACKED["cortex_m4"][:2] + PACKED["cortex_m4"][3:]
    budget = sizes[0] - 100  # a dense layer of 5 channels has no padding in int8, and is padded to 8 in int4
    some = made(trained, samples, flash=budget, quantize="auto", ram=100_000)
    assert four_bits(some) == ["qdense_packed_dsp"] and some.program.weights_bytes <= budget
    refused = rf"its constants take {sizes[1]} B, and flash = 500, which counts .* For a float model"
    with pytest.raises(DoesNotFit, match=refused):
        made(trained, samples, flash=500)


def test_mixed_weights_keep_the_asked_ratio(trained: tvm.IRModule, samples: dict[str, np.ndarray]) -> None:
    mod, compiled = compile_model(
        trained, Platform.load("cortex_m4"), replace(INT4, weights="mixed", min_snr_db=26.0), samples
    )
    assert 0 < len(four_bits(compiled)) < 3
    report = QuantizationMeasured.read(mod).report
    assert report is not None and report["operators"][-1]["snr_db"] >= 26.0
    assert {operator.get("weight_bits") for operator in report["operators"]} == {None, 4}


def test_budgets_that_nothing_keeps(digits: Path) -> None:
    mod, options = tvm_ext.load(digits / "digits.onnx"), BuildOptions(flash=1000)
    with pytest.raises(DoesNotFit, match="and flash = 1000"):
        tvm_ext.estimate(mod, "host", options)
    with pytest.raises(DoesNotFit, match="and flash = 1000"):
        compile_within(mod, Platform.load("host"), options)(None)
    with pytest.raises(BadOptions, match=r"flash: tvm\.compile cannot try several builds"):
        relax_pipeline("host", options)


@pytest.mark.parametrize("quantized", [True, False])
def test_a_notice_where_no_layer_has_4_bits(quantized: bool, digits: Path, tmp_path: Path) -> None:
    """A float model that nothing quantizes keeps its weights; that is said."""
    path = saved(small_weights(), tmp_path) if quantized else digits / "digits.onnx"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", BuildOptions(weights="mixed", verify=()))
    notices = [str(one.message) for one in caught if issubclass(one.category, ModelNotice)]
    said = [notice for notice in notices if "weights = 'mixed'" in notice]
    assert len(said) == (0 if quantized else 1) and all("are not stored in 4 bits" in notice for notice in said)


def test_a_notice_where_no_layer_reaches_the_ratio(
    trained: tvm.IRModule, samples: dict[str, np.ndarray], tmp_path: Path
) -> None:
    options = replace(INT4, weights="mixed", min_snr_db=60.0, verify=())
    with pytest.warns(ModelNotice, match="weights = 'mixed': .* would fall below min_snr_db"):
        tvm_ext.build(trained, "host", tmp_path / "out", options, calibration=samples)
