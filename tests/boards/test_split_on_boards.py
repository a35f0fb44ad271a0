"""A model split to fit a budget, on the boards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

import tvm_ext
from benchmarks.networks.dense import wide_mlp
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform


@pytest.mark.board
@pytest.mark.parametrize(("name", "ram"), [("kws_int8", 4_100), ("resnet_int8", 16_200)])
def test_the_smallest_budgets_verify(
    shared_models: Path, tmp_path: Path, cortex_m4: Platform, name: str, ram: int
) -> None:
    """Not half of the unsplit arenas: rings of rings, sums of a pool between calls."""
    module = tvm_ext.load(shared_models / f"{name}.onnx")
    package = tvm_ext.build(module, cortex_m4, tmp_path / "out", BuildOptions(ram=ram, verify=("host", "qemu")))
    report = package.report
    assert report["arena_bytes"] <= ram and report["verify"]["qemu"]["passed"]


@pytest.mark.board
def test_a_split_model_verifies(shared_models: Path, tmp_path: Path, board: Platform) -> None:
    """resnet needs 34 KB whole; within 20 KB the board gives the host's bytes."""
    module = tvm_ext.load(shared_models / "resnet_int8.onnx")
    options = BuildOptions(ram=20_000, memories="default", verify=("host", "qemu"))
    package = tvm_ext.build(module, board, tmp_path / "out", options)
    report = package.report
    assert report["arena_bytes"] <= 20_000 and report["fit"]["attempts"][-1]["method"] == "split"
    assert report["verify"]["qemu"]["passed"] and report["verify"]["host"]["passed"]


@pytest.mark.board
@pytest.mark.parametrize("make", [quantized, lambda model: model], ids=["int8", "float32"])
def test_dense_pairs_verify(
    make: Callable[[onnx.ModelProto], onnx.ModelProto], tmp_path: Path, board: Platform
) -> None:
    """The vector between two layers takes 1,024 elements whole; the board gives the host's bytes."""
    model = make(wide_mlp("mlp", features=48, hidden=1024))
    options = BuildOptions(ram=1000, memories="default", verify=("host", "qemu"))
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), board, tmp_path / "out", options)
    report = package.report
    assert report["arena_bytes"] <= 1000 and report["fit"]["attempts"][-1]["method"] == "split"
    assert report["verify"]["qemu"]["passed"] and report["verify"]["host"]["passed"]
