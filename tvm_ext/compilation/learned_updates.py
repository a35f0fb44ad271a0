"""Learned cost model that proposes updates of a plan for several memories: `updates.npz`, from train_updates.py."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np

from relay_passes.solvers.memories.updates import Rates
from tvm_ext.core.trees import Trees

WEIGHTS = "updates.npz"


@cache
def learned_updates() -> Rates:
    """Return the functions that rate updates of a plan, learned from the search's plans for random networks."""
    with as_file(files("tvm_ext") / WEIGHTS) as path, np.load(path, allow_pickle=False) as arrays:
        read = dict(arrays)
    return Rates(**{name: Trees.of(read, name).predict for name in ("places", "outside", "repeats")})
