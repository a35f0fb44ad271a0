"""Pools over a whole image that take its rows as they come: a few rows per call, sums kept between the calls.

int8, uint8 or float32[1, H, W, C] -> [1, 1, 1, C]. Each channel adds its elements in the order of rows, then columns,
as the pool over the whole image does: not a bit of the result depends on how many rows come at a time. Sums of
integers are an int32[C] of their own; floats are summed in the output itself.
"""

from __future__ import annotations

from codegen_c.kernels.shared.window import CHANNEL_BLOCK
from codegen_c.operators.kinds import Pool2d, QPool2d

BLOCK_INSTRUCTIONS = 24
"""Instructions per block of channels in one call: loading and storing its sums, and the loops."""


def is_global(operator: QPool2d | Pool2d) -> bool:
    """True where the window is the whole of one image."""
    batch, height, columns, _ = operator.inputs[0].shape
    window = operator.window
    whole = window.kernel == (height, columns) and window.dilation == (1, 1) and not any(window.padding)
    return whole and batch == 1 and operator.output.shape[1:3] == (1, 1) and len(operator.inputs) == 1


def instructions(operator: QPool2d | Pool2d, whole: int) -> int:
    """Modelled instructions with one row per call; whole: of the pool that runs at once."""
    _, height, _, channels = operator.inputs[0].shape
    return whole + height * -(-channels // CHANNEL_BLOCK) * BLOCK_INSTRUCTIONS
