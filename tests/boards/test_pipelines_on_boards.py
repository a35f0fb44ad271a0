"""Pipelines over two cores of a board, each in a thread of QEMU's: inputs in succession give the bytes of one core."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from codegen_c.program.makespan import SharedRun
from tests.support.random_models import random_model
from tests.support.shared_runs import Pair, Sample, pair_of, stateful_pair, write_package
from tests.support.sweeps import some_of
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.core.options import Io, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.execution.board import run_qemu

pytestmark = pytest.mark.board
ROUNDS = 4
MOST_OF_AN_INTERVAL = 1.1
"""A stage's part: its delays are random, and it is counted an input ahead of the caller, over other delays."""


@pytest.mark.parametrize("seed", some_of([3], sweep=range(4, 104)))
@pytest.mark.parametrize(
    ("board", "quantize", "io"), [("dual_m33_equal", "none", "caller"), ("dual_m33", "int8", "arena")]
)
def test_successive_inputs_answer_as_one_core(
    board: str, quantize: Quantize, io: Io, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform.load(board)
    try:
        pair = pair_of(
            random_model(seed, 5), platform, tmp_path, monkeypatch, seed, quantize=quantize, io=io, pipelined=True
        )
    except UnsupportedModel as error:  # cpu0 of dual_m33 has no FPU
        pytest.skip(str(error))
    shared = run_both(pair, platform, pair.samples * ROUNDS, tmp_path)
    assert shared.interval is not None
    assert max(shared.interval.stages) <= MOST_OF_AN_INTERVAL * shared.interval.instructions
    assert shared.interval.instructions <= sum(shared.interval.stages)


@pytest.mark.parametrize(
    "case", some_of(["dual_m33 hops", "dual_m33_equal cell"], sweep=["dual_m33_equal window", "dual_m33_equal delays"])
)
def test_states_stay_in_their_stage(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred inputs in order, one of which finds what the one before left."""
    board, name = case.split()
    platform = Platform.load(board)
    pair = stateful_pair(name, platform, tmp_path, monkeypatch)
    assert pair.alone.program.states and run_both(pair, platform, pair.samples, tmp_path).interval is not None


def run_both(pair: Pair, platform: Platform, samples: list[Sample], tmp_path: Path) -> SharedRun:
    """Figures of the model on several cores, with delays, whose answers are compared with those of one core."""
    ran = {}
    for compiled, flags in ((pair.alone, ""), (pair.shared, "-include delays.h")):
        package = write_package(pair, compiled, tmp_path / str(compiled.interface.in_flight))
        subprocess.run(
            ["make", "-s", "firmware", f"CFLAGS={flags}"], cwd=package, check=True, capture_output=True, timeout=120
        )
        ran[compiled.interface.in_flight] = run_qemu(
            package / "net.elf", platform, compiled.interface, samples, parallel=compiled.parallel
        )
    for expected, found in zip(ran[1].outputs, ran[2].outputs, strict=True):
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)
    assert ran[2].shared is not None
    return ran[2].shared
