"""Depthwise conv2d of a QDQ chain by the DSP extension: two output columns of one channel at a time.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32. Four channels at a time, the
input rows of a few output rows are expanded to a plane of 16-bit numbers for each channel, padding as zero points;
then one instruction multiplies two adjacent columns by two taps. Rows that the next strip needs again stay in the
planes, so each input element is read once, and the output may take the input's place. The zero point is in the bias.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import C_TYPES, block, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d, qdepthwise
from codegen_c.kernels.shared.window import slot, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.dsp.kernels.planes_dsp import COLUMNS, PLANES, Plane, RowTaps, expand_row, expand_strip, pack
from codegen_c.targets.dsp.kernels.product_dsp import INCLUDES, shared_function, start, wrapped
from codegen_c.targets.dsp.kernels.requantize_dsp import FastRequantize

MOST_TAPS = 81


def is_dense_in_columns(operator: QConv2d, target: Target) -> bool:
    """taps of a row must be adjacent (no dilation of columns), and no more than 81 in a window"""
    return operator.window.dilation[1] == 1 and operator.weight[0].size <= MOST_TAPS


def has_four_channels(operator: QConv2d, target: Target) -> bool:
    """there must be at least 4 channels"""
    return operator.output.shape[3] >= PLANES


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish = FastRequantize.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())
    window, plane = operator.window, Plane.of(operator, stored)
    taps = RowTaps.of(window.kernel[1], window.strides[1], min(COLUMNS, operator.output.shape[2]))
    begin = start(operator.inputs[0], operator.weight, operator.bias)
    *shared, row_begin, row_end = qconv2d.parameters(operator, finish.exact)
    shared = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in shared]
    scratch = Parameter(name="scratch", ctype="uint8_t", role="scratch")
    pitch = stored.pitch or operator.output.shape[3]
    helpers = (finish.helper(), expand_row(operator, plane), _channel(operator, finish, taps, plane, pitch))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*shared, scratch, row_begin, row_end),
            body=_body(operator, stored, finish, plane),
            helpers="\n".join(helpers),
            includes=(*INCLUDES, *finish.includes),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(
            ("weights", pack(operator.weight, taps)),
            ("bias", wrapped(begin)),
            *finish.constants(),
        ),
        scratch_bytes=4 * PLANES * plane.size,
        macs=operator.output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, stored, finish, taps, plane),
        passes=Passes(
            constants=operator.output.shape[1],  # each channel's weights again for every row
            scratch=(1 + window.kernel[0]) * operator.output.shape[3] / PLANES * operator.output.shape[1] / plane.strip,
        ),
        accumulation="exact",
        spatial=replace(spatial(window, operator.inputs[0], operator.output), behind=operator.output.shape[1] - 1),
        in_place=(0,) if _keeps_places(operator) else (),
        exact=True,
        pitched=True,
    )


def _keeps_places(operator: QConv2d) -> bool:
    """Whether each output element has its input's place, and no channel is computed twice."""
    same = operator.inputs[0].shape == operator.output.shape and operator.window.strides == (1, 1)
    return same and operator.output.shape[3] % PLANES == 0


def _instructions(operator: QConv2d, stored: StoredRows, finish: FastRequantize, taps: RowTaps, plane: Plane) -> int:
    """Modelled: planes expanded, then products and results of two columns at a time, or of one."""
    batch, height, columns, channels = operator.output.shape
    kernel_rows = operator.window.kernel[0]

    def group(count: int) -> int:
        found = [product for products in taps.products[:count] for product in products]
        return kernel_rows * (len(found) + len({word for _, word, _ in found})) + count * finish.instructions

    pairs = columns // COLUMNS
    row = 4 + pairs * (group(COLUMNS) + 2) + (columns - pairs * COLUMNS) * group(1)
    rows = plane.rows - plane.kept
    again = 20 + 13 * plane.words if stored.at_once == plane.strip else 11 * plane.words  # each call begins anew
    expand = rows * (20 + 13 * plane.words) + plane.kept * again
    one = -(-channels // PLANES) * expand + channels * (34 + len(taps.words) * kernel_rows + plane.strip * row)
    return batch * height * one // plane.strip


def _channel(operator: QConv2d, finish: FastRequantize, taps: RowTaps, plane: Plane, pitch: int) -> str:
    """`$_channel(...)`: `count` output rows of channel k from its plane; `output` is the first one's first element."""
    output, window = operator.output, operator.window
    columns = output.shape[2]
    ctype = C_TYPES[output.dtype]
    constants = [p for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    arguments = [replace(p, ctype="uint32_t") if p.name == "weights" else p for p in constants]
    names = [f"{ctype} *output", *(p.declaration() for p in arguments), "const uint32_t *plane"]
    names += ["int32_t count", "int32_t k"]
    kernel_rows, num_words = window.kernel[0], len(taps.words)
    f = f"const uint32_t *restrict f = &weights[{times('k', kernel_rows * num_words)}];"
    weights = [
        f"const uint32_t f{r}_{i} = f[{r * num_words + i}];" for r in range(kernel_rows) for i in range(num_words)
    ]
    tables = [f"const {p.ctype} {p.name}_k = {p.name}[k];" for p in finish.parameters()]

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
        tables = "".join(f", {p.name}_k" for p in finish.parameters())
        return [f"y[{q * pitch}] = $_requantize(sum{q}{tables});" for q in range(count)]

    pairs = columns // COLUMNS
    x_step, y_step = window.strides[1] * COLUMNS // 2, COLUMNS * pitch
    row = [
        f"{ctype} *y = &output[{times('h', columns * pitch)} + k];",
        "const uint32_t *x = plane;",
    ]
    if pairs:
        pair = [*sums(COLUMNS), *store(COLUMNS), f"x += {x_step};", f"y += {y_step};"]
        row += [f"for (int32_t w = 0; w < {pairs}; ++w) {{", block(pair), "}"]
    if columns > pairs * COLUMNS:
        row += ["{", block([*sums(1), *store(1)]), "}"]
    row.append(f"plane += {window.strides[0] * plane.words};")
    lines = [f, *weights, "const int32_t start = bias[k];", *tables]
    lines += ["for (int32_t h = 0; h < count; ++h) {", block(row), "}"]
    return shared_function("$_channel", names, lines)


def _output_row(operator: QConv2d, stored: StoredRows) -> str:
    batch, height = operator.output.shape[:2]
    return f"(n * {height} + h)" if batch > 1 else slot("h", stored.output)


def _body(operator: QConv2d, stored: StoredRows, finish: FastRequantize, plane: Plane) -> str:
    """Four channels at a time, strips of rows; each is expanded, then its channels are computed one by one."""
    batch, channels = operator.output.shape[0], operator.output.shape[3]
    constants = [p.name for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    row = operator.output.shape[2] * (stored.pitch or channels)
    first = f"&output[{times(_output_row(operator, stored), row)}]"
    call = ", ".join([first, *constants, f"&cells[{times('j', plane.size)}]", "end - h", "k + j"])
    # Rows of a strip lie behind each other: it ends where a ring does.
    wraps = stored.output is not None and plane.strip > 1
    strip = [
        f"const int32_t end = row_end - h < {plane.strip} ? row_end : h + {plane.strip};",
        *expand_strip(operator, stored, plane),
        f"for (int32_t j = 0; j < {PLANES}; ++j) {{",
        block(f"$_channel({call});"),
        "}",
    ]
    # The last four channels may share some with those before: computing them twice gives the same bytes.
    following = f"k += k + {2 * PLANES} > {channels} && k + {PLANES} < {channels} ? {channels - PLANES} - k : {PLANES}"
    step = f"k += {PLANES}" if channels % PLANES == 0 else following
    strips = [f"for (int32_t h = row_begin; h < row_end; h += {plane.strip}) {{", block(strip), "}"]
    if wraps and stored.output is not None:
        left = f"const int32_t left = {stored.output.stored_text} - {slot('h', stored.output)};"
        end = f"const int32_t end = TVM_EXT_MIN(h + TVM_EXT_MIN(left, {plane.strip}), row_end);"
        strip = [left, end, *strip[1:]]
        strips = ["for (int32_t h = row_begin; h < row_end;) {", block([*strip, "h = end;"]), "}"]
        if plane.kept:  # rows slide by as many as the strip before had
            strips = ["int32_t last = row_begin;", strips[0], block([*strip, "last = h;", "h = end;"]), "}"]
    lines = [f"for (int32_t k = 0; k < {channels}; {step}) {{", block(strips), "}"]
    if batch > 1:
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block(lines), "}"]
    return "\n".join(["uint32_t *cells = (uint32_t *)(void *)scratch;", *lines])


KERNEL = Kernel(
    name="qdepthwise_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=(
        qdepthwise.is_depthwise,
        is_dense_in_columns,
        has_four_channels,
        *qconv2d.CONSTRAINTS,
    ),
)
