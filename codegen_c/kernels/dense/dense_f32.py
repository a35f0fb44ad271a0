"""Kernel for float32 dense layers: a matrix product with constant weights, in blocks of rows by channels.

float32[..., C], float32[K, C] -> float32[..., K]. Each element starts at its bias and adds products with c ascending.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import block, times
from codegen_c.kernels.contract import Accumulating, CFunction, Implementation, Kernel, Passes, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import parameters, product_parameters
from codegen_c.kernels.dense.dense_rows import in_rows, num_calls, over_parts, row_counts, runs_of
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    Blocking,
    ChannelRange,
    lanes_finished,
    over_channels,
    pack,
    product_blocks,
    tile_headers,
    weight_blocking,
)
from codegen_c.kernels.shared.lanes import Finish
from codegen_c.kernels.shared.product_f32 import instructions, over_rows, widened_bytes
from codegen_c.kernels.shared.vector_rows import Rows
from codegen_c.kernels.shared.window import accumulated
from codegen_c.operators.kinds import Dense
from codegen_c.operators.scalar import IDENTITY

PART_INSTRUCTIONS = 4
"""Instructions per sum in each call that adds to it: loading and storing it."""


def reference(operator: Dense, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    total = inputs[0].astype(np.float64) @ operator.weight.T.astype(np.float64) + operator.bias
    return [operator.finish.run(total.astype(np.float32).reshape(operator.output.shape), inputs)]


def implement(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    blocking = weight_blocking(operator.weight, target)
    whole = by_vectors(KERNEL.name, operator, blocking)
    return replace(whole, accumulating=_accumulating(operator, _blocking(operator, blocking)))


def by_vectors(kernel: str, operator: Dense, native: Blocking) -> Implementation:
    """Return the kernel for activations of the element type of the blocking's lanes, whole or by rows."""
    blocking, (channels, depth) = _blocking(operator, native), operator.weight.shape

    def row(part: Dense, rows: Rows) -> Implementation:
        narrow = _blocking(part, native)
        weights = np.concatenate([pack(run, narrow) for run in runs_of(operator.weight, rows)])
        _, *others = whole.constants
        return replace(
            whole,
            function=_function(part, narrow),
            constants=(("weights", weights), *others),
            scratch_bytes=widened_bytes(depth, narrow),
            instructions=_instructions(part, narrow),
        )

    num_rows = operator.output.num_elements // channels
    whole = Implementation(
        kernel=kernel,
        function=_function(operator, blocking),
        reference=lambda inputs: reference(operator, inputs),
        constants=_constants(operator, blocking),
        scratch_bytes=widened_bytes(depth, blocking),
        macs=operator.output.num_elements * depth,
        instructions=_instructions(operator, blocking),
        passes=Passes.of_product(
            operator.output.num_elements * depth,
            operator.inputs[0].num_elements,
            num_rows,
            pixels=blocking.pixels,
            channels=blocking.width,
        ),
        accumulation="bias, then c ascending",
    )
    return replace(whole, in_rows=in_rows(operator, row))


def _blocking(operator: Dense, blocking: Blocking) -> Blocking:
    """Return a blocking that uses the registers of missing rows for more channels."""
    num_rows = operator.output.num_elements // operator.weight.shape[0]
    if num_rows >= blocking.pixels:
        return blocking
    if blocking.lanes.half:
        return replace(blocking, pixels=num_rows)
    vectors = blocking.vectors * (4 if blocking.lanes.count > 1 else 3)
    return replace(blocking, pixels=1, vectors=vectors if num_rows == 1 else blocking.vectors)


def _constants(operator: Dense, blocking: Blocking) -> tuple[tuple[str, np.ndarray], ...]:
    finish = Finish(program=operator.finish)
    return (("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants())


def _instructions(operator: Dense, blocking: Blocking) -> int:
    channels, depth = operator.weight.shape
    num_rows = operator.output.num_elements // channels
    return instructions(num_rows, (depth, channels), Finish(program=operator.finish), blocking)


def _function(operator: Dense, blocking: Blocking) -> CFunction:
    finish, (channels, depth) = Finish(program=operator.finish), operator.weight.shape
    num_rows = operator.output.num_elements // channels
    body = "\n".join(over_rows(0, num_rows, (depth, channels), finish, blocking, multiple=num_rows))
    return CFunction(
        parameters=tuple(p for p in product_parameters(finish, blocking) if p.role != "row"),
        body=body,
        helpers=finish.helper(*lanes_finished(channels, finish, blocking)),
        includes=tile_headers(channels, blocking),
    )


def _accumulating(operator: Dense, blocking: Blocking) -> Accumulating | None:
    """Return a layer of one vector that takes its elements in parts; None for other layers."""
    counts = row_counts(operator)
    if not counts:
        return None
    return Accumulating(row_counts=counts, implement=lambda count, stored: _in_parts(operator, blocking, count, stored))


def _in_parts(operator: Dense, blocking: Blocking, count: int, stored: StoredRows) -> Implementation:
    """Return sums of `count` equal parts of the input, kept in the output; the last call finishes them."""
    finish, (channels, depth) = Finish(program=operator.finish), operator.weight.shape
    part = depth // count

    def tile(segment: ChannelRange) -> list[str]:
        sums = Accumulators(segment=segment, pixels=1, in_array=True)
        products = [sums.add("x", "0", "f", "part"), f"f += {times('part', segment.width)};"]

        def store(finish: Finish) -> str:
            return block(sums.store(finish, lambda p: "", lambda i, p: ""))

        return [
            f"const {segment.weights.ctype} *f = &weights[k * depth + row_begin * {times('part', segment.width)}];",
            *sums.begin("start"),
            *over_parts(count, depth, "float", stored, products),
            f"if (row_end < {count}) {{", store(Finish(program=IDENTITY)), "} else {", store(finish), "}",
        ]  # fmt: skip

    start = "const float *start = row_begin > 0 ? output : bias;"
    names = [f"const int32_t depth = {depth};", f"const int32_t part = {part};"]
    body = "\n".join([*names, start, *over_channels(channels, blocking, tile)])
    return Implementation(
        kernel=f"{KERNEL.name}_in_parts",
        function=replace(
            _function(operator, blocking),
            parameters=parameters(finish, weights=blocking.weights),
            body=body,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=_constants(operator, blocking),
        macs=operator.weight.size,
        instructions=_instructions(operator, blocking) + num_calls(count, stored) * channels * PART_INSTRUCTIONS,
        accumulation="bias, then c ascending",
        spatial=accumulated(count),
    )


KERNEL = Kernel(
    name="dense_f32",
    title="Dense layer in float32, in blocks of rows by channels",
    operator=Dense,
    implement=implement,
    blocks=product_blocks,
)
