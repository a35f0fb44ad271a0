"""Regression trees of the learned model: as arrays, as scikit-learn computes them, and small where they ship."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.peers import peer
from tvm_ext.compilation.learned_updates import WEIGHTS, learned_updates
from tvm_ext.core.trees import Trees

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

    from benchmarks.train_updates import SEED, trained

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
    assert learned_updates() is learned_updates()
