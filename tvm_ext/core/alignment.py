"""Alignment of tensors, scratch and constants in every memory."""

from __future__ import annotations

ALIGNMENT_BYTES = 16

STATE_ALIGNMENT_BYTES = 4
"""Least alignment of every state in the struct that holds them."""


def aligned(num_bytes: int) -> int:
    """Bytes that so many occupy in an arena: the next multiple of the alignment."""
    return -(-num_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
