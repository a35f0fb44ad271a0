"""Modules that other passes of TVM's have been over, and calibration under other names: they work, or are told why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadInput, UnsupportedModel

QUICK = BuildOptions(verify=("host",), name="m")


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    return tvm_ext.load(saved(SMALL_MODELS["image_in_and_out"](), tmp_path_factory.mktemp("model")))


def test_a_legalized_module_works(module: tvm.IRModule, tmp_path: Path) -> None:
    """Also after TVM has fused its functions."""
    legalized = relax.transform.LegalizeOps()(module)
    assert tvm_ext.build(legalized, "host", tmp_path / "out", QUICK).report["verify"]["host"]["passed"]
    annotated = relax.transform.AnnotateTIROpPattern()(legalized)
    fused = relax.transform.FuseTIR()(relax.transform.FuseOps()(annotated))
    assert tvm_ext.estimate(fused, "host", QUICK).predicted_instructions > 0


def test_functions_in_place_of_operators_are_named(module: tvm.IRModule) -> None:
    legalized = relax.transform.AnnotateTIROpPattern()(relax.transform.LegalizeOps()(module))
    with pytest.raises(UnsupportedModel, match=r"functions in place of operators: fused_\w+ \(1 times\).*FuseOps"):
        tvm_ext.estimate(relax.transform.FuseOps()(legalized), "host")


def test_mixed_precision_before_us_is_told_as_such(module: tvm.IRModule) -> None:
    mixed = relax.transform.ToMixedPrecision()(module)
    with pytest.raises(UnsupportedModel, match=r"left over: relax.*float16, as after relax.transform.ToMixedPrecision"):
        tvm_ext.estimate(mixed, "cortex_m4")


def test_calibration_under_another_name_says_what_is_there(module: tvm.IRModule, tmp_path: Path) -> None:
    array = np.zeros((2, 1, 3, 12, 10), np.float32)
    np.savez(tmp_path / "c.npz", image=array, labels=np.zeros(2, int))
    for source in (tmp_path / "c.npz", str(tmp_path / "c.npz"), {"image": array, "labels": [0, 0]}):
        with pytest.raises(BadInput, match=r"has no array for the input 'x'; it holds image, labels\. Give the arrays"):
            tvm_ext.estimate(module, "cortex_m4", BuildOptions(quantize="int8"), calibration=source)
    np.savez(tmp_path / "none.npz")
    with pytest.raises(BadInput, match="it holds no array at all"):
        tvm_ext.estimate(module, "cortex_m4", BuildOptions(quantize="int8"), calibration=tmp_path / "none.npz")
