"""Kernel for products of two float activations, in blocks of vectors by columns: attention scores and sums of values.

float32 tensors of any layout that `MatmulShape` describes; sums with c ascending. If a processor has float vectors and
columns are not adjacent, blocks of columns are packed in scratch, once for all vectors of a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import block, loop, times
from codegen_c.kernels.contract import CFunction, Implementation, Kept, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.matmul.heads import head_by_head, sums_of
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    Blocking,
    ChannelRange,
    channel_ranges,
    lanes_finished,
    native_blocking,
    over_channels,
    pixel_place,
    product_blocks,
    tile_headers,
)
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import Matmul

SCRATCH = Parameter(name="scratch", ctype="uint8_t", role="scratch")
PACK_INSTRUCTIONS = 4
FLOATS = 4
"""Vectors, and columns, of a tile of single floats."""


def reference(operator: Matmul, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    sums = sums_of(operator.shape, inputs[0].astype(np.float64), inputs[1].astype(np.float64))
    return [operator.finish.run(sums.astype(np.float32).reshape(operator.output.shape), inputs)]


def reads_results_alike(operator: Matmul, target: Target) -> bool:
    """tensors combined with its results must have the result's shape, and must not be its second operand"""
    residuals = Finish(program=operator.finish).residuals()
    return 1 not in residuals and all(operator.inputs[i].shape == operator.output.shape for i in residuals)


def implement(operator: Matmul, target: Target, stored: StoredRows) -> Implementation:
    shape, finish = operator.shape, Finish(program=operator.finish)
    blocking = _blocking(finish, target)
    packed = _packed_floats(operator, blocking)
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="float", role="input"),
                Parameter(name="second", ctype="float", role="input"),
                *finish.input_parameters(),
                Parameter(name="output", ctype="float", role="output"),
                *finish.constant_parameters(),
                *([SCRATCH] if packed else []),
                *ROW_PARAMETERS,
            ),
            body="\n".join(_heads(operator, finish, blocking, stored)),
            helpers=finish.helper(*lanes_finished(shape.columns, finish, blocking)),
            includes=tile_headers(shape.columns, blocking, "matmul"),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants(),
        scratch_bytes=4 * packed,
        macs=operator.output.num_elements * shape.depth,
        instructions=_instructions(operator, finish, blocking, stored),
        accumulation="c ascending",
        spatial=head_by_head(shape, len(operator.inputs) - 2),
    )


def _blocking(finish: Finish, target: Target) -> Blocking:
    """Return the processor's blocking; single floats if the epilogue has no vector form."""
    native = replace(native_blocking(target), masks=False)
    return native if finish.fits(native.lanes) else replace(native, lanes=SCALAR, vectors=FLOATS, pixels=FLOATS)


def _is_packed(operator: Matmul, segment: ChannelRange) -> bool:
    """Return True if the columns of a vector must be packed side by side."""
    return segment.lanes.count > 1 and operator.shape.steps[1] != 1


def _packed_floats(operator: Matmul, blocking: Blocking) -> int:
    """Return the floats of the largest packed block; 0 for none."""
    segments = channel_ranges(operator.shape.columns, blocking)
    return max((s.width * operator.shape.depth for s in segments if _is_packed(operator, s)), default=0)


def _heads(operator: Matmul, finish: Finish, blocking: Blocking, stored: StoredRows) -> list[str]:
    """Return loops over heads, blocks of columns, and vectors."""
    shape = operator.shape
    inside, (head_step, column_step, element_step) = shape.heads_inside, shape.steps
    begin, end = (0, shape.heads) if inside else ("row_begin", "row_end")
    lines = [f"const float *matrix = &second[{times('head', head_step)}];"] if head_step else []
    matrix = "matrix" if head_step else "second"

    def tile(segment: ChannelRange) -> list[str]:
        first = f"&{matrix}[{times('k', column_step)}]"
        if not _is_packed(operator, segment):
            return _vectors(operator, finish, blocking, segment, stored, (first, column_step, element_step))
        call = f"tvm_ext_matmul_f32x{segment.lanes.count}_pack"
        pack = f"{call}(columns, {first}, {column_step}, {element_step}, {shape.depth}, {segment.width});"
        return [pack, *_vectors(operator, finish, blocking, segment, stored, ("columns", 1, segment.width))]

    lines += over_channels(shape.columns, blocking, tile)
    block_of_floats = ["float *const columns = (float *)(void *)scratch;"] if _packed_floats(operator, blocking) else []
    return [*block_of_floats, *loop("head", end, lines, begin=begin)]


def _vectors(
    operator: Matmul, finish: Finish, blocking: Blocking, segment: ChannelRange, stored: StoredRows,
    matrix: tuple[str, int, int],
) -> list[str]:  # fmt: skip
    """Return the code of all vectors of a head by one block of columns.

    matrix: the block, steps of columns and elements.
    """
    shape = operator.shape
    inside = shape.heads_inside
    begin, end = ("row_begin", "row_end") if inside else (0, shape.rows)
    rings = _rings(operator, stored)
    pixels = _pixels(operator, blocking, stored)

    def vector(count: int) -> list[str]:
        return _tile(operator, finish, segment, stored, matrix, count)

    if pixels == 1:
        return loop("m", end, vector(1), begin=begin)
    if rings:
        return _blocks_in_rings(rings, pixels, vector)
    if inside:
        return [
            f"const int32_t whole = row_end - (row_end - row_begin) % {pixels};",
            *loop("m", "whole", vector(pixels), begin=begin, step=pixels),
            *loop("m", end, vector(1), begin="whole"),
        ]
    whole = shape.rows // pixels * pixels
    return [
        *(loop("m", whole, vector(pixels), step=pixels) if whole else []),
        *(loop("m", shape.rows, vector(1), begin=whole) if whole < shape.rows else []),
    ]


def _rings(operator: Matmul, stored: StoredRows) -> list[Kept]:
    """Return the distinct rings of vectors; none if all rows are stored, or if rows are those of heads."""
    if not operator.shape.heads_inside:
        return []
    others = [index for index in range(len(operator.inputs)) if index != 1]  # all rows of the second input are stored
    kept = (stored.output, *map(stored.input, others))
    return list(dict.fromkeys(one for one in kept if one))


def _pixels(operator: Matmul, blocking: Blocking, stored: StoredRows) -> int:
    """Return the vectors of a tile: the processor's number, or one if a ring holds fewer."""
    fits = all(ring.stored >= blocking.pixels for ring in _rings(operator, stored))
    return blocking.pixels if fits else 1


def _blocks_in_rings(rings: Sequence[Kept], pixels: int, vector: Callable[[int], list[str]]) -> list[str]:
    """Return tiles of vectors that are contiguous in each ring, and single vectors where a ring wraps."""
    together = [f"{slot('m', ring)} + {pixels} <= {ring.stored_text}" for ring in rings]
    return [
        "int32_t m = row_begin;",
        "while (m < row_end) {",
        block([f"if (m + {pixels} <= row_end && {' && '.join(together)}) {{",
               block([*vector(pixels), f"m += {pixels};"]), "} else {", block([*vector(1), "m += 1;"]), "}"]),
        "}",
    ]  # fmt: skip


def _tile(
    operator: Matmul, finish: Finish, segment: ChannelRange, stored: StoredRows, matrix: tuple[str, int, int],
    pixels: int,
) -> list[str]:  # fmt: skip
    """Return the code of `pixels` vectors from m on by one block of columns, from k on."""
    shape = operator.shape
    across = shape.heads if shape.heads_inside else 1
    depth_step, pitch = across * shape.depth, across * shape.columns
    place, column_step, element_step = matrix
    sums = Accumulators(segment=segment, pixels=pixels, in_array=True)
    prefix = f"tvm_ext_matmul_f32x{segment.lanes.count}"
    names = {"row": stored.output, **{f"row{i}": stored.input(i) for i in finish.residuals()}}

    def first(kept: object, extent: int) -> str:
        """Return the index of a tensor's first element of this head and vector m."""
        outer, inner = ("m", "head") if shape.heads_inside else ("head", "m")
        row = slot(outer, kept)  # type: ignore[arg-type]
        width = (shape.heads if shape.heads_inside else shape.rows) * extent
        return f"{times(row, width)} + {times(inner, extent)}"

    return [
        f"const float *x = &input[{first(stored.input(0), shape.depth)}];",
        *(f"const int32_t {name} = {first(kept, shape.columns)};" for name, kept in names.items()),
        sums.declaration(),
        f"static const float zeros[{segment.width}] = {{0.0f}};",
        f"tvm_ext_tile_f32x{segment.lanes.count}_start(sums, zeros, {pixels}, {segment.vectors});",
        f"{prefix}_add(sums, x, {depth_step}, {place}, {column_step}, {element_step}, {shape.depth}, {pixels}, "
        f"{segment.vectors});",
        *sums.store(
            finish, lambda p: pixel_place("row", p, str(pitch)), lambda i, p: pixel_place(f"row{i}", p, str(pitch))
        ),
    ]


def _instructions(operator: Matmul, finish: Finish, blocking: Blocking, stored: StoredRows) -> int:
    """Return the modelled instructions:

    blocks packed in each call, and of each tile its start, loads, FMAs and results.
    """
    shape = operator.shape
    at_once = min(stored.at_once or shape.rows, shape.rows) if shape.heads_inside else shape.rows
    calls = -(-shape.rows // at_once)
    pixels = _pixels(operator, blocking, stored)
    total = 0
    for segment in channel_ranges(shape.columns, blocking):
        blocks = segment.num_blocks

        def tile(pixels: int, segment: ChannelRange = segment) -> int:
            sums = pixels * segment.vectors
            run = shape.depth * (pixels + segment.vectors + sums + 3)
            return 14 + run + sums * (3 + finish.program.num_instructions)

        whole, rest = divmod(at_once, pixels)
        packed = shape.depth * segment.width * PACK_INSTRUCTIONS if _is_packed(operator, segment) else 0
        total += calls * blocks * (packed + whole * tile(pixels) + rest * tile(1))
    return shape.heads * total


KERNEL = Kernel(
    name="matmul_f32",
    title="Product of two float32 activations, in blocks of vectors by columns",
    operator=Matmul,
    implement=implement,
    constraints=(reads_results_alike,),
    blocks=product_blocks,
)
