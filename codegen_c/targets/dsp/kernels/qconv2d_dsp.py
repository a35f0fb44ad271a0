"""conv2d of a QDQ chain by the DSP extension: three output pixels by two channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. The windows of three
pixels are expanded to 16-bit pairs in scratch, padding as zero points, so that borders and insides run the same
code; all channels then read them. The zero point is in the bias. Rounding "onnx": once, halves to even.
"""

from __future__ import annotations

from codegen_c.c_text.text import C_TYPES, block, plus, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.kernels.shared.window import offset, over_pixels, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.dsp.kernels.product_dsp import (
    INCLUDES,
    PairedWeights,
    cell_pairs,
    shared_function,
    start,
    suffix,
)
from codegen_c.targets.dsp.kernels.requantize_dsp import FastRequantize

PIXELS, WIDTH = 3, 2
EXPAND_INSTRUCTIONS = 1.7
RUN_INSTRUCTIONS = 24


def is_ungrouped(operator: QConv2d, target: Target) -> bool:
    """the convolution must have one group"""
    return operator.groups == 1


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish = FastRequantize.of(qconv2d.requantize(operator), *qconv2d.products(operator).range())
    paired = _pair(operator)
    parameters = qconv2d.parameters(operator, finish.exact)
    rows = parameters[-2:]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(*parameters[:-2], Parameter(name="scratch", ctype="uint8_t", role="scratch"), *rows),
            body=_body(operator, stored, finish, paired),
            helpers=f"{finish.helper()}\n{_product(operator, finish, paired)}",
            includes=(*INCLUDES, *finish.includes),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", paired.weights), ("bias", paired.bias), *finish.constants()),
        scratch_bytes=4 * paired.num_cells + (0 if _by_taps(operator) else _run_length(operator)),
        macs=operator.output.num_elements * operator.weight[0].size,
        instructions=_instructions(operator, stored, finish, paired),
        passes=_passes(operator, paired),
        accumulation="exact",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        # A pixel is expanded before it is written.
        in_place=(0,) if operator.window.is_pointwise and operator.inputs[0].shape == operator.output.shape else (),
        exact=True,
        pitched=True,
    )


def _passes(operator: QConv2d, paired: PairedWeights) -> Passes:
    """Each pixel's input is expanded into scratch once, and read from there for every block of channels."""
    num_pixels, channels = operator.output.num_elements // operator.output.shape[3], operator.output.shape[3]
    groups = num_pixels / paired.pixels
    return Passes(
        constants=max(1.0, groups),
        input=max(1.0, num_pixels * operator.weight[0].size / operator.inputs[0].num_elements),
        scratch=groups * (1 + channels / paired.width),
    )


def _by_taps(operator: QConv2d) -> bool:
    """Whether each tap fills whole cells, so that a row of taps may be expanded tap by tap."""
    return operator.weight.shape[3] % 4 == 0 or operator.window.dilation[1] > 1


def _run_length(operator: QConv2d) -> int:
    """Adjacent input elements that cells are made of: of one tap, or of a whole row of taps."""
    depth = operator.weight.shape[3]
    return depth if _by_taps(operator) else depth * operator.window.kernel[1]


def _pair(operator: QConv2d) -> PairedWeights:
    runs = operator.weight.reshape(operator.weight.shape[0], -1, _run_length(operator))
    source = operator.inputs[0]
    begin = start(source, operator.weight, operator.bias)
    return PairedWeights.of(runs, begin, source, pixels=PIXELS, width=WIDTH)


def _instructions(operator: QConv2d, stored: StoredRows, finish: FastRequantize, paired: PairedWeights) -> int:
    """Modelled: windows expanded, then products and results of each block; each call's last one may lack pixels."""
    batch, height, columns, channels = operator.output.shape
    pixels = batch * height * columns
    calls = [min(stored.at_once or height, height - h) for h in range(0, height, stored.at_once or height)]
    blocks = sum(-(-batch * rows * columns // PIXELS) for rows in calls) * -(-channels // WIDTH)
    row = RUN_INSTRUCTIONS + EXPAND_INSTRUCTIONS * operator.weight[0, 0].size
    one = paired.instructions() + PIXELS * WIDTH * finish.instructions
    return int(pixels * (12 + operator.window.kernel[0] * row)) + blocks * one


def _product(operator: QConv2d, finish: FastRequantize, paired: PairedWeights) -> str:
    """`$_product(...)`: all channels of the pixels in the cells.

    A pixel that is missing has the place of the first one, which is stored last.
    """
    ctype, channels = C_TYPES[operator.output.dtype], operator.output.shape[3]
    constants = [p for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    names = [f"{ctype} *output", *(p.declaration() for p in constants), "const uint32_t *cells", "const int32_t *place"]

    def tile(width: int) -> list[str]:
        stores = [
            f"y{p}[{plus('k', j)}] = {finish.call(f'sums[{j * PIXELS + p}]', plus('k', j))};"
            for j in range(width)
            for p in reversed(range(PIXELS))
        ]
        weights = f"&weights[{times('k', paired.bytes_per_channel)}]"
        return [
            f"int32_t sums[{PIXELS * WIDTH}];",
            f"{paired.function}(sums, cells, {weights}, &bias[k], {paired.units});",
            *stores,
        ]

    full = channels // WIDTH * WIDTH
    lines = [f"{ctype} *y{p} = &output[place[{p}]];" for p in range(PIXELS)]
    if full:
        lines += [f"for (int32_t k = 0; k < {full}; k += {WIDTH}) {{", block(tile(WIDTH)), "}"]
    if channels > full:
        lines += ["{", block([f"const int32_t k = {full};", *tile(channels - full)]), "}"]
    return shared_function("$_product", names, lines)


def _body(operator: QConv2d, stored: StoredRows, finish: FastRequantize, paired: PairedWeights) -> str:
    """Expand pixel after pixel; whenever there are three, and at the end, compute them."""
    window = operator.window
    constants = [p.name for p in qconv2d.parameters(operator, finish.exact) if p.role == "constant"]
    product = f"$_product({', '.join(['output', *constants, 'cells', 'place'])});"
    pixel = [
        _first("left", "w", 1, operator),
        "uint32_t *cell = &cells[lane];",
        f"for (int32_t r = 0; r < {window.kernel[0]}; ++r) {{",
        block(_window_row(operator, stored, paired)),
        "}",
        qconv2d.pixel_offset(operator.output, stored),
        "place[lane] = pixel;",
        "++lane;",
        f"if (lane == {PIXELS}) {{",
        block([product, "lane = 0;"]),
        "}",
    ]
    lines = [
        "uint32_t *cells = (uint32_t *)(void *)scratch;",
        f"int32_t place[{PIXELS}];",
        "int32_t lane = 0;",
        over_pixels([_first("top", "h", 0, operator)], pixel, operator.output.shape),
        "if (lane > 0) {",
        block([f"for (; lane < {PIXELS}; ++lane) {{", block("place[lane] = place[0];"), "}", product]),
        "}",
    ]
    return "\n".join(lines)


def _first(name: str, position: str, axis: int, operator: QConv2d) -> str:
    """Declaration of the first input index of a window along one axis; it may be negative."""
    before = operator.window.padding[axis]
    scaled = offset({position: operator.window.strides[axis]})
    return f"const int32_t {name} = {scaled}{f' - {before}' if before else ''};"


def _window_row(operator: QConv2d, stored: StoredRows, paired: PairedWeights) -> list[str]:
    """Cells of the taps of kernel row r."""
    window, source = operator.window, operator.inputs[0]
    _, height, columns, depth = source.shape
    top, _, bottom, _ = window.padding
    place = times(qconv2d.input_row(source, window, stored), columns * depth)
    lines = [f"const {C_TYPES[source.dtype]} *row = &input[{place}];", *_run(operator, paired)]
    if not top and not bottom:
        return lines
    num_cells = len(cell_pairs(_run_length(operator))) * (window.kernel[1] if _by_taps(operator) else 1)
    y = offset({"top": 1, "r": window.dilation[0]})
    return [
        f"const int32_t y = {y};",
        f"if (y < 0 || y >= {height}) {{",
        block(f"cell = tvm_ext_dsp_fill_3(cell, {_zeros(operator)}, {num_cells});"),
        "} else {",
        block(lines),
        "}",
    ]


def _run(operator: QConv2d, paired: PairedWeights) -> list[str]:
    """Cells of the taps that `row` holds: all at once inside, one by one across the border."""
    window, source = operator.window, operator.inputs[0]
    _, _, columns, depth = source.shape
    taps, dilation = window.kernel[1], window.dilation[1]
    expand = f"cell = tvm_ext_dsp_expand_{PIXELS}_{suffix(source)}"
    whole = f"{expand}(cell, &row[{times('left', depth)}], {taps * depth});"
    padded = window.padding[1] > 0 or window.padding[3] > 0
    if dilation == 1 and not padded:
        return [whole]
    if _by_taps(operator):
        one = [f"{expand}(cell, &row[{times('x', depth)}], {depth});"]
        if padded:
            fill = f"cell = tvm_ext_dsp_fill_3(cell, {_zeros(operator)}, {len(cell_pairs(depth))});"
            one = [f"if (x < 0 || x >= {columns}) {{", block(fill), "} else {", block(one), "}"]
        x = f"const int32_t x = {offset({'left': 1, 's': dilation})};"
        border = [f"for (int32_t s = 0; s < {taps}; ++s) {{", block([x, *one]), "}"]
    else:
        ctype, zero_point = C_TYPES[source.dtype], quantization(source).zero_point
        x = f"const int32_t x = {times('left', depth)} + i;"
        border = [
            f"{ctype} *taps = ({ctype} *)&cells[{paired.num_cells}];",
            f"for (int32_t i = 0; i < {taps * depth}; ++i) {{",
            block([x, f"taps[i] = x < 0 || x >= {columns * depth} ? {zero_point} : row[x];"]),
            "}",
            f"{expand}(cell, taps, {taps * depth});",
        ]
    if dilation > 1 or columns < taps:
        return border
    return [f"if (left >= 0 && left <= {columns - taps}) {{", block(whole), "} else {", block(border), "}"]


def _zeros(operator: QConv2d) -> str:
    """A cell of padding."""
    return f"0x{(quantization(operator.inputs[0]).zero_point & 0xFFFF) * 0x10001:08x}u"


KERNEL = Kernel(
    name="qconv2d_dsp",
    operator=QConv2d,
    implement=implement,
    constraints=(is_ungrouped, *qconv2d.CONSTRAINTS),
)
