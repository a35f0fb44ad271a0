"""Kernel for float16 conv2d with Helium: windows of some pixels are widened once, then eight output channels at a time.

float16[N, H, W, C], float16[K, R, S, C] -> float16[N, P, Q, K]. Any stride and padding, rows of any dilation. Sums are
float32: the bias, then products in the order r, s, c ascending, zeros for taps outside the input; each result is
rounded once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from codegen_c.c_text.text import block, loop, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import (
    pixel_offsets,
    place,
    product_parameters,
    reference,
    residual_place,
)
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    lanes_finished,
    over_channels,
    pack,
    tile_headers,
)
from codegen_c.kernels.shared.lanes import Finish
from codegen_c.kernels.shared.product_f32 import WIDENED_FLOATS
from codegen_c.kernels.shared.window import slot, spatial
from codegen_c.operators.kinds import HalfConv2d
from codegen_c.targets.helium.kernels.half_floats import (
    finishes_in_vectors,
    holds_weights,
    product_blocking,
    rounded,
)

SHORT_RUN = 24
"""Elements of a window's row below which starting a run of products costs more than storing windows separately."""
RUN_INSTRUCTIONS, ROW_INSTRUCTIONS = 14, 25


def has_one_group(operator: HalfConv2d, target: Target) -> bool:
    """the convolution must have one group of channels, and columns without dilation"""
    return operator.groups == 1 and operator.window.dilation[1] == 1


@dataclass(frozen=True, kw_only=True)
class Widened:
    """Windows of `pixels` adjacent output pixels as floats in scratch, each row of a window one run of elements.

    apart: True if windows are stored one after the other, each as a single run; otherwise their rows share columns.
    """

    pixels: int
    rows: int
    columns: int
    stride: int
    channels: int

    @classmethod
    def of(cls, operator: HalfConv2d, pixels: int) -> Self:
        rows, columns = operator.window.kernel
        return cls(
            pixels=pixels, rows=rows, columns=columns, stride=operator.window.strides[1],
            channels=operator.inputs[0].shape[3],
        )  # fmt: skip

    @property
    def apart(self) -> bool:
        return self.columns * self.channels < SHORT_RUN

    @property
    def filled_columns(self) -> int:
        """Columns of the input that a row of scratch holds."""
        return self.columns if self.apart else (self.pixels - 1) * self.stride + self.columns

    @property
    def num_elements(self) -> int:
        return (self.pixels if self.apart else 1) * self.rows * self.filled_columns * self.channels

    @property
    def runs(self) -> tuple[int, int, int]:
        """Number of runs of a window, elements of each, and elements from one pixel's run to the next one's."""
        length = self.columns * self.channels
        return (1, self.rows * length, self.rows * length) if self.apart else (self.rows, length, self._step)

    @property
    def _step(self) -> int:
        return self.stride * self.channels


def implement(operator: HalfConv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), product_blocking(operator, target)
    output, source = operator.output.shape, operator.inputs[0]
    groups = _groups(output[2], blocking.pixels)
    macs = operator.output.num_elements * operator.weight[0].size
    made = Implementation(
        kernel=KERNEL.name,
        function=_function(operator, stored, finish, blocking),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants()),
        scratch_bytes=4 * max(Widened.of(operator, pixels).num_elements for pixels in groups),
        macs=macs,
        instructions=output[0] * output[1] * sum(_instructions(operator, blocking, pixels) for pixels in groups),
        passes=Passes.of_product(
            macs, source.num_elements, output[0] * output[1] * output[2], pixels=output[2] / len(groups),
            channels=output[3],
        ),
        accumulation="bias, then r, s, c ascending",
        spatial=spatial(operator.window, source, operator.output, len(finish.residuals())),
        pitched=True,
        row_pitched=True,
    )  # fmt: skip
    return rounded(made)


def _groups(columns: int, most: int) -> list[int]:
    """Return the pixels of each group in a row."""
    return [most] * (columns // most) + ([columns % most] if columns % most else [])


def _instructions(operator: HalfConv2d, blocking: Blocking, pixels: int) -> int:
    """Return the modelled instructions of a group of pixels: widening, and for each block its runs and epilogue."""
    widened = Widened.of(operator, pixels)
    runs, length, _ = widened.runs
    total = widened.num_elements + ROW_INSTRUCTIONS * widened.rows * (pixels if widened.apart else 1)
    for segment in channel_ranges(operator.output.shape[3], blocking):
        sums = pixels * segment.vectors
        products = int(length * blocking.element_instructions(segment, pixels))
        block_instructions = 8 + runs * (RUN_INSTRUCTIONS + products)
        block_instructions += sums * (4 + operator.finish.num_instructions)
        total += segment.num_blocks * block_instructions
    return total


def _function(operator: HalfConv2d, stored: StoredRows, finish: Finish, blocking: Blocking) -> CFunction:
    images, _, columns, channels = operator.output.shape
    names = product_parameters(finish, blocking)
    groups = _groups(columns, blocking.pixels)
    position = ["int32_t n", "int32_t h", "int32_t w"][0 if images > 1 else 1 :]
    shared = [parameter for parameter in names if parameter.role != "row"]
    head = ", ".join([*(parameter.declaration() for parameter in shared), *position])
    call = ", ".join([*(parameter.name for parameter in shared), *(text.split()[1] for text in position)])
    helpers = [finish.helper(*lanes_finished(channels, finish, blocking))]
    for pixels in dict.fromkeys(groups):
        body = block(_pixels(operator, stored, finish, blocking, Widened.of(operator, pixels)))
        helpers.append(f"static inline void $_{pixels}_pixels({head})\n{{\n{body}\n}}\n")
    lines: list[str] = []
    whole = columns // blocking.pixels * blocking.pixels
    if whole:
        lines += loop("w", whole, [f"$_{blocking.pixels}_pixels({call});"], step=blocking.pixels)
    if whole < columns:
        lines.append(f"$_{columns - whole}_pixels({call.removesuffix(' w')} {whole});")
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    if images > 1:
        lines = [f"for (int32_t n = 0; n < {images}; ++n) {{", block(lines), "}"]
    includes = (*tile_headers(channels, blocking), "tvm_ext_half_window.h")
    return CFunction(
        parameters=names, body="\n".join(lines), helpers="\n".join(filter(None, helpers)), includes=includes
    )


def _pixels(
    operator: HalfConv2d, stored: StoredRows, finish: Finish, blocking: Blocking, widened: Widened
) -> list[str]:
    """Return the code of all channels of a group of pixels from (h, w) on."""
    return [
        *pixel_offsets(operator, stored, finish),
        WIDENED_FLOATS,
        *_fill(operator, stored, widened),
        *over_channels(
            operator.output.shape[3], blocking, lambda segment: _tile(operator, finish, segment, widened)
        ),
    ]  # fmt: skip


def _fill(operator: HalfConv2d, stored: StoredRows, widened: Widened) -> list[str]:
    """Return code that copies windows into scratch, row by row."""
    window, (images, height, columns, channels) = operator.window, operator.inputs[0].shape
    rows, length = widened.rows, widened.filled_columns * channels
    dilation, first = window.dilation[0], f"{times('w', window.strides[1])} - {window.padding[1]}"
    source = f"(n * {height} + y)" if images > 1 else slot("y", stored.input(0))
    line = times("r", length)
    if widened.apart:
        first = f"(w + p) * {window.strides[1]} - {window.padding[1]}"
        line = f"(p * {rows} + r) * {length}"
    fill = [
        f"const int32_t y = {times('h', window.strides[0])} - {window.padding[0]} + {times('r', dilation)};",
        f"float *const line = &widened[{line}];",
        f"if (y < 0 || y >= {height}) {{",
        block(f"tvm_ext_half_zeros(line, {length});"),
        "} else {",
        block(
            f"tvm_ext_half_window_row(line, &input[{source} * {columns * channels}], {first}, "
            f"{widened.filled_columns}, {columns}, {channels});"
        ),
        "}",
    ]
    lines = loop("r", rows, fill)
    return loop("p", widened.pixels, lines) if widened.apart else lines


def _tile(operator: HalfConv2d, finish: Finish, segment: ChannelRange, widened: Widened) -> list[str]:
    """Return the code of one block of output channels, from k on."""
    sums = Accumulators(segment=segment, pixels=widened.pixels, in_array=True)
    runs, length, step = widened.runs
    line = widened.filled_columns * widened.channels
    x = f"&widened[{times('r', line)}]" if runs > 1 else "widened"
    weights = f"&weights[k * {runs * length}{f' + r * {length * segment.width}' if runs > 1 else ''}]"
    add = [sums.add(x, str(step), weights, str(length))]
    adds = loop("r", runs, add) if runs > 1 else add
    return [*sums.begin(), *adds, *sums.store(finish, place, residual_place)]


KERNEL = Kernel(
    name="conv2d_f16",
    title="Convolution in float16",
    operator=HalfConv2d,
    implement=implement,
    constraints=(has_one_group, holds_weights, finishes_in_vectors),
)
