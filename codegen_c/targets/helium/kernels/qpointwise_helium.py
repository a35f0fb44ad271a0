"""1x1 conv2d of a QDQ chain with Helium: a matrix product, two pixels by four channels at a time.

int8 or uint8[N, H, W, C], int8[K, 1, 1, C] -> int8 or uint8[N, H, W, K], sums in int32. Pixels lie behind each
other, so pairs of them go on from row to row; the last one may be a pair with itself. Rounding "onnx".
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import C_TYPES, block, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot, spatial
from codegen_c.operators.kinds import QConv2d
from codegen_c.targets.helium.kernels.helium import PRODUCT_INCLUDES, OutputRange, copy, flip
from codegen_c.targets.helium.kernels.product_helium import PARAMETERS, SCRATCH, Product, padded
from codegen_c.targets.helium.kernels.qconv2d_helium import passes, rescale, start, sums_leave_room


def is_pointwise(operator: QConv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output = operator.inputs[0], operator.output
    depth, channels = source.shape[3], output.shape[3]
    product = Product.of(
        runs=1, run_bytes=depth, channels=channels, rescale=rescale(operator),
        limits=OutputRange(output=output, low=operator.low, high=operator.high), target=target,
    )  # fmt: skip
    copies = needs_copy(operator)
    pairs = -(-output.num_elements // channels // 2)
    copying = 2 * (8 + depth // 4) if copies else 0
    spans = output.shape[0] == 1 and stored.output is None and stored.input(0) is None
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                *((SCRATCH,) if copies else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, spans),
            helpers=product.function(2),
            includes=PRODUCT_INCLUDES,
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=product.constants(operator.weight, start(operator)),
        scratch_bytes=2 * padded(depth) if copies else 0,
        macs=output.num_elements * depth,
        instructions=pairs * (product.instructions(2) + copying + 14),
        passes=passes(operator, 2 * pairs if copies else 0),
        accumulation="products with c ascending in vectors of 16, then bias",
        # A pair of pixels may span two rows.
        spatial=replace(spatial(operator.window, source, output), behind=1 if spans else 0),
        exact=True,
        pitched=True,
    )


def needs_copy(operator: QConv2d) -> bool:
    """True where pixels must be turned into int8, or padded to a multiple of 16 channels."""
    depth = operator.inputs[0].shape[3]
    return depth != padded(depth) or flip(operator.inputs[0]) != 0


def _body(operator: QConv2d, stored: StoredRows, spans: bool) -> str:
    """Pairs of pixels: of all rows where pairs may span them, else row by row."""
    batch, height, columns, _ = operator.inputs[0].shape
    if spans:
        return "\n".join(_pairs(operator, stored, times("row_begin", columns), times("row_end", columns), "m", "m"))
    rows = ["h", "h"] if batch == 1 else [f"n * {height} + h"] * 2
    first = [
        times(f"({slot(row, kept)})", columns) for row, kept in zip(rows, (stored.input(0), stored.output), strict=True)
    ]
    lines = [
        f"const int32_t source = {first[0]};",
        f"const int32_t target = {first[1]};",
        *_pairs(operator, stored, "0", str(columns), "(source + m)", "(target + m)"),
    ]
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    if batch > 1:
        lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block(lines), "}"]
    return "\n".join(lines)


def _pairs(operator: QConv2d, stored: StoredRows, begin: str, end: str, source: str, target: str) -> list[str]:
    """All channels of pixels [begin, end), which lie at `source` and `target` of input and output."""
    depth, pitch = operator.inputs[0].shape[3], stored.pitch or operator.output.shape[3]
    ctype = C_TYPES[operator.inputs[0].dtype]
    lines = [
        f"const int32_t next = m + 1 < {end} ? 1 : 0;",
        f"const {ctype} *x = &input[{times(source, depth)}];",
        f"{C_TYPES[operator.output.dtype]} *y = &output[{times(target, pitch)}];",
    ]
    rows = ("x", f"x + next * {depth}")
    if needs_copy(operator):
        second = f"rows + {padded(depth)}"
        lines.append("int8_t *rows = (int8_t *)scratch;")
        for row, place in zip(rows, ("rows", second), strict=True):
            lines.append(copy(operator.inputs[0], place, row, depth))
        rows = ("rows", second)
    lines.append(f"$_two({', '.join(rows)}, 0, y, y + next * {pitch}, weights, factors);")
    return [f"for (int32_t m = {begin}; m < {end}; m += 2) {{", block(lines), "}"]


KERNEL = Kernel(
    name="qpointwise_helium",
    operator=QConv2d,
    implement=implement,
    constraints=(is_pointwise, *qconv2d.CONSTRAINTS, sums_leave_room),
)
