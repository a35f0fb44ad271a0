"""1x1 conv2d, float32: a matrix product of pixels by channels, in blocks of both.

float32[N, H, W, C], float32[K, 1, 1, C] -> float32[N, H, W, K]. Each element starts at its bias and adds
products with c ascending.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import Compound, block, scaled, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import product_parameters, reference, row_offset
from codegen_c.kernels.shared.blocking import (
    Blocking,
    lanes_finished,
    pack,
    product_blocks,
    tile_headers,
    weight_blocking,
)
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.product_f32 import instructions, over_rows, widened_bytes
from codegen_c.kernels.shared.window import slot, spatial
from codegen_c.operators.kinds import Conv2d


def is_pointwise(operator: Conv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return by_pixels(KERNEL.name, operator, weight_blocking(operator.weight, target), stored)


def by_pixels(kernel: str, operator: Conv2d, blocking: Blocking, stored: StoredRows) -> Implementation:
    """The kernel of activations as the blocking's lanes read them."""
    finish = Finish(program=operator.finish)
    batch, height, columns, depth = operator.inputs[0].shape
    channels = operator.output.shape[3]
    if _is_flat(operator, stored):  # rows lie behind each other: one long row of pixels
        begin, end = times("row_begin", columns), times("row_end", columns)
        lines = over_rows(begin, end, (depth, channels), finish, blocking, multiple=columns, pitch=stored.pitch)
    else:
        starts = {"input": _input_row(operator, stored), "output": row_offset(operator, None, stored)}
        starts |= {f"input{i}": row_offset(operator, i, stored) for i in finish.residuals()}
        lines = over_rows(0, columns, (depth, channels), finish, blocking, starts, multiple=columns, pitch=stored.pitch)
        names = [f"const int32_t output_columns = {columns};"]
        lines = [*names, "for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
        if batch > 1:
            lines = [f"for (int32_t n = 0; n < {batch}; ++n) {{", block(lines), "}"]
    body = "\n".join(lines)
    function = CFunction(
        parameters=product_parameters(finish, blocking),
        body=body,
        helpers=finish.helper(*lanes_finished(channels, finish, blocking)),
        includes=tile_headers(channels, blocking),
    )
    return Implementation(
        kernel=kernel,
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants()),
        scratch_bytes=widened_bytes(depth, blocking),
        macs=operator.output.num_elements * depth,
        instructions=instructions(batch * height * columns, (depth, channels), finish, blocking),
        passes=Passes.of_product(
            operator.output.num_elements * depth,
            operator.inputs[0].num_elements,
            batch * height * columns,
            pixels=blocking.pixels,
            channels=blocking.width,
        ),
        accumulation="bias, then c ascending",
        spatial=replace(
            spatial(operator.window, operator.inputs[0], operator.output, len(finish.residuals())),
            # A group of pixels may span rows; those that are widened have all been read before one is written.
            behind=0 if blocking.lanes.half else -(-(blocking.pixels - 1) // columns),
        ),
        pitched=True,
        row_pitched=True,
    )


def _is_flat(operator: Conv2d, stored: StoredRows) -> bool:
    kept = [stored.output, *(stored.input(index) for index in range(len(operator.inputs)))]
    return operator.output.shape[0] == 1 and not stored.row_pitch and all(rows is None for rows in kept)


def _input_row(operator: Conv2d, stored: StoredRows) -> str:
    batch, height = operator.inputs[0].shape[:2]
    return scaled(Compound(f"n * {height} + h") if batch > 1 else slot("h", stored.input(0)), "output_columns")


KERNEL = Kernel(
    name="pointwise_f32", operator=Conv2d, implement=implement, constraints=(is_pointwise,), blocks=product_blocks
)
