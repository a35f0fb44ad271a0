"""Dense layer of a QDQ chain whose weights have 4 bits each, integers only: a convolution of one column by 1x1.

int8 or uint8[..., C], 4 bits[K, C] -> int8 or uint8[..., K], sums in int32. Results are those of qdense.py on the same
weights as int8, bit for bit.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qconv2d_packed
from codegen_c.kernels.dense import qdense
from codegen_c.kernels.shared.four_bits import four_bit_weights
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, shapes
from codegen_c.kernels.shared.window import CHANNEL_BLOCK
from codegen_c.operators.kinds import PackedQConv2d, PackedQDense, Window


def implement(operator: PackedQDense, target: Target, stored: StoredRows) -> Implementation:
    plain, finish = qdense.implement(operator, target, stored), qdense.rescaling(operator)
    rows = operator.output.num_elements // operator.weight.shape[0]
    members = qconv2d.members(as_column(operator), StoredRows(), finish) | {"is_packed": True}
    weights = qconv2d_packed.pack(operator.weight[:, np.newaxis, np.newaxis, :], CHANNEL_BLOCK)
    arguments = f"&$_layer, input, output, weights, bias, multiplier, shift, 0, {rows}"
    return replace(
        plain,
        kernel=KERNEL.name,
        function=CFunction(
            parameters=plain.function.parameters,
            body="\n".join([*finish.tables(), f"tvm_ext_qconv2d({arguments});"]),
            helpers=shapes(qconv2d.LAYER, members),
            includes=("tvm_ext_qconv2d.h", *BLOCK_INCLUDES),
        ),
        constants=(("weights", weights), *plain.constants[1:]),
        instructions=plain.instructions + plain.macs * qconv2d_packed.NIBBLE_INSTRUCTIONS,
        in_rows=None,
        accumulating=None,
    )


def as_column(operator: PackedQDense) -> PackedQConv2d:
    """The layer as a convolution: vectors are the rows of an image of one column."""
    channels, depth = operator.weight.shape
    rows = operator.output.num_elements // channels
    return PackedQConv2d(
        inputs=(replace(operator.inputs[0], shape=(1, rows, 1, depth)),),
        outputs=(replace(operator.output, shape=(1, rows, 1, channels)),),
        weight=operator.weight.reshape(channels, 1, 1, depth), weight_scale=operator.weight_scale,
        bias=operator.bias, window=Window(kernel=(1, 1)), low=operator.low, high=operator.high,
        rounding=operator.rounding,
    )  # fmt: skip


CONSTRAINTS = (four_bit_weights, *qdense.CONSTRAINTS)
KERNEL = Kernel(name="qdense_packed", operator=PackedQDense, implement=implement, constraints=CONSTRAINTS)
