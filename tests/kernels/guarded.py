"""Arrays between bytes that nobody may write."""

from __future__ import annotations

import numpy as np

GUARD_BYTES = 64
GUARD = 77


class Guarded:
    """An array between two runs of bytes that nobody may write."""

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self.bytes = np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize + 2 * GUARD_BYTES, GUARD, np.uint8)
        self.array = self.bytes[GUARD_BYTES:-GUARD_BYTES].view(dtype).reshape(shape)

    def is_intact(self) -> bool:
        return bool((self.bytes[:GUARD_BYTES] == GUARD).all() and (self.bytes[-GUARD_BYTES:] == GUARD).all())
