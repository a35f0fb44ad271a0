"""Models that several processors share: on the host each is a thread, and answers are those of one processor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.golden import models as plain_models
from tests.support.random_models import random_model
from tests.support.shared_runs import DELAYS, Pair, pair_of, write_sources
from tests.support.sweeps import some_of
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.execution.host_model import HostModel

RUNS = 20


def check_same_bytes(pair: Pair, tmp_path: Path) -> None:
    """Several runs on each sample, with delays, and the answers of one processor."""
    (tmp_path / "delays.h").write_text(DELAYS, encoding="utf-8")
    flags = ["-include", str(tmp_path / "delays.h")]
    alone, shared = (write_sources(one, tmp_path / name) for name, one in (("a", pair.alone), ("b", pair.shared)))
    with HostModel(alone, pair.alone.interface, toolchain=QUICK_TOOLCHAIN) as model:
        expected = [model.run(sample) for sample in pair.samples]
    with HostModel(shared, pair.shared.interface, toolchain=QUICK_TOOLCHAIN, flags=flags) as model:
        for turn in range(RUNS):
            index = turn % len(pair.samples)
            found = model.run(pair.samples[index])
            for name, array in expected[index].items():
                np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("seed", some_of([1, 2], sweep=range(3, 40)))
def test_threads_answer_as_one_processor(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform.load("dual_m33_equal")
    check_same_bytes(pair_of(random_model(seed, 5), platform, tmp_path, monkeypatch, seed), tmp_path)


def test_tensors_of_the_caller_reach_all_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform.load("dual_m33")
    pair = pair_of(plain_models.branching_network(), platform, tmp_path, monkeypatch, 4, io="caller")
    assert "net_handed" in pair.shared.sources()["net_cpu1.c"]
    check_same_bytes(pair, tmp_path)
