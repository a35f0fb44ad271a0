"""Makes indices and weights of interpolations for the tests of the kernels."""

from __future__ import annotations

import numpy as np


def taps(source: int, target: int, kind: str = "linear") -> tuple[np.ndarray, np.ndarray]:
    """Return the indices and weights of an interpolation at half-pixel centres.

    kind: linear, cubic, or a mean of up to six elements.
    """
    at = np.clip((np.arange(target) + 0.5) * source / target - 0.5, 0, source - 1)
    first, count = np.floor(at).astype(np.int64), {"linear": 2, "cubic": 4, "mean": 6}[kind]
    places = first[:, None] + np.arange(count) - (count // 2 - 1)
    distance = np.abs(places - at[:, None])
    near, far = 1.25 * distance**3 - 2.25 * distance**2 + 1, -0.75 * (distance - 1) * (distance - 2) ** 2
    weights = {
        "linear": np.maximum(1 - distance, 0), "cubic": np.where(distance <= 1, near, far),
        "mean": np.full(places.shape, 1 / count),
    }[kind]  # fmt: skip
    return np.clip(places, 0, source - 1), weights.astype(np.float32)
