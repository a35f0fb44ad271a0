"""Networks that crop and resize rows, within their budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import onnx
import pytest

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.row_networks import cropped, cropped_input, halved, samples_of
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions

Quantized = Literal["none", "int8"]


@pytest.mark.parametrize(
    ("model", "quantize", "ram"),
    some_rows(
        [
            pytest.param(cropped(), "none", 20_000, id="cropped"),
            pytest.param(cropped_input(), "none", 4_000, id="cropped input"),
            pytest.param(halved("linear"), "int8", 7_000, id="halved int8"),
        ],
        sweep=[
            pytest.param(cropped(), "int8", 5_000, id="cropped int8"),
            pytest.param(halved("nearest"), "none", 30_000, id="halved"),
        ],
    ),
)
def test_within_its_budget(model: onnx.ModelProto, quantize: Quantized, ram: int, tmp_path: Path) -> None:
    """The last model's plan was rejected once: rows of the resize were read before they were there."""
    options = BuildOptions(ram=ram, quantize=quantize, io="caller", verify=("host",))
    calibration = samples_of(32, 32, tmp_path) if quantize == "int8" else None
    built = tvm_ext.build(saved(model, tmp_path), "host", tmp_path / "out", options, calibration=calibration)
    assert built.report["arena_bytes"] <= ram and built.report["verify"]["host"]["passed"]
