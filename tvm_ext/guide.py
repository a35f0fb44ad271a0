"""The learned guide that the package ships: what `benchmarks/train_guide.py` wrote, read back."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np

from codegen_c.costs.learned_cost import LearnedCost
from relay_passes.solvers.recompute.search import Rank
from tvm_ext.core.trees import Trees

WEIGHTS = "guide.npz"


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
def _weights() -> dict[str, np.ndarray]:
    with as_file(files("tvm_ext") / WEIGHTS) as path, np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)
