"""Kernels for float32 conv2d: any window, and 1x1, in blocks of output pixels by channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codegen_c.c_text.text import Compound, Value, block, loop, scaled, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.shared.blocking import (
    RUN_CALLED,
    RUN_INSTRUCTIONS,
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    lanes_finished,
    over_channels,
    pack,
    padded,
    pixel_place,
    product_blocks,
    tile_headers,
    weight_blocking,
)
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.layer import NO_LAYER, LayerText, image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.narrow_weights import FLOAT32, WeightType
from codegen_c.kernels.shared.product_f32 import WIDENED, instructions, over_rows, widened_bytes
from codegen_c.kernels.shared.window import (
    ROW_PARAMETERS,
    over,
    slot,
    spatial,
    taps,
    taps_inside,
)
from codegen_c.operators.kinds import Conv2d, Pool2d, Window

# Modelled instructions of float kernels that slide a window over an image: only taps inside the image cost anything.
#
# Pixels whose windows reach outside the image are computed one by one, over the rows and columns inside; a row of
# groups of pixels reads all columns, and the rows inside.

CALL_INSTRUCTIONS = 30
"""Instructions of a call: saving registers, reading arguments and loading addresses of constants (Cortex-M4, GCC
12)."""
ROW_INSTRUCTIONS = 16
"""Instructions of an output row: addresses in the output and in the input, which are then incremented."""


@dataclass(frozen=True, kw_only=True)
class WindowCost:
    """Modelled instructions of a group of pixels, with all their channels.

    whole: once. row: for each row of the window inside the input, including the columns if there are several pixels.
    tap: for each column of such a row inside the input, if there is a single pixel.
    """

    whole: int
    row: int
    tap: int = 0

    def of_taps(self, rows: int, taps: int) -> int:
        """Return the instructions of a group whose windows have these rows, and these taps in all, inside the input."""
        return self.whole + rows * self.row + taps * self.tap


def best_pixels(inner: int, most: int, window: Window, cost: Callable[[int], WindowCost]) -> int:
    """Return the number of pixels per group with the least cost of a row's inner columns.

    cost(p): cost of a group of p pixels.
    """
    rows, taps = window.kernel[0], window.kernel[0] * window.kernel[1]

    def of(pixels: int) -> int:
        return cost(pixels).of_taps(rows, taps)

    return min(range(1, max(1, min(inner, most)) + 1), key=lambda p: inner // p * of(p) + inner % p * of(1))


def image_instructions(
    operator: Conv2d | Pool2d, groups: int, begin: int, pixels: int, cost: Callable[[int], WindowCost]
) -> int:
    """Return the instructions of all images:

    each row has groups of pixels from column `begin` on, and single pixels.
    """
    window, (images, rows, columns, _) = operator.window, operator.output.shape
    rows_inside = int(taps_inside(window, 0, operator.inputs[0].shape[1], rows).sum())
    columns_inside = taps_inside(window, 1, operator.inputs[0].shape[2], columns)
    alone = [*columns_inside[:begin], *columns_inside[begin + groups * pixels :]]
    group, one = cost(pixels), cost(1)
    image = groups * (rows * group.whole + rows_inside * group.row)
    image += len(alone) * (rows * one.whole + rows_inside * one.row) + int(sum(alone)) * rows_inside * one.tap
    return CALL_INSTRUCTIONS + images * (image + rows * ROW_INSTRUCTIONS)


# Shared parts of the float convolution kernels: reference, parameters, and the loops around their pixels.


def reference(operator: Conv2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    output, groups = operator.output.shape, operator.groups
    total = np.zeros((*output[:3], groups, output[3] // groups))
    weight = operator.weight.astype(np.float64).reshape(groups, output[3] // groups, *operator.weight.shape[1:])
    for r, s, x in taps(inputs[0], operator.window, (output[1], output[2]), 0.0):
        split = x.reshape(*x.shape[:3], groups, -1).astype(np.float64)
        total += np.einsum("nhwgc,gkc->nhwgk", split, weight[:, :, r, s], optimize=True)
    element = (total.reshape(output) + operator.bias).astype(np.float32)
    return [operator.finish.run(element, inputs)]


def parameters(
    finish: Finish,
    constants: Sequence[str] = ("weights", "bias"),
    *,
    weights: WeightType = FLOAT32,
    element: str = "float",
) -> tuple[Parameter, ...]:
    """Return the parameters: input, residuals, output, constants, channel constants, rows.

    weights: their type. element: type of activations.
    """
    types = {"weights": weights.ctype}
    return (
        Parameter(name="input", ctype=element, role="input"),
        *finish.input_parameters(element),
        Parameter(name="output", ctype=element, role="output"),
        *(Parameter(name=name, ctype=types.get(name, "float"), role="constant") for name in constants),
        *finish.constant_parameters(),
        *ROW_PARAMETERS,
    )


def product_parameters(finish: Finish, blocking: Blocking) -> tuple[Parameter, ...]:
    """Return the parameters of a product, which widens rows of float16 into scratch."""
    names = parameters(finish, weights=blocking.weights, element=blocking.lanes.element)
    return (*names, WIDENED) if blocking.lanes.half else names


def row_offset(operator: Conv2d | Pool2d, index: int | None, stored: StoredRows, row: str = "h") -> str:
    """Return the C expression of the first column of output row h, in pixels.

    index: a residual input; None: the output. `output_columns` must be defined before.
    """
    batch, height = operator.output.shape[:2]
    if index is None and stored.row_pitch:
        return times(slot(row, stored.output), stored.row_pitch // (stored.pitch or operator.output.shape[3]))
    kept = stored.output if index is None else stored.input(index)
    return scaled(Compound(f"n * {height} + {row}") if batch > 1 else slot(row, kept), "output_columns")


def pixel_offsets(operator: Conv2d | Pool2d, stored: StoredRows, finish: Finish) -> list[str]:
    """Return declarations of `pixel` (output) and `pixel1` … (residuals): first element of pixel (h, w) of image n."""
    channels, residuals = operator.output.shape[3], finish.residuals()
    lines = [f"const int32_t pitch = {stored.pitch or channels};"]
    if residuals or not stored.row_pitch:
        lines.insert(0, f"const int32_t output_columns = {operator.output.shape[2]};")
    lines += [f"const int32_t channels = {channels};"] if residuals else []
    names: list[tuple[str, int | None, str]] = [("pixel", None, "pitch")]
    names += [(f"pixel{i}", i, "channels") for i in residuals]
    for name, index, pitch in names:
        place = Compound(f"{row_offset(operator, index, stored)} + w")
        lines.append(f"const int32_t {name} = {scaled(place, pitch)};")
    return lines


def input_row(operator: Conv2d | Pool2d, stored: StoredRows) -> str:
    """Return the C expression of the input row that tap r reads, of image n."""
    batch, height = operator.inputs[0].shape[:2]
    dilation = operator.window.dilation[0]
    row = Compound(f"top + r * {dilation}" if dilation > 1 else "top + r")
    return Compound(f"n * {height} + {row}") if batch > 1 else slot(row, stored.input(0))


def input_sizes(operator: Conv2d | Pool2d) -> list[str]:
    """Return definitions of the names in `input_place`."""
    _, _, columns, channels = operator.inputs[0].shape
    return [f"const int32_t input_columns = {columns};", f"const int32_t input_channels = {channels};"]


def input_place(operator: Conv2d | Pool2d, stored: StoredRows, column: str) -> str:
    """Return the C expression of the first element of a column in the input row that tap r reads."""
    pixel = Compound(f"{scaled(input_row(operator, stored), 'input_columns')} + {column}")
    return scaled(pixel, "input_channels")


def place(p: int) -> str:
    """Return the C expression of pixel p's first element in the output, after `pixel_offsets`."""
    return pixel_place("pixel", p, "pitch")


def residual_place(i: int, p: int) -> str:
    """Return the C expression of pixel p's first element in residual input i."""
    return pixel_place(f"pixel{i}", p, "channels")


def inner_columns(window: Window, input_columns: int, output_columns: int) -> tuple[int, int]:
    """Return the output columns [begin, end) whose whole window lies inside the input."""
    stride, left = window.strides[1], window.padding[1]
    reach = (window.kernel[1] - 1) * window.dilation[1]
    begin = min(-(-left // stride), output_columns)
    last = (input_columns - 1 - reach + left) // stride
    return begin, max(begin, min(last + 1, output_columns))


def implementation(
    kernel: str,
    operator: Conv2d,
    blocking: Blocking,
    *,
    weights: np.ndarray,
    bias: np.ndarray,
    cost: Callable[[int], WindowCost],
    inputs_a_product: Callable[[int], float],
    body: Callable[[int, str], list[str]],
    accumulation: str,
    layer: Callable[[int], LayerText] = lambda _: NO_LAYER,
) -> Implementation:
    """Return a convolution computed by groups of pixels, whose size has the least cost.

    weights, bias: packed. cost(p): modelled, of p pixels. inputs_a_product(p): input elements loaded for each product.
    body(p, address): their text, as in `by_pixels`. layer(p): shapes, for groups of p pixels.
    """
    finish, output = Finish(program=operator.finish), operator.output.shape
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], output[2])
    pixels = best_pixels(end - begin, blocking.pixels, operator.window, cost)
    groups = (end - begin) // pixels if pixels > 1 else 0
    alone = output[2] - groups * pixels
    macs = operator.output.num_elements * operator.weight[0].size
    shapes = layer(pixels)
    function = by_pixels(operator, finish, pixels, lambda p: body(p, shapes.address), blocking, layer=shapes)
    return Implementation(
        kernel=kernel,
        function=function,
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", weights), ("bias", bias), *finish.constants()),
        macs=macs,
        instructions=image_instructions(operator, groups, begin, pixels, cost),
        passes=Passes.of_product(
            macs,
            operator.inputs[0].num_elements,
            output[0] * output[1] * output[2],
            pixels=output[2] / (groups + alone),
            channels=1 / inputs_a_product(pixels),
        ),
        accumulation=accumulation,
        spatial=spatial(
            operator.window, operator.inputs[0], operator.output, len(finish.residuals()), columns_at_once=pixels
        ),
        pitched=True,
        row_pitched=True,
    )


def by_pixels(
    operator: Conv2d | Pool2d,
    finish: Finish,
    pixels: int,
    body: Callable[[int], list[str]],
    blocking: Blocking | None = None,
    *,
    constants: Sequence[str] = ("weights", "bias"),
    layer: LayerText = NO_LAYER,
) -> CFunction:
    """Return a kernel that computes single columns at the borders and `pixels` columns at a time between them.

    body(p): text of p pixels from (h, w) on; for p = 1 it must skip taps outside the input, which larger groups do not
    have. blocking: of the channels; None for one channel at a time.
    """
    output = operator.output.shape
    lanes = blocking.lanes if blocking else SCALAR
    weights = blocking.weights if blocking else FLOAT32
    names = parameters(finish, constants, weights=weights, element=lanes.element)
    begin, end = inner_columns(operator.window, operator.inputs[0].shape[2], output[2])
    groups: list[str] = []
    if pixels == 1:
        columns = over("w", 0, output[2], body(1))
    else:
        position = ", ".join([*(["int32_t n"] if output[0] > 1 else []), "int32_t h", "int32_t w"])
        shared = [p for p in names if p.role != "row"]
        head = ", ".join([*(p.declaration() for p in shared), position])
        call = ", ".join([*(p.name for p in shared), position.replace("int32_t ", "")])
        num_inside = (end - begin) // pixels * pixels
        groups = [
            f"static inline void $_{name}({head})\n{{\n{block(body(count))}\n}}\n"
            for name, count in [("pixel", 1), (f"{pixels}_pixels", pixels)]
            if count > 1 or num_inside < output[2]
        ]
        parts = [(0, begin, 1, "pixel"), (begin, begin + num_inside, pixels, f"{pixels}_pixels")]
        parts.append((begin + num_inside, output[2], 1, "pixel"))
        columns: list[str] = []
        for first, last, step, name in parts:
            if last - first == step:
                columns.append(f"$_{name}({call.removesuffix('w')}{first});")
            elif first < last:
                columns += loop("w", last, [f"$_{name}({call});"], begin=first, step=step)
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(columns), "}"]
    if output[0] > 1:
        lines = [f"for (int32_t n = 0; n < {output[0]}; ++n) {{", block(lines), "}"]
    finished = lanes_finished(output[3], finish, blocking) if blocking else [SCALAR]
    text = "\n".join(helper for helper in [layer.definition, finish.helper(*finished), *groups] if helper)
    includes = (*lanes.includes, *layer.includes)
    return CFunction(parameters=names, body="\n".join([*layer.statements, *lines]), helpers=text, includes=includes)


# conv2d, float32: any stride, padding, dilation and groups; blocks of output pixels by output channels.
#
# float32[N, H, W, C], float32[K, R, S, C / groups] -> float32[N, P, Q, K]. Each element starts at its bias and adds
# products in the order r, s, c ascending; products outside the input are skipped.

LAYER = "tvm_ext_conv2d_f32_layer"


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), _blocking(operator, target)
    return implementation(
        CONV2D_F32.name,
        operator,
        blocking,
        weights=pack(operator.weight, blocking),
        bias=padded(operator.bias, blocking),
        cost=lambda pixels: _cost(operator, blocking, pixels),
        inputs_a_product=lambda _: 1 / blocking.width,
        body=lambda pixels, layer: _pixels(operator, stored, finish, blocking, pixels, layer),
        accumulation="bias, then r, s, c ascending",
        layer=lambda pixels: _layer(operator, stored, blocking, pixels),
    )


def _blocking(operator: Conv2d, target: Target) -> Blocking:
    """Return the processor's blocking; with groups, blocks never contain channels of two groups."""
    blocking = weight_blocking(operator.weight, target)
    if operator.groups == 1:
        return blocking
    blocking, per_group = replace(blocking, masks=False), operator.output.shape[3] // operator.groups
    if per_group % blocking.width == 0:
        return blocking
    if per_group % blocking.lanes.count == 0:
        return replace(blocking, vectors=1)
    return replace(blocking, lanes=SCALAR, vectors=1)


def _is_one_run(operator: Conv2d) -> bool:
    """Return True if all taps of a kernel row are adjacent in the input, as they are in the weights."""
    return operator.window.dilation[1] == 1 and operator.groups == 1


def _cost(operator: Conv2d, blocking: Blocking, pixels: int) -> WindowCost:
    """Return the modelled cost of a group of pixels:

    set-up of each block, start of each run, loads, FMAs and the loop.
    """
    columns, depth = operator.weight.shape[2:]
    step = operator.window.strides[1] * operator.inputs[0].shape[3]
    whole, row, tap = 14, 0, 0
    for segment in channel_ranges(operator.output.shape[3], blocking):
        blocks = segment.num_blocks
        whole += blocks * (8 + pixels * segment.vectors * (3 + operator.finish.num_instructions))
        if not _is_one_run(operator):
            each = blocks * blocking.run_instructions(segment, pixels, depth, step)
            row, tap = (row, tap + each) if pixels == 1 else (row + columns * each, tap)
        elif pixels == 1:
            row += blocks * (RUN_CALLED if blocking.loads_several else RUN_INSTRUCTIONS + 2)
            tap += blocks * int(depth * blocking.element_instructions(segment, 1))
        else:
            row += blocks * blocking.run_instructions(segment, pixels, columns * depth, step)
    return WindowCost(whole=whole, row=row, tap=tap)


def _layer(operator: Conv2d, stored: StoredRows, blocking: Blocking, pixels: int) -> LayerText:
    """Return the layer's shapes for tvm_ext_conv2d_f32x1.h.

    Functions for groups of pixels see only the shapes, so the shapes include the ring buffers.
    """
    source, target = (None, None) if pixels == 1 else (stored.input(0), stored.output)
    members: dict[str, Value] = {
        "input": image(operator.inputs[0], kept=source),
        "output": image(operator.output, stored=stored, kept=target),
        "window": sliding_window(operator.window),
        "groups": operator.groups,
    }
    if blocking.weights.is_narrow:
        members |= {"weights": blocking.weights.constant}
    statements, address = with_rings(LAYER, stored) if pixels == 1 else ([], "&$_layer")
    return LayerText(
        definition=shapes(LAYER, members),
        statements=statements,
        address=address,
        includes=(
            "tvm_ext_conv2d_f32.h",
            *tile_headers(operator.output.shape[3], blocking, "conv2d", "narrow", "tile_narrow"),
            "tvm_ext_narrow.h",
        ),
    )


def _pixels(
    operator: Conv2d, stored: StoredRows, finish: Finish, blocking: Blocking, pixels: int, layer: str
) -> list[str]:
    """Return the code of all channels of `pixels` output pixels from (h, w) on."""
    return [
        *pixel_offsets(operator, stored, finish),
        f"const tvm_ext_place at = tvm_ext_conv2d_f32_place({layer}, h, w);",
        *over_channels(
            operator.output.shape[3], blocking, lambda segment: _tile(operator, stored, finish, segment, pixels, layer)
        ),
    ]


def _tile(
    operator: Conv2d, stored: StoredRows, finish: Finish, segment: ChannelRange, pixels: int, layer: str
) -> list[str]:
    """Return the code of one block of output channels, from k on."""
    sums = Accumulators(segment=segment, pixels=pixels, in_array=True)
    n = "n" if operator.output.shape[0] > 1 else "0"
    arguments = f"{layer}, sums, input, weights, bias, {n}, at, k, {pixels}, {segment.vectors}"
    return [
        sums.declaration(),
        f"tvm_ext_conv2d_f32x{segment.lanes.count}({arguments});",
        *sums.store(finish, place, residual_place),
    ]


CONV2D_F32 = Kernel(
    name="conv2d_f32",
    title="Convolution in float32 with any window, in blocks of output pixels by channels",
    operator=Conv2d,
    implement=implement,
    blocks=product_blocks,
)


# 1x1 conv2d, float32: a matrix product of pixels by channels, in blocks of both.
#
# float32[N, H, W, C], float32[K, 1, 1, C] -> float32[N, H, W, K]. Each element starts at its bias and adds
# products with c ascending.


def is_pointwise(operator: Conv2d, target: Target) -> bool:
    """the window must be 1x1, without stride, padding or groups"""
    return operator.window.is_pointwise and operator.groups == 1


def pointwise_f32_implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    return pointwise_f32_by_pixels(POINTWISE_F32.name, operator, weight_blocking(operator.weight, target), stored)


def pointwise_f32_by_pixels(kernel: str, operator: Conv2d, blocking: Blocking, stored: StoredRows) -> Implementation:
    """Return the kernel for activations of the element type of the blocking's lanes."""
    finish = Finish(program=operator.finish)
    batch, height, columns, depth = operator.inputs[0].shape
    channels = operator.output.shape[3]
    if _is_flat(operator, stored):  # rows are contiguous: one long row of pixels
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
            # A group of pixels may span rows; float16 pixels are all widened (read) before any of the group is written.
            rows_still_read=0 if blocking.lanes.half else -(-(blocking.pixels - 1) // columns),
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


POINTWISE_F32 = Kernel(
    name="pointwise_f32",
    title="1x1 convolution in float32, in blocks of output pixels by channels",
    operator=Conv2d,
    implement=pointwise_f32_implement,
    constraints=(is_pointwise,),
    blocks=product_blocks,
)


KERNELS = (CONV2D_F32, POINTWISE_F32)
