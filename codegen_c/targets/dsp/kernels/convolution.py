"""Kernels for quantized conv2d by the DSP extension, with weights of 8 or 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from codegen_c.c_text.text import Value, block
from codegen_c.kernels.contract import Passes, SharedWindows, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qconv2d import QCONV2D_PACKED_CONSTRAINTS
from codegen_c.kernels.shared.layer import apart
from codegen_c.kernels.shared.product_kernel import Family, Loops, Parts, ProductKernel
from codegen_c.kernels.shared.shared_windows import has_whole_image
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import PackedQConv2d, QConv2d, TensorType
from codegen_c.targets.dsp.kernels.product import (
    BLOCKS_CALL_INSTRUCTIONS,
    HEADERS,
    INCLUDES,
    NIBBLE_LIMIT,
    TABLES,
    Blocks,
    FastRequantize,
    PairedWeights,
    shared_function,
    start,
)

# Quantized conv2d by the DSP extension: three output pixels by two channels at a time, or two pixels by four channels.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. The windows of these pixels
# are expanded to 16-bit pairs in scratch, padding as zero points, so that borders and the inside run the same code; all
# channels then read them. A pixel left over from groups of three may be computed by separate code. The bias contains
# the zero point. Rounding "onnx": once, halves to even. If channels have groups, int8[K, R, S, C / groups], the cells
# of a group follow those of the group before, and its channels read these alone.

PIXELS, WIDTH = 3, 2
QUADS = 2, 4
"""Pixels and channels of the blocks of two pixels."""
# The windows of three pixels are expanded before one of them is written.
LOOPS = Loops(
    function="tvm_ext_dsp_conv2d", layer="tvm_ext_dsp_conv2d_layer",
    includes=("tvm_ext_dsp_conv2d.h", *INCLUDES, *HEADERS),
    columns_at_once=1, is_read_first=True,
)  # fmt: skip
PARAMETERS = [
    "uint8_t *const output[TVM_EXT_DSP_PIXELS]", "const int8_t *restrict weights", "const int32_t *restrict bias",
    "const int32_t *restrict multipliers", "const uint8_t *restrict shifts", "uint32_t *cells",
]  # fmt: skip
EXPAND_INSTRUCTIONS = 1.7
RUN_INSTRUCTIONS = 24
GATHER_INSTRUCTIONS = 8
"""Per unit of a single pixel, whose cells are moved together."""
SINGLE_LEAST_SAVED = 2000
"""Saved instructions for which a function of about 400 bytes pays."""
FEW = 16
FEW_INSTRUCTIONS = 1.4
FEW_RUN_INSTRUCTIONS = 8
"""Instructions of a run of adjacent elements that is expanded without loops."""
RING_ROW_INSTRUCTIONS = 3
"""Instructions of a kernel row of a pixel to find out if the input's ring buffer ends before it."""


GROUP_INSTRUCTIONS = 10
"""Modelled instructions to find the elements of the next group of channels."""
TWO_CHANNELS_INSTRUCTIONS = 2.7
"""Modelled instructions to expand an element of a group of two channels."""


def has_even_groups(operator: QConv2d, target: Target) -> bool:
    """if the convolution has groups, each must have an even number of output channels"""
    return operator.groups == 1 or operator.output.shape[3] // operator.groups % 2 == 0


@dataclass(frozen=True, kw_only=True, eq=False)
class _Sums:
    """Products of a layer and its requantization: in registers if there are blocks.

    single: separate code for one pixel, if it pays.
    """

    paired: PairedWeights
    finish: FastRequantize
    blocks: Blocks | None
    single: Blocks | None


@lru_cache(maxsize=8)
def packed(operator: QConv2d) -> tuple[PairedWeights, FastRequantize, Blocks | None]:
    """Return what does not depend on the stored rows. A search asks for the same operator with many numbers of rows."""
    requantize = FastRequantize.sixteenfold if isinstance(operator, PackedQConv2d) else FastRequantize.of
    exact, (low, high) = qconv2d.requantize(operator), qconv2d.bounds(operator)
    paired = _pair(operator)
    blocks = None if holds_sums(operator.output) else Blocks.of(paired, exact, low, high)
    return paired, requantize(exact, low, high), blocks


@lru_cache(maxsize=8)
def quads(operator: QConv2d) -> tuple[PairedWeights, Blocks] | None:
    """Return two pixels by four channels, or None."""
    if operator.output.shape[3] % QUADS[1] or operator.groups > 1 or holds_sums(operator.output):
        return None
    if isinstance(operator, PackedQConv2d):
        return None
    paired = _pair(operator, *QUADS)
    blocks = Blocks.quads(paired, qconv2d.requantize(operator), *qconv2d.bounds(operator))
    return blocks and (paired, blocks)


def _is_faster(blocks: Blocks, other: Blocks | None, calls: Sequence[int]) -> bool:
    """Return True if blocks take fewer cycles than others, or than sums in memory. calls: pixels of each.

    These are calls for whole images: calls for rows read the same constants, so they have the same blocks.
    """

    def cycles(one: Blocks) -> int:
        return sum(-(-pixels // one.pixels) for pixels in calls) * one.blocks * one.block_cycles

    return other is None or cycles(blocks) < cycles(other)


def convolution_parts(operator: QConv2d, target: Target, stored: StoredRows) -> Parts:
    paired, finish, blocks = packed(operator)
    if target.optimize == "speed" and target.is_dual_issue:
        blocks = blocks and blocks.dual()
    elif target.optimize == "speed":
        by_twos = quads(operator)
        if by_twos and _is_faster(by_twos[1], blocks, _pixels_of_calls(operator, StoredRows())):
            paired, blocks = by_twos
    single = _single(operator, target, stored, blocks)
    sums = _Sums(paired=paired, finish=finish, blocks=blocks, single=single)
    tables = qconv2d.parameters(operator, finish.exact)[2:-2]
    common = Parts(
        parameters=tables[:1] if blocks else tables,
        constants=(),
        members=_members(operator, paired),
        leading=("$_pixels",),
        scratch_bytes=4 * (paired.num_cells * operator.groups + (blocks.cells_read_ahead if blocks else 0))
        + (0 if _by_taps(operator) else _run_length(operator)),
        instructions=_instructions(operator, stored, sums),
        passes=_passes(operator, paired),
    )
    if blocks:  # factors are stored with the weights
        return replace(
            common,
            constants=(("weights", blocks.weights),),
            functions=(_pixels_in_blocks(blocks, single, operator),),
            tables=("weights", "NULL", "NULL", "NULL"),
            includes=(*blocks.includes, *(single.includes if single else ())),
            windows=_windows(
                operator, stored, sums, members=_members(operator, paired), functions=(), call=blocks.call("pixels")
            ),
        )
    call = "tvm_ext_dsp_conv2d_pixels(&$_layer, output, weights, bias, multipliers, shifts, cells);"
    members, functions = (
        {**_members(operator, paired), **paired.members(), "requantize": finish.members()},
        (shared_function("$_pixels", PARAMETERS, [call]),),
    )
    return replace(
        common,
        constants=(("weights", paired.weights), ("bias", paired.bias), *finish.constants()),
        members=members,
        functions=functions,
        statements=finish.tables(),
        tables=TABLES,
        windows=_windows(
            operator, stored, sums, members=members, functions=functions,
            call="$_pixels(pixels, weights, bias, multiplier, shift, cells);",
        ),
    )  # fmt: skip


def _windows(
    operator: QConv2d,
    stored: StoredRows,
    sums: _Sums,
    *,
    members: Mapping[str, Value],
    functions: Sequence[str],
    call: str,
) -> SharedWindows | None:
    """Return the windows as other layers can share them, or None. call: computes all channels of three pixels.

    Code for a single pixel needs its cells together. They are moved once, for all layers that have such code.
    """
    if isinstance(operator, PackedQConv2d) or operator.groups > 1 or not has_whole_image(operator, stored):
        return None
    source, window, count = operator.inputs[0], operator.window, prod(operator.output.shape[:3])
    last, units = f"if (first == {count - 1}) {{", sums.paired.units
    moving = (last, block(f"tvm_ext_dsp_first_of_3(cells, {units});"), "}")
    single = sums.single and [last, block(sums.single.call("pixels[0]")), "} else {", block(call), "}"]
    filled = count * _window_instructions(operator, stored, sums.paired)
    if sums.single:
        filled += GATHER_INSTRUCTIONS * units
    flat = _as_one_row(operator) if window.is_pointwise else operator
    cells = "uint32_t *const cells = (uint32_t *)(void *)scratch;"
    return SharedWindows(
        form=(LOOPS.function, sums.paired.pixels, source, window, operator.output.shape[:3]),
        pixels=count,
        at_once=sums.paired.pixels,
        fill=(cells, f"tvm_ext_dsp_fill_windows(&$_layer, cells, input, first, {count});"),
        regroup=moving if single else (),
        compute=(
            *(sums.blocks.sizes() if sums.blocks else sums.finish.tables()),
            cells,
            "uint8_t *pixels[TVM_EXT_DSP_PIXELS];",
            f"tvm_ext_dsp_find_pixels(&$_layer.output, output, first, {count}, pixels);",
            *(single or [call]),
        ),
        definitions="\n".join([LOOPS.shapes(flat, stored, members), *functions]),
        fill_instructions=int(filled),
        compute_instructions=_instructions(operator, stored, sums) - int(filled),
        includes=("tvm_ext_dsp_shared_windows.h",),
    )


def _as_one_row(operator: QConv2d) -> QConv2d:
    """Return a 1x1 convolution of an image whose pixels are one row."""

    def row(tensor: TensorType) -> TensorType:
        return replace(tensor, shape=(1, 1, prod(tensor.shape[:3]), tensor.shape[3]))

    return replace(operator, inputs=(row(operator.inputs[0]),), outputs=(row(operator.output),))


def _passes(operator: QConv2d, paired: PairedWeights) -> Passes:
    """Return the traffic: each pixel's input is expanded into scratch once, and read from there for every block."""
    num_pixels, channels = operator.output.num_elements // operator.output.shape[3], operator.output.shape[3]
    groups = num_pixels / paired.pixels
    read = num_pixels * operator.weight[0].size * operator.groups
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, read / operator.inputs[0].num_elements),
        scratch=groups * (1 + channels / operator.groups / paired.width),
    )


def _by_taps(operator: QConv2d) -> bool:
    """Return True if a row of taps is expanded tap by tap: each tap fills whole cells, or taps are not adjacent."""
    return operator.groups > 1 or operator.weight.shape[3] % 4 == 0 or operator.window.dilation[1] > 1


def _run_length(operator: QConv2d) -> int:
    """Return the adjacent input elements that are expanded together: one tap, or a whole row of taps."""
    depth = operator.weight.shape[3]
    return depth if _by_taps(operator) else depth * operator.window.kernel[1]


def _pair(operator: QConv2d, pixels: int = PIXELS, width: int = WIDTH) -> PairedWeights:
    runs = operator.weight.reshape(operator.weight.shape[0], -1, _run_length(operator))
    source = operator.inputs[0]
    begin = start(source, operator.weight, operator.bias)
    in_nibbles = isinstance(operator, PackedQConv2d)
    return PairedWeights.of(
        runs, begin, source, pixels=pixels, width=width, in_nibbles=in_nibbles, pairs_singles=not _by_taps(operator)
    )


def _pixels_of_calls(operator: QConv2d, stored: StoredRows) -> list[int]:
    batch, height, columns, _ = operator.output.shape
    at_once = stored.at_once or height
    return [batch * columns * min(at_once, height - h) for h in range(0, height, at_once)]


def _single(operator: QConv2d, target: Target, stored: StoredRows, blocks: Blocks | None) -> Blocks | None:
    """Return code for a single pixel, if calls leave one over from groups of three and it saves much (speed only)."""
    single = blocks.one_pixel() if blocks and target.optimize == "speed" and operator.groups == 1 else None
    if blocks is None or single is None:
        return None
    left = sum(pixels % PIXELS == 1 for pixels in _pixels_of_calls(operator, stored))
    saved = blocks.instructions - single.instructions - GATHER_INSTRUCTIONS * single.units
    return single if left * saved >= SINGLE_LEAST_SAVED else None


def _instructions(operator: QConv2d, stored: StoredRows, sums: _Sums) -> int:
    """Return the modelled instructions: expanded windows, products and results; a call's last block may lack pixels."""
    finish, paired, blocks, single = sums.finish, sums.paired, sums.blocks, sums.single
    channels, calls = operator.output.shape[3], _pixels_of_calls(operator, stored)
    pixels, left = sum(calls), sum(count % PIXELS == 1 for count in calls) if single else 0
    groups = sum(-(-count // paired.pixels) for count in calls) - left
    window = _window_instructions(operator, stored, paired)
    last = left * (single.instructions + GATHER_INSTRUCTIONS * single.units) if single else 0
    if blocks is None:
        one = -(-channels // WIDTH) * (paired.instructions() + PIXELS * WIDTH * finish.instructions)
    else:
        one = blocks.instructions + (operator.groups - 1) * (BLOCKS_CALL_INSTRUCTIONS + GROUP_INSTRUCTIONS)
    return int(pixels * window) + groups * one + last


def _window_instructions(operator: QConv2d, stored: StoredRows, paired: PairedWeights) -> float:
    """Return the modelled instructions of expanding the window of a pixel."""
    if operator.groups > 1:
        depth, (rows, columns) = operator.weight.shape[3], operator.window.kernel
        few = depth <= FEW
        each = (4 if few else RUN_INSTRUCTIONS) + (FEW_INSTRUCTIONS if few else EXPAND_INSTRUCTIONS) * depth
        if depth == 2 and operator.groups % 2 == 0:
            each = TWO_CHANNELS_INSTRUCTIONS * depth
        return 12 + rows * (RUN_INSTRUCTIONS / 2 + columns * (FEW_RUN_INSTRUCTIONS + operator.groups * each))
    few = operator.weight[0, 0].size <= FEW
    row = FEW_RUN_INSTRUCTIONS if few else RUN_INSTRUCTIONS
    row += (FEW_INSTRUCTIONS if few else EXPAND_INSTRUCTIONS) * operator.weight[0, 0].size
    row += RING_ROW_INSTRUCTIONS if stored.input(0) and operator.window.kernel[0] > 1 else 0
    return 12 + operator.window.kernel[0] * row + paired.offset_instructions


def _members(operator: QConv2d, paired: PairedWeights) -> dict[str, Value]:
    """Return the members of a layer's structure for groups of channels, and for two pixels at a time."""
    groups: dict[str, Value] = {"groups": operator.groups} if operator.groups > 1 else {}
    return groups | ({"by_twos": True} if paired.pixels == QUADS[0] else {})


def _pixels_in_blocks(blocks: Blocks, single: Blocks | None, operator: QConv2d) -> str:
    """Return `$_pixels(...)`, a tvm_ext_dsp_pixels, with sums in registers."""
    unused = [f"(void){name};" for name in ("bias", "multipliers", "shifts")]
    calls = _calls_of_groups(blocks, operator) if operator.groups > 1 else _calls(blocks, single)
    return apart("$_pixels", PARAMETERS, [*unused, *blocks.sizes(), *calls], linkage="static inline")


def _calls_of_groups(blocks: Blocks, operator: QConv2d) -> list[str]:
    """Return the C code of three pixels whose channels have groups: a call for each group."""
    groups, channels = operator.groups, operator.output.shape[3] // operator.groups
    places = ", ".join(f"&output[{p}][g * {channels}]" for p in range(PIXELS))
    weights, cells = f"g * {blocks.weights.size // groups}", f"g * {2 * PIXELS * blocks.units}"
    sizes = f"{blocks.units}, {blocks.blocks // groups}, {blocks.rounding}"
    lines = [
        f"uint8_t *const pixels[TVM_EXT_DSP_PIXELS] = {{{places}}};",
        f"{blocks.function}(pixels, &weights[{weights}], &cells[{cells}], {sizes});",
    ]
    return [f"for (int32_t g = 0; g < {groups}; ++g) {{", block(lines), "}"]


def _calls(blocks: Blocks, single: Blocks | None) -> list[str]:
    """Return the C code of three pixels, or of a single pixel."""
    if single is None:
        return [blocks.call()]
    return [
        "if (output[1] != output[0]) {",
        block(blocks.call()),
        "} else {",
        block(f"tvm_ext_dsp_first_of_3(cells, {single.units});"),
        block(single.call("output[0]")),
        "}",
    ]


CONVOLUTION = ProductKernel(loops=LOOPS, reference=qconv2d.reference, parts=convolution_parts)
QCONV2D = CONVOLUTION.kernel(
    Family(
        name="qconv2d_dsp",
        title="Quantized convolution, three output pixels by two channels, or two pixels by four channels, at a time",
        operator=QConv2d,
        constraints=(has_even_groups, *qconv2d.SUMS_TOO),
    ),
)


# Quantized conv2d with weights of 4 bits by the DSP extension: three pixels by two channels at a time.
#
# int8 or uint8[N, H, W, C], 4 bits[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32: the 8-bit kernel with the
# `s4` products of tvm_ext_dsp_product.h, which take 19 instructions for 24 multiply-adds where int8's take 17 or 20.


def sixteenfold_sums_fit(operator: PackedQConv2d, target: Target) -> bool:
    """bias and products must add up to less than 2^27, for every input"""
    low, high = qconv2d.products(operator).range()
    return bool((low > -NIBBLE_LIMIT).all() and (high < NIBBLE_LIMIT).all())


QCONV2D_PACKED = CONVOLUTION.kernel(
    Family(
        name="qconv2d_packed_dsp",
        title="Quantized convolution with weights of 4 bits, three output pixels by two channels at a time",
        operator=PackedQConv2d,
        constraints=(qconv2d.is_ungrouped, *QCONV2D_PACKED_CONSTRAINTS, sixteenfold_sums_fit),
    )
)


KERNELS = (QCONV2D, QCONV2D_PACKED)
