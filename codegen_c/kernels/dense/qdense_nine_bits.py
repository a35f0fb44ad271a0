"""Dense layer of a QDQ chain whose weights need 9 bits, integers only, in plain C: four output channels at a time.

int8 or uint8[..., C], weights[K, C] from -255 to 255 -> int8 or uint8[..., K], sums in int32. A sum starts at its
bias, from which the input's zero point times the weights is taken off beforehand, and adds x * w with c ascending.
Either rounding.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.nine_bits import NineBits, all_channels, has_few_weights, nine_bit_weights
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.operators.kinds import Array, QDense


def implement(operator: QDense, target: Target, stored: StoredRows) -> Implementation:
    return all_channels(
        KERNEL.name, operator, bits_of(operator), stored, lambda inputs: qdense.reference(operator, inputs)
    )


def bits_of(operator: QDense, channels: Array | None = None) -> NineBits:
    """The layer's channels: all, or these."""
    return NineBits.of(operator, qdense.products(operator), qdense.requantize(operator), channels)


KERNEL = Kernel(
    name="qdense_nine_bits",
    operator=QDense,
    implement=implement,
    constraints=(quantized_bytes, nine_bit_weights, has_few_weights, qdense.sums_fit, qdense.rescaled_sums_fit),
)
