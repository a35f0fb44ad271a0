"""How integers of a quantized tensor stand for real numbers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """real = scale * (integer - zero_point), one pair for the whole tensor."""

    scale: float
    zero_point: int
