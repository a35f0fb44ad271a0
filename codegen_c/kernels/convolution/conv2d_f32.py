"""conv2d, float32: any stride, padding, dilation and groups; blocks of output pixels by output channels.

float32[N, H, W, C], float32[K, R, S, C / groups] -> float32[N, P, Q, K]. Each element starts at its bias and
adds products in the order r, s, c ascending; products outside the input are left out.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import implementation, pixel_offsets, place, residual_place
from codegen_c.kernels.convolution.window_cost import WindowCost
from codegen_c.kernels.shared.blocking import (
    RUN_CALLED,
    RUN_INSTRUCTIONS,
    Blocking,
    ChannelRange,
    channel_ranges,
    pack,
    padded,
    product_blocks,
    tile_headers,
    weight_blocking,
)
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import SCALAR
from codegen_c.kernels.shared.layer import LayerText, image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.tile import Accumulators, over_channels
from codegen_c.operators.kinds import Conv2d

LAYER = "tvm_ext_conv2d_f32_layer"


def implement(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), _blocking(operator, target)
    return implementation(
        KERNEL.name,
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
    """The processor's own; with groups, blocks that never hold channels of two groups."""
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
    """True where all taps of a kernel row are adjacent in the input, as they are in the weights."""
    return operator.window.dilation[1] == 1 and operator.groups == 1


def _cost(operator: Conv2d, blocking: Blocking, pixels: int) -> WindowCost:
    """Modelled, of a group of pixels: set-up of each block, start of each run, loads, FMAs and the loop."""
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
    """The layer's shapes as tvm_ext_conv2d_f32x1.h takes them.

    Functions of their own for groups of pixels see the shapes beside them alone, so that these hold the ring buffers.
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
    """All channels of `pixels` output pixels from (h, w) on."""
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
    """One block of output channels, from k on."""
    sums = Accumulators(segment=segment, pixels=pixels, in_array=True)
    n = "n" if operator.output.shape[0] > 1 else "0"
    arguments = f"{layer}, sums, input, weights, bias, {n}, at, k, {pixels}, {segment.vectors}"
    return [
        sums.declaration(),
        f"tvm_ext_conv2d_f32x{segment.lanes.count}({arguments});",
        *sums.store(finish, place, residual_place),
    ]


KERNEL = Kernel(name="conv2d_f32", operator=Conv2d, implement=implement, blocks=product_blocks)
