"""Depthwise conv2d of a QDQ chain by the DSP extension: two output columns of one channel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], or the sums, int32. Four channels at a time,
the input rows of a few output rows are expanded to a plane of 16-bit numbers for each channel, padding as zero points;
then one instruction multiplies two adjacent columns by two taps. Rows that the next strip needs again stay in the
planes, so each input element is read once, and the output may take the input's place. The zero point is in the bias.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.kernels.shared.window import row_elements, spatial
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.dsp.kernels.channel_dsp import Channel
from codegen_c.targets.dsp.kernels.planes_dsp import (
    COLUMNS,
    PLANES,
    Plane,
    RowTaps,
    pack,
    pack_nibbles,
    strip_blocks,
)
from codegen_c.targets.dsp.kernels.product_dsp import INCLUDES, shared_function, start, wrapped
from codegen_c.targets.dsp.kernels.requantize_dsp import HEADERS, FastRequantize
from codegen_c.targets.dsp.kernels.strips_dsp import Strips

MOST_TAPS = 81
WEIGHT_REGISTERS = 9
"""Words of weights that GCC keeps in registers over a row; of more it loads each again for its product."""
LAYER = "tvm_ext_dsp_depthwise_layer"


def is_dense_in_columns(operator: QConv2d, target: Target) -> bool:
    """taps of a row must be adjacent (no dilation of columns), and no more than 81 in a window"""
    return operator.window.dilation[1] == 1 and operator.weight[0].size <= MOST_TAPS


def for_speed(operator: QConv2d, target: Target) -> bool:
    """code of their own for windows of 3x3 is for speed"""
    return target.optimize == "speed"


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= PLANES


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    requantize = FastRequantize.sixteenfold if isinstance(operator, PackedQConv2d) else FastRequantize.of
    finish = requantize(qconv2d.requantize(operator), *qconv2d.products(operator).range())
    window, plane = operator.window, Plane.of(operator, stored, target.block)
    taps = RowTaps.of(window.kernel[1], window.strides[1], min(COLUMNS, operator.output.shape[2]))
    begin = start(operator.inputs[0], operator.weight, operator.bias)
    pitch, row = stored.pitch or operator.output.shape[3], row_elements(stored, operator.output)
    *shared, row_begin, row_end = qconv2d.parameters(operator, finish.exact)
    common = _common_shift(operator)
    strips = _strips(operator, target, plane, taps, common, (pitch, row))
    channel = Channel(
        operator=operator, finish=finish, common=common, taps=taps, plane=plane, pitch=pitch, row=row, strips=strips
    )
    if common:
        shared = [*shared[:4], Parameter(name="multiplier", ctype="int32_t", role="constant")]
    shared = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in shared]
    scratch = Parameter(name="scratch", ctype="uint8_t", role="scratch")
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*shared, scratch, row_begin, row_end),
            body=_body(stored, finish, common),
            helpers="\n".join(
                (
                    _shapes(operator, stored, plane),
                    _expand_row(),
                    *((strips.definition(),) if strips and strips.by_pairs else ()),
                    channel.definition(is_even=bool(strips and strips.are_even(stored))),
                )
            ),
            includes=("tvm_ext_dsp_depthwise.h", *INCLUDES, *HEADERS, *(strips.includes() if strips else ())),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(
            (
                "weights",
                pack_nibbles(operator.weight) if isinstance(operator, PackedQConv2d) else pack(operator.weight, taps),
            ),
            ("bias", wrapped(begin)),
            *((("multiplier", common.multiplier),) if common else finish.constants()),
        ),
        scratch_bytes=4 * PLANES * plane.size,
        macs=operator.output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, stored, finish, taps, plane, strips),
        passes=Passes(
            constants=operator.output.shape[1],  # each channel's weights again for every row
            scratch=(1 + window.kernel[0]) * operator.output.shape[3] / PLANES * operator.output.shape[1] / plane.strip,
        ),
        accumulation="exact",
        spatial=replace(spatial(window, operator.inputs[0], operator.output), behind=operator.output.shape[1] - 1),
        in_place=(0,) if _keeps_places(operator) else (),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def _keeps_places(operator: QConv2d) -> bool:
    """True where each output element has its input's place, and no channel is computed twice."""
    same = operator.inputs[0].shape == operator.output.shape and operator.window.strides == (1, 1)
    return same and not holds_sums(operator.output) and operator.output.shape[3] % PLANES == 0


def _common_shift(operator: QConv2d) -> CommonShift | None:
    if isinstance(operator, PackedQConv2d) or holds_sums(operator.output):
        return None
    return CommonShift.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())


def _strips(
    operator: QConv2d, target: Target, plane: Plane, taps: RowTaps, common: CommonShift | None, apart: tuple[int, int]
) -> Strips | None:
    """The function for strips of rows, where there is one.

    apart: elements of the output from one pixel, and from one row, to the next.
    """
    if common is None:
        return None
    strips = Strips(operator=operator, plane=plane, taps=taps, common=common, pitch=apart[0], row=apart[1])
    return strips if strips.fits(for_speed=for_speed(operator, target)) else None


def _instructions(
    operator: QConv2d, stored: StoredRows, finish: FastRequantize, taps: RowTaps, plane: Plane, strips: Strips | None
) -> int:
    """Modelled instructions: expanded planes, then products and results of two columns at a time, or of one."""
    batch, height, columns, channels = operator.output.shape
    kernel_rows = operator.window.kernel[0]

    kept = kernel_rows * len(taps.words) <= WEIGHT_REGISTERS

    def group(count: int) -> int:
        found = [product for products in taps.products[:count] for product in products]
        weights = 0 if kept else len(found)  # are on the stack
        return kernel_rows * (len(found) + len({word for _, word, _ in found}) + weights) + count * finish.instructions

    pairs = columns // COLUMNS
    row = 4 + pairs * (group(COLUMNS) + 2) + (columns - pairs * COLUMNS) * group(1)
    row = strips.row_instructions() if strips else row
    rows = plane.rows - plane.kept
    again = 20 + 13 * plane.words if stored.at_once == plane.strip else 11 * plane.words  # each call begins anew
    expand = rows * (20 + 13 * plane.words) + plane.kept * again
    loads = len(taps.words) * kernel_rows * (5 if isinstance(operator, PackedQConv2d) else 1)
    one = -(-channels // PLANES) * expand + channels * (34 + loads + plane.strip * row)
    return batch * height * one // plane.strip


def _shapes(operator: QConv2d, stored: StoredRows, plane: Plane) -> str:
    """The layer's shapes as tvm_ext_dsp_depthwise.h takes them."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "strip_rows": plane.strip,
    }
    return shapes(LAYER, members)


def _expand_row() -> str:
    """`$_expand_row(...)`, a tvm_ext_dsp_row."""
    return shared_function(
        "$_expand_row", ["uint32_t *cell", "const uint8_t *row"], ["tvm_ext_dsp_expand_row(&$_layer, cell, row);"]
    )


def _body(stored: StoredRows, finish: FastRequantize, common: CommonShift | None) -> str:
    """The loops of tvm_ext_dsp_depthwise.h around the two functions."""
    rings, layer = with_rings(LAYER, stored)
    call = (
        f"tvm_ext_dsp_depthwise({layer}, $_expand_row, $_channel, input, output, weights, bias, multiplier, "
        f"{'NULL' if common else 'shift'}, scratch, row_begin, row_end);"
    )
    return "\n".join([*rings, *([] if common else finish.tables()), call])


KERNEL = Kernel(
    name="qdepthwise_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=(qdepthwise.is_depthwise, is_dense_in_columns, has_four_channels, *qconv2d.SUMS_TOO),
    blocks=strip_blocks,
)
