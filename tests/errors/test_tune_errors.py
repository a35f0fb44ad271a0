"""Kernels are measured where a package is built for a board, and nowhere else in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm

import tvm_ext
from tests.support.onnx_models import image_in_and_out, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.core.errors import BadOptions
from tvm_ext.estimates.estimate import estimate
from tvm_ext.estimates.pareto import Budgets
from tvm_ext.relax.compile import relax_pipeline

TUNE = BuildOptions(tune=True)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tvm.IRModule:
    return tvm_ext.load(saved(image_in_and_out(), tmp_path_factory.mktemp("network")))


def test_a_platform_without_a_board_cannot_be_tuned_for(network: tvm.IRModule, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=r"tune: host has no board in QEMU.* cortex_m4 .*leave tune out"):
        tvm_ext.build(network, "host", tmp_path / "m", TUNE)
    assert not list(tmp_path.iterdir())


def test_what_chooses_by_the_model_says_so(network: tvm.IRModule) -> None:
    with pytest.raises(BadOptions, match=r"tune: an estimate chooses .*build\(\) measures"):
        estimate(network, "cortex_m4", TUNE)
    with pytest.raises(BadOptions, match="tune: a search over budgets chooses"):
        Budgets(network, Platform.load("cortex_m4"), TUNE)
    with pytest.raises(BadOptions, match=r"tune: tvm\.compile chooses"):
        relax_pipeline("host", TUNE)


def test_tune_is_yes_or_no() -> None:
    with pytest.raises(BadOptions, match=r"tune = .*True or False"):
        BuildOptions(tune="yes")  # pyright: ignore[reportArgumentType]
