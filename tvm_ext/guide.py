"""The learned guide that the package ships: what `train_guide.py` and `train_updates.py` wrote, read back."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np

from codegen_c.costs.learned_cost import LearnedCost
from relay_passes.solvers.memories.updates import Rates
from relay_passes.solvers.recompute.search import Rank
from tvm_ext.core.trees import Trees

WEIGHTS = "guide.npz"
UPDATES = "updates.npz"


@cache
def learned_cost() -> LearnedCost:
    """Instructions of kernel calls, learned from measurements on boards in QEMU."""
    arrays = _weights()
    return LearnedCost(
        trees=Trees.of(arrays, "cost"),
        kernels=tuple(str(name) for name in arrays["cost.kernels"]),
        simds=tuple(str(name) for name in arrays["cost.simds"]),
    )


@cache
def learned_rank() -> Rank:
    """Likelihood that repeats are part of exact plans, learned on random layered graphs."""
    return Trees.of(_weights(), "rank").predict


@cache
def learned_updates() -> Rates:
    """Ratings of whole updates for several memories, learned from plans of the search for random networks."""
    trees = {name: Trees.of(_weights(UPDATES), name) for name in ("places", "outside", "repeats")}
    return Rates(**{name: one.predict for name, one in trees.items()})


@cache
def _weights(name: str = WEIGHTS) -> dict[str, np.ndarray]:
    with as_file(files("tvm_ext") / name) as path, np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
