"""The learned guide: trees as arrays, costs on networks it has never seen, and what it leaves alone."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.guide import costs, spearman
from codegen_c.costs.step_features import FEATURES, step_features
from codegen_c.kernels.contract import Implementation
from codegen_c.kernels.registry import select
from codegen_c.operators.kinds import Softmax, TensorType
from codegen_c.targets.registry import target_of
from tests.support.peers import peer
from tvm_ext.core.platform import Platform
from tvm_ext.core.trees import Trees
from tvm_ext.guide import WEIGHTS, learned_cost, learned_rank

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
MOST_BYTES = 100_000

STUMP = Trees(
    features=np.array([0, -1, -1, -1], np.int16), thresholds=np.array([2.0, 0, 0, 0], np.float32),
    left=np.array([1, 0, 0, 0], np.int16), right=np.array([2, 0, 0, 0], np.int16),
    values=np.array([0, 10, 20, 0.5], np.float32), roots=np.array([0, 3], np.int16), base=100.0,
)  # fmt: skip
"""One split at 2, and a tree that is a leaf."""


def test_trees_add_one_leaf_each() -> None:
    assert STUMP.predict(np.array([[1.0], [2.0], [2.5]], np.float32)).tolist() == [110.5, 110.5, 120.5]
    assert STUMP.predict(np.zeros((0, 1), np.float32)).shape == (0,)


def test_trees_come_back_from_their_arrays() -> None:
    rows = np.linspace(-5, 5, 21, dtype=np.float32)[:, None]
    again = Trees.of(STUMP.arrays("stump"), "stump")
    np.testing.assert_array_equal(again.predict(rows), STUMP.predict(rows))


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_trees_say_what_scikit_learn_says(seed: int) -> None:
    peer("sklearn")
    from sklearn.ensemble import GradientBoostingRegressor

    from benchmarks.train_guide import SEED, trained

    random = np.random.default_rng(seed)
    rows = random.normal(size=(60, 3)).astype(np.float32)
    targets = rows[:, 0] * 2 + np.abs(rows[:, 1])
    ours = trained(rows, targets, trees=12, depth=3, rate=0.2, loss="squared_error")
    theirs = GradientBoostingRegressor(
        n_estimators=12, max_depth=3, learning_rate=0.2, subsample=0.7, min_samples_leaf=3, random_state=SEED
    ).fit(rows, targets)
    np.testing.assert_allclose(ours.predict(rows), theirs.predict(rows), rtol=1e-5, atol=1e-5)


def test_weights_are_small_and_hold_nothing_but_numbers_and_names() -> None:
    with as_file(files("tvm_ext") / WEIGHTS) as path:
        assert path.stat().st_size < MOST_BYTES
        with np.load(path, allow_pickle=False) as arrays:
            assert {arrays[name].dtype.kind for name in arrays.files} <= {"f", "i", "U"}
    assert learned_rank()(np.zeros((2, 12), np.float32)).shape == (2,)


def softmax(shape: tuple[int, ...]) -> tuple[Implementation, TensorType]:
    kind = TensorType(shape=shape, dtype="float32")
    target = target_of(Platform.load("cortex_m4").processor)
    implementation = select(Softmax(inputs=(kind,), outputs=(kind,)), target)
    assert isinstance(implementation, Implementation)
    return implementation, kind


def test_what_was_never_measured_keeps_its_estimate() -> None:
    implementation, kind = softmax((1, 8, 8, 16))
    guide = learned_cost()
    assert "host" not in guide.simds
    assert guide.instructions(implementation, [kind], [kind], "host") == implementation.instructions
    numbers = step_features(implementation, [kind], [kind])
    assert guide.corrected([("dsp", "a_kernel_of_tomorrow", numbers)]).tolist() == [numbers[0]]


def test_numbers_of_a_step() -> None:
    implementation, kind = softmax((1, 8, 6, 16))
    named = dict(zip(FEATURES, step_features(implementation, [kind], [kind]), strict=True))
    assert named["output_elements"] == 768 and named["output_channels"] == 16
    assert named["output_width"] == 6 and named["output_rows"] == 8 and named["input_item_bytes"] == 4


def test_ranks_of_equal_values_are_shared() -> None:
    assert spearman(np.array([1, 2, 2, 3]), np.array([10, 20, 20, 30])) == pytest.approx(1)
    assert spearman(np.array([1, 2, 3]), np.array([3, 2, 1])) == pytest.approx(-1)


def test_learned_costs_are_as_near_as_estimates_that_are_true() -> None:
    """Over what benchmarks/guide.py measured: ranks and errors of no processor and type are noticeably worse."""
    measured = json.loads((RESULTS / "guide.json").read_text(encoding="utf-8"))["measured"]
    found = costs({key: one["steps"] for key, one in measured.items()})
    groups = {name: figures for name, figures in found.items() if len(name.split()) == 2}
    assert len(groups) == 4
    for figures in groups.values():
        assert figures["learned_spearman"] > max(0.995, figures["modelled_spearman"] - 0.001)
        assert figures["learned_error_bits"] < min(0.13, 1.05 * figures["modelled_error_bits"])
