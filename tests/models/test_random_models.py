"""Random networks against onnxruntime: what a build's own verification compares, over many graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.packages import Packages, assert_close, sample
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs


@pytest.mark.parametrize("seed", some_of([2, 15], sweep=[8, *range(20, 26)]))
def test_on_the_host(packages: Packages, seed: int) -> None:
    package = packages.small(f"random_{seed}", lambda: random_model(seed))
    inputs = sample(package)
    (expected,) = onnx_outputs(random_model(seed), [inputs])
    assert_close(package.run(inputs), expected)
    assert package.report["arena_bytes"] >= package.report["lower_bound_bytes"] > 0


@pytest.mark.board
@pytest.mark.parametrize("seed", some_of([3], sweep=[11]))
def test_on_a_board(tmp_path: Path, seed: int) -> None:
    path = saved(random_model(seed), tmp_path)
    options = BuildOptions(io="caller", optimize="size", verify=("host", "qemu"))
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", options)
    assert package.report["verify"]["qemu"]["passed"]
    inputs = sample(package)
    assert_close(package.run(inputs, on="qemu"), package.run(inputs), tolerance=1e-5)


def test_the_same_seed_gives_the_same_model_and_another_one_another() -> None:
    first, again, other = random_model(1), random_model(1), random_model(2)
    assert first.SerializeToString(deterministic=True) == again.SerializeToString(deterministic=True)
    assert first != other
