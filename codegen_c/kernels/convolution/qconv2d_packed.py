"""conv2d of a QDQ chain whose weights have 4 bits each, integers only: the loops of qconv2d.py, taking bytes apart.

int8 or uint8[N, H, W, C], 4 bits[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32. Results are those of
qconv2d.py on the same weights as int8, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.four_bits import four_bit_weights, pack_pairs
from codegen_c.kernels.shared.layer import shapes
from codegen_c.kernels.shared.window import pack_blocks
from codegen_c.operators.kinds import Array, PackedQConv2d

NIBBLE_INSTRUCTIONS = 1
"""Per product: a weight taken out of its byte; two of them share a load."""


def implement(operator: PackedQConv2d, target: Target, stored: StoredRows) -> Implementation:
    whole, width = qconv2d.implement(operator, target, stored), qconv2d.width_of(operator)
    members = qconv2d.members(operator, stored, qconv2d.rescaling(operator)) | {"is_packed": True}
    return replace(
        whole,
        kernel=KERNEL.name,
        function=replace(whole.function, helpers=shapes(qconv2d.LAYER, members)),
        constants=(("weights", pack(operator.weight, width)), *whole.constants[1:]),
        instructions=whole.instructions + whole.macs * NIBBLE_INSTRUCTIONS,
    )


def pack(weight: Array, width: int) -> Array:
    """int8[K, ...] -> the same order as `pack_blocks` has, two to a byte; each block of channels begins with a byte."""
    blocks = [pack_blocks(weight[k : k + width], width) for k in range(0, len(weight), width)]
    even = [np.append(block, np.zeros(block.size % 2, np.int8)) for block in blocks]
    return np.concatenate([pack_pairs(block[0::2], block[1::2]) for block in even]).view(np.int8)


CONSTRAINTS = (four_bit_weights, *qconv2d.CONSTRAINTS)
KERNEL = Kernel(name="qconv2d_packed", operator=PackedQConv2d, implement=implement, constraints=CONSTRAINTS)
