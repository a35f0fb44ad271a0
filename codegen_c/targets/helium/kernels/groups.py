"""Kernel for quantized conv2d in groups of channels with Helium: two output pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C / groups] -> int8 or uint8[N, P, Q, K], sums in int32. Each group is one
product. If its input channels are whole words, the product gathers them from the image, or for windows at the border
from a copy with the zero point as padding. Other groups are copied to scratch one after the other. Where groups have
few channels, several of them are one group whose weights have zeros. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import ALL_STORED, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import inner_columns
from codegen_c.kernels.convolution.qdepthwise import is_depthwise
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.helium.kernels.convolution import num_whole_rows, rescale, start, sums_leave_room
from codegen_c.targets.helium.kernels.product import (
    CALL_INSTRUCTIONS,
    CHANNEL_BLOCK,
    IM2COL_INCLUDES,
    PARAMETERS,
    PRODUCT_INCLUDES,
    Im2col,
    Product,
    flip,
    pack,
    padded,
    patch_function,
)

WORD, VECTOR = 4, 16
WORDS = VECTOR // WORD
LAYER = "tvm_ext_helium_groups_layer"
LOOPS = Loops(
    function="tvm_ext_helium_groups", layer=LAYER,
    includes=("tvm_ext_helium_groups.h", *IM2COL_INCLUDES, *PRODUCT_INCLUDES),
    accumulation="products with r, s, c ascending in vectors of 16, then bias", row_pitched=False,
)  # fmt: skip
PLACES = Parameter(name="places", ctype="int32_t", role="constant")
PIXEL_PARAMETERS = [
    "const int8_t *x0", "const int8_t *x1", "const int32_t *places", "uint8_t *y0", "uint8_t *y1",
    "const int8_t *restrict weights", "const int32_t *restrict factors",
]  # fmt: skip
# Modelled instructions of a copy group after group: of a window, a row and a tap of it; of a run of bytes.
WINDOW_INSTRUCTIONS, ROW_INSTRUCTIONS, TAP_INSTRUCTIONS = 40, 14, 5
RUN_INSTRUCTIONS, RUN_VECTOR_INSTRUCTIONS = 10, 3
GROUP_INSTRUCTIONS, PAIR_INSTRUCTIONS = 12, 20
"""Modelled instructions between the products of two groups, and between two pairs of pixels."""


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

    @property
    def by_words(self) -> bool:
        """True if windows are gathered by words."""
        return self.depth % WORD == 0

    def places(self, operator: QConv2d) -> Array:
        """Return int32[2, steps, 4]: bytes from a window's first word to each, in the image and in the copy.

        Words that fill the last step are the first one again, for weights that are zero.
        """
        rows, columns = operator.window.kernel
        width, channels = operator.inputs[0].shape[2:]
        down, across = operator.window.dilation
        r, s, word = np.ix_(np.arange(rows), np.arange(columns), np.arange(0, self.depth, WORD))
        found = np.zeros((2, padded(rows * columns * self.depth) // WORD), np.int32)
        for index, row in enumerate((down * width, copy_columns(operator))):
            places = ((r * row + s * across) * channels + word).reshape(-1)
            found[index, : len(places)] = places
        return found.reshape(2, -1, WORDS)

    def instructions(self, operator: QConv2d, target: Target, stored: StoredRows = ALL_STORED) -> int:
        """Return the modelled instructions of the layer: copies of windows, and the products of all groups."""
        num_pixels = operator.output.num_elements // operator.output.shape[3]
        pairs = operator.output.shape[0] * operator.output.shape[1] * -(-operator.output.shape[2] // 2)
        product = self.product(operator, target)
        gathers = product.steps * -(-self.channels // CHANNEL_BLOCK) if self.by_words else 0
        each = product.instructions(2) - CALL_INSTRUCTIONS[2] + GROUP_INSTRUCTIONS + gathers
        copied = num_pixels - self.num_inside(operator, stored)
        copies = copied * self._copy_instructions(operator) // (2 if self.by_words else 1)
        return copies + pairs * (CALL_INSTRUCTIONS[2] + PAIR_INSTRUCTIONS + self.count * each)

    def inside(self, operator: QConv2d) -> tuple[int, int]:
        """Return the output columns that are gathered from the image if the rows of their windows are inside."""
        if not self.by_words or flip(operator.inputs[0]):
            return 0, 0
        return inner_columns(operator.window, operator.inputs[0].shape[2], operator.output.shape[2])

    def num_inside(self, operator: QConv2d, stored: StoredRows) -> int:
        """Return the number of output pixels that are gathered from the image: pairs, from even columns on."""
        (begin, end), columns = self.inside(operator), operator.output.shape[2]
        pairs = sum(begin <= w and min(w + 1, columns - 1) < end for w in range(0, columns, 2))
        return num_whole_rows(operator, stored) * min(2 * pairs, columns)

    def _copy_instructions(self, operator: QConv2d) -> int:
        """Return the modelled instructions of the copy of two windows by words, otherwise of one."""
        if self.by_words:
            source, (rows, _) = operator.inputs[0], operator.window.kernel
            both = replace(operator.window, kernel=(rows, copy_columns(operator)), dilation=(1, 1))
            return Im2col(window=both, source=source, depth=source.shape[3]).instructions
        rows, columns = operator.window.kernel
        tap = self.count * (RUN_INSTRUCTIONS + -(-self.depth // VECTOR) * RUN_VECTOR_INSTRUCTIONS)
        return WINDOW_INSTRUCTIONS + rows * (ROW_INSTRUCTIONS + columns * (TAP_INSTRUCTIONS + tap))


def copy_columns(operator: QConv2d) -> int:
    """Return the columns that the windows of two adjacent pixels cover."""
    window = operator.window
    return (window.kernel[1] - 1) * window.dilation[1] + 1 + window.strides[1]


def has_groups(operator: QConv2d, target: Target) -> bool:
    """the convolution must have groups, of more than one input and output channel"""
    return operator.groups > 1 and not is_depthwise(operator, target)


def groups_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    groups, output = Groups.of(operator, target), operator.output
    product, blocks = groups.product(operator, target), -(-groups.channels // CHANNEL_BLOCK)
    num_pixels = output.num_elements // output.shape[3]
    copied = num_pixels - groups.num_inside(operator, stored)
    window_bytes = product.run_bytes * groups.count
    members: dict[str, Value] = {"groups": groups.count, "depth": groups.depth}
    scratch_bytes = 2 * padded(product.run_bytes) * groups.count
    if groups.by_words:
        columns, (begin, end) = copy_columns(operator), groups.inside(operator)
        members |= {"copy_columns": columns, "inside_begin": begin, "inside_end": end}
        scratch_bytes = operator.window.kernel[0] * columns * operator.inputs[0].shape[3]
    call = "tvm_ext_helium_groups_pixels(&$_layer, x0, x1, places, y0, y1, weights, factors);"
    return Parts(
        parameters=(*PARAMETERS, PLACES) if groups.by_words else PARAMETERS,
        constants=(*groups.constants(operator), *((("places", groups.places(operator)),) if groups.by_words else ())),
        members={**members, "product": product.members()},
        functions=(
            apart("$_two", PIXEL_PARAMETERS, [call]),
            patch_function("tvm_ext_helium_groups_copy", LAYER, stored),
        ),
        leading=("$_two", "$_patch"),
        tables=("weights", "factors", "places" if groups.by_words else "NULL"),
        scratch_bytes=scratch_bytes,
        instructions=groups.instructions(operator, target, stored),
        passes=Passes(
            constants=max(1.0, num_pixels / 2),
            input=max(1.0, window_bytes * (copied + (num_pixels - copied) * blocks) / operator.inputs[0].num_elements),
            scratch=copied / 2 * (1 + blocks),
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
