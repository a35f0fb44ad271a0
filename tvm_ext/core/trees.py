"""Sums of regression trees as arrays, which evaluate a learned cost model without the library that trained it.

A node is an index into all arrays. An inner node sends a row left where the row's value of `features` is at most
`thresholds`. A leaf has feature -1 and adds its `values`. A prediction is `base` plus one leaf of each tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

Array = np.ndarray
_FIELDS = ("features", "thresholds", "left", "right", "values", "roots")


@dataclass(frozen=True, kw_only=True, eq=False)
class Trees:
    """Arrays of trees.

    features: int16[nodes].
    thresholds, values: float32[nodes].
    left, right: int16[nodes].
    roots: int16[trees].
    """

    features: Array
    thresholds: Array
    left: Array
    right: Array
    values: Array
    roots: Array
    base: float

    def predict(self, rows: Array) -> Array:
        """Predict float64[n] for float32[n, features]."""
        rows = np.asarray(rows, np.float32)
        nodes = np.tile(self.roots.astype(np.int64), (len(rows), 1))
        index = np.arange(len(rows))[:, None]
        while True:
            features = self.features[nodes]
            inner = features >= 0
            if not inner.any():
                return self.base + self.values[nodes].astype(np.float64).sum(axis=1)
            goes_left = rows[index, np.maximum(features, 0)] <= self.thresholds[nodes]
            nodes = np.where(inner, np.where(goes_left, self.left[nodes], self.right[nodes]), nodes)

    def arrays(self, name: str) -> dict[str, Array]:
        """Return the arrays under names of their own, for storage beside others."""
        stored: dict[str, Array] = {f"{name}.{field}": getattr(self, field) for field in _FIELDS}
        return stored | {f"{name}.base": np.array(self.base)}

    @staticmethod
    def of(arrays: Mapping[str, Array], name: str) -> Trees:
        """Return the trees from the result of `arrays`."""
        return Trees(**{f: arrays[f"{name}.{f}"] for f in _FIELDS}, base=float(arrays[f"{name}.base"]))
