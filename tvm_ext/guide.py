"""The learned guide that the package ships: what `benchmarks/train_guide.py` wrote, read back."""

from __future__ import annotations

from functools import cache
from importlib.resources import as_file, files

import numpy as np

from codegen_c.learned_cost import LearnedCost
from tvm_ext.core.trees import Trees

WEIGHTS = "guide.npz"


@cache
def learned_cost() -> LearnedCost:
    """Instructions of kernel calls, learned from measurements on boards in QEMU."""
    with as_file(files("tvm_ext") / WEIGHTS) as path, np.load(path, allow_pickle=False) as arrays:
        return LearnedCost(
            trees=Trees.of(arrays, "cost"),
            kernels=tuple(str(name) for name in arrays["cost.kernels"]),
            simds=tuple(str(name) for name in arrays["cost.simds"]),
        )
