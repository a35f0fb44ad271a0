"""Passes of a kernel over memory, as it models them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Passes of one run over memory, averaged over its bytes: modelled, for predictions of time.

    constants: reads of all constants. input: reads of the first input; other inputs are read once, as outputs are
    written once. scratch: reads and writes together.
    """

    constants: float = 1.0
    input: float = 1.0
    scratch: float = 2.0

    @classmethod
    def of_product(cls, macs: int, input_elements: int, rows: int, *, pixels: float, channels: float) -> Passes:
        """Passes of rows times constant weights, `pixels` by `channels` results at once, each straight from memory."""
        return cls(constants=max(1.0, rows / pixels), input=max(1.0, macs / channels / input_elements))


ONCE = Passes()
