"""Models that two cores of a board share, each in a thread of QEMU's: answers are those of one core, byte for byte."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.support.random_models import random_model
from tests.support.shared_runs import Pair, pair_of, write_package
from tests.support.sweeps import some_of
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.options import Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu
from tvm_ext.execution.samples import RunResult

pytestmark = pytest.mark.board
RUNS = 20


def run_both(pair: Pair, platform: Platform, folder: Path) -> tuple[RunResult, RunResult]:
    """`RUNS` samples on one core, and on two with delays, built by the packages' own Makefiles."""
    found: list[RunResult] = []
    for name, compiled, flags in (("a", pair.alone, ""), ("b", pair.shared, "-include delays.h")):
        package = write_package(pair, compiled, folder / name)
        subprocess.run(
            ["make", "-s", "firmware", f"CFLAGS={flags}"], cwd=package, check=True, capture_output=True, timeout=120
        )
        samples = [pair.samples[turn % len(pair.samples)] for turn in range(RUNS)]
        ran = run_qemu(package / "net.elf", platform, compiled.interface, samples, parallel=compiled.parallel)
        found.append(ran)
    return found[0], found[1]


def check_same_bytes(one: RunResult, other: RunResult) -> None:
    for expected, found in zip(one.outputs, other.outputs, strict=True):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("seed", some_of([3], sweep=range(4, 280)))
@pytest.mark.parametrize(("board", "quantize"), [("dual_m33_equal", "none"), ("dual_m33", "int8")])
def test_two_cores_answer_as_one(
    board: str, quantize: Quantize, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform.load(board)
    try:
        pair = pair_of(random_model(seed, 5), platform, tmp_path, monkeypatch, seed, quantize=quantize)
    except UnsupportedModel as error:  # cpu0 of dual_m33 has no FPU
        pytest.skip(str(error))
    one, two = run_both(pair, platform, tmp_path)
    check_same_bytes(one, two)
    assert two.shared is not None and one.instructions is not None
    assert two.instructions == two.shared.makespan >= max(two.shared.instructions)
    assert two.shared.makespan <= sum(two.shared.instructions)
