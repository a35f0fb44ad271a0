"""`quantize = "auto"`: a model stays float where that fits, and becomes int8, last of all, where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from tests.support.packages import sample
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.core.errors import BadOptions, DoesNotFit

AUTO = BuildOptions(quantize="auto", verify=())
FLOAT_METHODS = {"whole", "split", "recompute", "split, least scratch"}


@pytest.fixture(scope="module")
def calibration(digits: Path) -> Path:
    return digits / "digits_calibration.npz"


@pytest.fixture(scope="module")
def module(digits: Path) -> tvm.IRModule:
    return tvm_ext.load(digits / "digits.onnx")


@pytest.fixture(scope="module")
def in_float(module: tvm.IRModule, calibration: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("auto") / "float"
    return tvm_ext.build(module, "cortex_m4", folder, AUTO, calibration=calibration)


def methods(package: Package) -> list[str]:
    return [attempt["method"] for attempt in package.report["fit"]["attempts"]]


def test_what_fits_stays_float(in_float: Package, module: tvm.IRModule, tmp_path: Path) -> None:
    assert methods(in_float) == ["whole"] and in_float.report["quantization"] is None
    assert in_float.report["options"]["quantize"] == "auto"
    plain = tvm_ext.build(module, "cortex_m4", tmp_path / "plain", BuildOptions(verify=()))
    for path in plain.folder.glob("*.[ch]"):
        assert path.read_bytes() == (in_float.folder / path.name).read_bytes()


def test_int8_comes_last(module: tvm.IRModule, calibration: Path, tmp_path: Path) -> None:
    """Within less than any float plan needs, which their searches say; and what int8 costs."""
    options = BuildOptions(quantize="auto", ram=3000, verify=("host",))
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "out", options, calibration=calibration)
    tried = methods(package)
    assert set(tried) & FLOAT_METHODS >= {"whole"} and tried[-1].startswith("int8, ")
    assert [name.startswith("int8, ") for name in tried] == sorted(name.startswith("int8, ") for name in tried)
    report = package.report
    assert report["arena_bytes"] == report["fit"]["attempts"][-1]["arena_bytes"] <= 3000
    assert report["quantization"]["accuracy_int8"] > 0.95 and package.inputs["image"].dtype == "int8"
    assert report["verify"]["host"]["passed"]


def test_weights_that_are_too_large(module: tvm.IRModule, calibration: Path, in_float: Package, tmp_path: Path) -> None:
    """No split makes weights smaller: int8 is next at once."""
    platform = Platform.load("host")
    weights = in_float.report["weights_bytes"]
    small = replace(platform, memories=tuple(replace(m, capacity_bytes=weights - 1) for m in platform.memories))
    package = tvm_ext.build(module, small, tmp_path / "out", AUTO, calibration=calibration)
    assert methods(package) == ["whole", "int8, whole"] and package.report["weights_bytes"] < weights


def test_not_even_int8_fits(module: tvm.IRModule, calibration: Path, tmp_path: Path) -> None:
    options = replace(AUTO, ram=100)
    with pytest.raises(DoesNotFit, match=r"Best of each method: whole: \d+ B.*; int8, whole: \d+ B") as found:
        tvm_ext.build(module, "cortex_m4", tmp_path / "out", options, calibration=calibration)
    assert "--quantize" not in str(found.value) and "--io stream keeps only rows" in str(found.value)


def test_what_would_help_is_said(module: tvm.IRModule, tmp_path: Path) -> None:
    with pytest.raises(DoesNotFit, match="--quantize auto with calibration data uses int8 if float"):
        tvm_ext.build(module, "cortex_m4", tmp_path / "out", BuildOptions(ram=1100))
    with pytest.raises(DoesNotFit) as found:
        tvm_ext.build(module, "cortex_m4", tmp_path / "out", BuildOptions(ram=100, io="stream"))
    assert "--io stream" not in str(found.value) and "--quantize auto" in str(found.value)


def test_a_model_that_is_quantized_already(shared_models: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(shared_models / "kws_int8.onnx")
    (param,) = module["main"].params
    shape = [int(extent) for extent in param.ty.shape.values]
    calibration = {param.name: np.zeros((2, *shape), str(param.ty.dtype))}
    with pytest.raises(DoesNotFit, match=r"int8 is not possible: .*already quantized.* Best of each method: whole"):
        tvm_ext.build(module, "host", tmp_path / "out", replace(AUTO, ram=500), calibration=calibration)


def test_calibration_is_asked_for_at_once(module: tvm.IRModule, tmp_path: Path) -> None:
    """Also where the float model would fit: whether it does may change with the next model."""
    with pytest.raises(BadOptions, match=r"quantize = 'auto' needs calibration data: .*--calibration FILE"):
        tvm_ext.build(module, "host", tmp_path / "out", AUTO)
    assert not (tmp_path / "out").exists()


def test_inside_tvm(module: tvm.IRModule, calibration: Path, in_float: Package) -> None:
    """The same choice: int8 in and out where float does not fit."""
    x = sample(in_float)["image"]
    for ram, dtype in ((None, "float32"), (3000, "int8")):
        pipeline = tvm_ext.relax_pipeline("host", replace(AUTO, ram=ram), calibration=calibration)
        executable = tvm.compile(module, target="llvm", relax_pipeline=pipeline)
        machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
        result = machine["main"](tvm.runtime.tensor(x.astype(dtype)))
        found = result if isinstance(result, tvm.runtime.Tensor) else result[0]
        assert str(found.dtype) == dtype
