"""Kernel for quantized conv2d in groups of channels with Helium: two output pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32. The windows of two
pixels are copied to scratch, group after group, with the zero point as padding; each group is then one product.
Where groups have few channels, several of them are one group whose weights have zeros. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.kernels.contract import Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.convolution import rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.product import (
    CALL_INSTRUCTIONS,
    CHANNEL_BLOCK,
    IM2COL_INCLUDES,
    PARAMETERS,
    PRODUCT_INCLUDES,
    Product,
    pack,
    padded,
    patch_function,
)

WORD, VECTOR = 4, 16
LAYER = "tvm_ext_helium_groups_layer"
LOOPS = Loops(
    function="tvm_ext_helium_groups", layer=LAYER,
    includes=("tvm_ext_helium_groups.h", *IM2COL_INCLUDES, *PRODUCT_INCLUDES),
    accumulation="products with r, s, c ascending in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip
PIXEL_PARAMETERS = [
    "const int8_t *copies", "uint8_t *y0", "uint8_t *y1", "const int8_t *restrict weights",
    "const int32_t *restrict factors",
]  # fmt: skip
# Modelled instructions of a copy: of a window, a row and a tap of it; of a vector of words; of a run of bytes.
WINDOW_INSTRUCTIONS, ROW_INSTRUCTIONS, TAP_INSTRUCTIONS = 40, 14, 5
WORDS_INSTRUCTIONS, RUN_INSTRUCTIONS, RUN_VECTOR_INSTRUCTIONS = 4, 10, 3
GROUP_INSTRUCTIONS = 12
"""Modelled instructions between the products of two groups."""


@dataclass(frozen=True, kw_only=True)
class Groups:
    """Groups in which a layer is computed: those of the operator, or `joined` of them at a time.

    count: number of groups. depth, channels: input and output channels of a group.
    """

    joined: int
    count: int
    depth: int
    channels: int

    @classmethod
    def of(cls, operator: QConv2d, target: Target) -> Groups:
        """Return the groups of least modelled cost. Joined groups fill a block of channels, so weights do not grow."""
        depth, channels = operator.weight.shape[3], operator.output.shape[3] // operator.groups
        most = max(1, CHANNEL_BLOCK // channels)
        possible = [
            cls(joined=n, count=operator.groups // n, depth=n * depth, channels=n * channels)
            for n in range(1, most + 1)
            if operator.groups % n == 0
        ]
        return min(possible, key=lambda groups: groups.instructions(operator, target))

    def product(self, operator: QConv2d, target: Target) -> Product:
        """Return the product of one group."""
        taps = operator.window.kernel[0] * operator.window.kernel[1]
        return Product.of(
            runs=1, run_bytes=taps * self.depth, channels=self.channels, rescale=rescale(operator), target=target
        )

    def weight(self, operator: QConv2d) -> Array:
        """Return int8[count, channels, R, S, depth], with zeros for the inputs of other groups that are joined."""
        own = operator.weight.reshape(self.count, self.joined, -1, *operator.weight.shape[1:])
        whole = np.zeros((*own.shape[:-1], self.joined, own.shape[-1]), np.int8)
        for index in range(self.joined):
            whole[:, index, ..., index, :] = own[:, index]
        return whole.reshape(self.count, self.channels, *operator.weight.shape[1:3], self.depth)

    def constants(self, operator: QConv2d) -> tuple[tuple[str, Array], ...]:
        """Return the packed weights of each group, and its table of starts, multipliers and shifts."""
        rows = rescale(operator).table(start(operator), np.arange(1)).reshape(self.count, self.channels, 3)
        blocks = -(-self.channels // CHANNEL_BLOCK)
        table = np.zeros((self.count, blocks * CHANNEL_BLOCK, 3), np.int32)
        table[..., 2] = -1  # a shift of the channels that fill the last block
        table[:, : self.channels] = rows
        factors = table.reshape(self.count, blocks, CHANNEL_BLOCK, 3).swapaxes(2, 3)
        weights = np.stack([pack(group) for group in self.weight(operator)])
        return (("weights", weights), ("factors", np.ascontiguousarray(factors)))

    def instructions(self, operator: QConv2d, target: Target) -> int:
        """Return the modelled instructions of two pixels: their copies, and the products of all groups."""
        rows, columns = operator.window.kernel
        if self.depth in (WORD, 2 * WORD):
            tap = -(-operator.inputs[0].shape[3] // VECTOR) * WORDS_INSTRUCTIONS
        else:
            tap = self.count * (RUN_INSTRUCTIONS + -(-self.depth // VECTOR) * RUN_VECTOR_INSTRUCTIONS)
        copy = WINDOW_INSTRUCTIONS + rows * (ROW_INSTRUCTIONS + columns * (TAP_INSTRUCTIONS + tap))
        each = self.product(operator, target).instructions(2) - CALL_INSTRUCTIONS[2] + GROUP_INSTRUCTIONS
        return 2 * copy + CALL_INSTRUCTIONS[2] + self.count * each


def has_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must have groups, of more than one input and output channel"""
    return operator.groups > 1 and not is_depthwise(operator, target)


def groups_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    groups, output = Groups.of(operator, target), operator.output
    product = groups.product(operator, target)
    group_bytes = padded(product.run_bytes)
    pairs = output.shape[0] * output.shape[1] * -(-output.shape[2] // 2)
    read = 2 * pairs * product.run_bytes * groups.count
    call = "tvm_ext_helium_groups_pixels(&$_layer, copies, y0, y1, weights, factors);"
    return Parts(
        parameters=PARAMETERS,
        constants=groups.constants(operator),
        members={"groups": groups.count, "depth": groups.depth, "product": product.members()},
        functions=(
            apart("$_two", PIXEL_PARAMETERS, [call]),
            patch_function("tvm_ext_helium_groups_copy", LAYER, stored),
        ),
        leading=("$_two", "$_patch"),
        scratch_bytes=2 * groups.count * group_bytes,
        instructions=pairs * groups.instructions(operator, target),
        passes=Passes(
            constants=max(1, pairs),
            input=max(1.0, read / operator.inputs[0].num_elements),
            scratch=pairs * (1 + -(-groups.channels // CHANNEL_BLOCK)),
        ),
    )


GROUPS = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=groups_parts)
KERNEL = GROUPS.kernel(
    Family(
        name="qconv2d_groups_helium",
        title="Quantized convolution in groups, two output pixels by four channels of a group at a time",
        operator=QConv2d,
        constraints=(has_groups, *qconv2d.CONSTRAINTS, sums_leave_room),
    )
)
