"""conv2d of a QDQ chain whose weights need 9 bits, integers only, in plain C: up to four channels of a pixel at a time.

int8 or uint8[N, H, W, C], weights[K, R, S, C / groups] from -255 to 255 -> int8 or uint8[N, P, Q, K], sums in int32. A
sum starts at its bias and adds (x - zero point) * w in the order r, s, c ascending. Either rounding.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.nine_bits import NineBits, all_channels, has_few_weights, nine_bit_weights
from codegen_c.kernels.shared.requantize import quantized_bytes
from codegen_c.operators.kinds import Array, QConv2d


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    return all_channels(
        KERNEL.name, operator, bits_of(operator), stored, lambda inputs: qconv2d.reference(operator, inputs)
    )


def bits_of(operator: QConv2d, channels: Array | None = None) -> NineBits:
    """The layer's channels: all, or these."""
    return NineBits.of(operator, qconv2d.products(operator), qconv2d.requantize(operator), channels)


KERNEL = Kernel(
    name="qconv2d_nine_bits",
    operator=QConv2d,
    implement=implement,
    constraints=(quantized_bytes, nine_bit_weights, has_few_weights, qconv2d.sums_fit, qconv2d.rescaled_sums_fit),
)
