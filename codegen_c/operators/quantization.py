"""Scale and zero point: the real numbers for which integers of a quantized tensor stand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """real = scale * (integer - zero_point), one pair for the whole tensor."""

    scale: float
    zero_point: int
