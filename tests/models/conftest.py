"""Inputs that the tests of loaded models share."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 4)).astype("float32")


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype("float32")
