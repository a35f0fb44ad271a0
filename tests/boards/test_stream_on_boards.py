"""Models with streamed inputs, on the boards: rows come from a file through semihosting, none of them held longer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from benchmarks import zoo
from tests.support.kinds import image
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.packages import sample
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform


@pytest.mark.board
@pytest.mark.parametrize("board", some_of(["cortex_m55"], sweep=["cortex_m4"]), indirect=True)
def test_a_streamed_model_verifies(shared_models: Path, tmp_path: Path, board: Platform) -> None:
    """resnet holds 3 KB of image else; the self-test in the ELF streams its vector too."""
    module = tvm_ext.load(shared_models / "resnet_int8.onnx")
    options = BuildOptions(io="stream", ram=18_000, verify=("host", "qemu"))
    report = tvm_ext.build(module, board, tmp_path / "out", options).report
    assert report["arena_bytes"] <= 18_000 and report["inputs"][0]["stream"]["rows_kept"] < 10
    assert report["verify"]["qemu"]["passed"] and report["verify"]["host"]["passed"]


@pytest.mark.board
def test_rows_of_several_inputs_and_outputs_find_their_place(tmp_path: Path, cortex_m4: Platform) -> None:
    for name in ("image_in_and_out", "branches"):
        module = tvm_ext.load(saved(SMALL_MODELS[name](), tmp_path, name))
        package = tvm_ext.build(module, cortex_m4, tmp_path / f"{name}_out", BuildOptions(io="stream", verify=()))
        samples = [sample(package, seed) for seed in (1, 2)]
        board = package.run_board(samples)
        for inputs, outputs in zip(samples, board.outputs, strict=True):
            for key, array in package.run(inputs).items():
                np.testing.assert_allclose(outputs[key], array, rtol=1e-4, atol=1e-5)


@pytest.mark.board
def test_rows_that_are_asked_for_again_verify(tmp_path: Path, cortex_m4: Platform) -> None:
    """An image in flash, strip by strip: 8,536 B by rows, which come once; the self-test asks in strips, too."""
    module = tvm_ext.load(image(14, int8=True, aspect=6)(tmp_path))
    options = BuildOptions(io="stream", reread=True, ram=5_500, verify=("host", "qemu"))
    package = tvm_ext.build(module, cortex_m4, tmp_path / "out", options)
    report = package.report
    assert report["arena_bytes"] <= 5_500 and report["fit"]["attempts"][-1]["method"] == "patches"
    assert len(report["inputs"][0]["stream"]["strips"]) > 1
    assert report["verify"]["qemu"]["passed"] and report["verify"]["host"]["passed"]
    samples = [sample(package, seed) for seed in (1, 2)]
    for inputs, outputs in zip(samples, package.run_board(samples).outputs, strict=True):
        for key, array in package.run(inputs).items():
            np.testing.assert_array_equal(outputs[key], array)


@pytest.mark.board
@pytest.mark.sweep
def test_a_mobilenet_of_an_image_in_flash_verifies(tmp_path: Path, cortex_m4: Platform) -> None:
    """MobileNetV2-0.35 of 144 x 144: 28,944 B by rows that come once; strips are born in their result."""
    path = tmp_path / "mobilenet.onnx"
    onnx.save(zoo.build("mobilenet_v2_035_144_int8"), path)
    options = BuildOptions(io="stream", reread=True, ram=16_500, verify=("host", "qemu"))
    report = tvm_ext.build(path, cortex_m4, tmp_path / "out", options).report
    assert report["arena_bytes"] <= 16_500 and report["fit"]["attempts"][-1]["method"] == "patches"
    assert report["verify"]["qemu"]["passed"] and report["verify"]["host"]["passed"]
