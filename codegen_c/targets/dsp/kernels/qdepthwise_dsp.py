"""Depthwise conv2d of a QDQ chain by the DSP extension: two output columns of one channel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], or the sums, int32. Four channels at a time,
the input rows of a few output rows are expanded to a plane of 16-bit numbers for each channel, padding as zero points;
then one instruction multiplies two adjacent columns by two taps. Rows that the next strip needs again stay in the
planes, so each input element is read once, and the output may take the input's place. The zero point is in the bias.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.initializer import Value, structure
from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.common_shift import CommonShift
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.kernels.shared.window import row_elements, spatial
from codegen_c.operators.kinds import PackedQConv2d, QConv2d
from codegen_c.targets.dsp.kernels.planes_dsp import (
    COLUMNS,
    PLANES,
    Plane,
    RowTaps,
    nibble_bytes,
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
PARAMETERS = [
    "uint8_t *output", "const uint32_t *restrict weights", "const int32_t *restrict bias",
    "const int32_t *restrict multipliers", "const uint8_t *restrict shifts", "const uint32_t *plane", "int32_t count",
    "int32_t k",
]  # fmt: skip


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
                    _channel(
                        operator,
                        finish,
                        common,
                        taps,
                        plane,
                        (pitch, row),
                        strips,
                        is_even=bool(strips and strips.are_even(stored)),
                    ),
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
    """The function for strips of rows, where there is one. apart: as `_channel` takes it."""
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


def _channel(
    operator: QConv2d,
    finish: FastRequantize,
    common: CommonShift | None,
    taps: RowTaps,
    plane: Plane,
    apart: tuple[int, int],
    strips: Strips | None,
    *,
    is_even: bool,
) -> str:
    """`$_channel(...)`, a tvm_ext_dsp_channel: products of the words of each row and the taps, unrolled.

    By functions for strips where there are, but for a last row that pairs leave. is_even: they leave none.
    apart: elements of the output from one pixel, and from one row, to the next.
    """
    window, columns, (pitch, row_elements) = operator.window, operator.output.shape[2], apart
    unused = ["(void)shifts;"] if common else []
    if strips and (is_even or not strips.by_pairs):
        return shared_function("$_channel", PARAMETERS, [*unused, *strips.lines("count")])
    kernel_rows, num_words = window.kernel[0], len(taps.words)
    f = (
        f"const uint32_t *restrict f = &weights[{times('k', kernel_rows * num_words)}]; "
        "/* f<r>_<i>: words of two taps of kernel row r */"
    )
    start, down = "bias[k]", ""
    if isinstance(operator, PackedQConv2d):
        f, words = _nibbles(operator, taps)
        start, down = "bias[k] * 16", " >> 4" if finish.exact.rounding == "tflite" else ""
    else:
        words = [f"f[{i}]" for i in range(kernel_rows * num_words)]
    weights = [
        f"const uint32_t f{r}_{i} = {words[r * num_words + i]};" for r in range(kernel_rows) for i in range(num_words)
    ]
    has_sums = holds_sums(operator.output)
    names = ("multiplier",) if common else ("multiplier", "shift")
    tables = [f"const int32_t {name} = tvm_ext_dsp_{name}(&requantize, {name}s, k);" for name in names]
    tables = ["(void)multipliers;", "(void)shifts;"] if has_sums else tables
    shift = "0" if common else "shift"

    def sums(count: int) -> list[str]:
        lines = [f"int32_t sum{q} = start;" for q in range(count)]
        for r in range(kernel_rows):
            used = {word for q in range(count) for _, word, _ in taps.products[q]}
            row = r * window.dilation[0] * plane.words
            lines += [f"const uint32_t x{r}_{word} = x[{row + word}];" for word in sorted(used)]
            for q in range(count):
                lines += [
                    f"sum{q} = tvm_ext_dsp_{function}(x{r}_{word}, f{r}_{i}, sum{q});"
                    for function, word, i in taps.products[q]
                ]
        return lines

    def store(count: int) -> list[str]:
        return [
            f"y[{q * pitch}] = sum{q};"
            if has_sums
            else f"y[{q * pitch}] = (uint8_t)tvm_ext_dsp_element(&requantize, sum{q}{down}, multiplier, {shift});"
            for q in range(count)
        ]

    pairs = columns // COLUMNS
    x_step, y_step = window.strides[1] * COLUMNS // 2, COLUMNS * pitch
    target = "int32_t *y = &((int32_t *)(void *)output)" if has_sums else "uint8_t *y = &output"
    row = [
        f"{target}[h * row_elements + k];",
        "const uint32_t *x = plane; /* x<r>_<i>: words of two columns of input row r */",
    ]
    if pairs:
        pair = [*sums(COLUMNS), *store(COLUMNS), f"x += {x_step};", f"y += {y_step};"]
        row += [f"for (int32_t w = 0; w < {pairs}; ++w) {{", block(pair), "}"]
    if columns > pairs * COLUMNS:
        row += ["{", block([*sums(1), *store(1)]), "}"]
    row.append(f"plane += {times('row_words', window.strides[0])};")
    lines = [f"const int32_t row_elements = {row_elements};", f"const int32_t row_words = {plane.words};"]
    lines += [f, *weights, f"const int32_t start = {start};", *tables]
    if strips:
        done = ["const int32_t done = count - count % 2; /* rows, in pairs */", *strips.lines("done")]
        lines = [
            *done,
            "if (count > done) {",
            block([f"plane = &plane[done * {plane.words}];", *lines, *_rows("done", row)]),
            "}",
        ]
    else:
        lines += _rows("0", row)
    members = finish.members() | ({"channel_step": 1, "common_shift": common.shift} if common else {})
    requantize = [] if has_sums else structure("tvm_ext_dsp_requantize", "requantize", members)
    return shared_function("$_channel", PARAMETERS, [*unused, *requantize, *lines])


def _rows(first: str, row: list[str]) -> list[str]:
    return [f"for (int32_t h = {first}; h < count; ++h) {{", block(row), "}"]


def _nibbles(operator: PackedQConv2d, taps: RowTaps) -> tuple[str, list[str]]:
    """The place of a channel's weights of 4 bits, and words of two taps, each 16 times its weight."""
    kernel_rows, kernel_columns = operator.window.kernel
    size = nibble_bytes(kernel_rows * kernel_columns)
    place = (
        f"const int8_t *restrict f = &((const int8_t *)weights)[{times('k', size)}]; /* f<r>_<i>: 16 times two taps */"
    )

    def tap(r: int, s: int | None) -> str:
        return "0u" if s is None else f"tvm_ext_dsp_nibble(f, {r * kernel_columns + s})"

    pairs = [(tap(r, a), tap(r, b)) for r in range(kernel_rows) for a, b in taps.words]
    return place, [f"tvm_ext_dsp_lows({a}, {b})" for a, b in pairs]


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
