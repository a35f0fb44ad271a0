"""Alignment of tensors, scratch and constants in every memory."""

from __future__ import annotations

ALIGNMENT_BYTES = 16

STATE_ALIGNMENT_BYTES = 4
"""Least alignment of every state in the struct that holds them."""


MOST_ALIGNMENT_BYTES = 1024
"""Largest alignment that a platform may request for a memory, for cache lines or for a DMA."""


def aligned(num_bytes: int, to: int = ALIGNMENT_BYTES) -> int:
    """Return the bytes that a tensor occupies in an arena: the next multiple of the alignment."""
    return -(-num_bytes // to) * to
