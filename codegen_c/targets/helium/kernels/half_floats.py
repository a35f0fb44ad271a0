"""Kernels for float16 with Helium: casts, dense, depthwise and 1x1 layers, softmax, element-wise chains."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, loop
from codegen_c.kernels.contract import Array, CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution.conv_f32 import is_pointwise, pointwise_f32_by_pixels
from codegen_c.kernels.convolution.depthwise_f32 import by_channels, depthwise_blocking, is_depthwise
from codegen_c.kernels.dense.dense_f32 import by_vectors
from codegen_c.kernels.elementwise.elementwise_f32 import broadcasts_simply, reads_inputs_only
from codegen_c.kernels.elementwise.elementwise_f32 import reference as elementwise_f16_reference
from codegen_c.kernels.shared.blocking import Blocking
from codegen_c.kernels.shared.lanes import Finish, Lanes
from codegen_c.kernels.shared.narrow_weights import narrowest
from codegen_c.kernels.shared.product_f32 import WIDENED, WIDENED_FLOATS
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_by_row, row_elements, slot
from codegen_c.kernels.softmax import softmax_f32
from codegen_c.operators.kinds import (
    Conv2d,
    Dense,
    HalfCast,
    HalfConv2d,
    HalfDense,
    HalfElementwise,
    HalfSoftmax,
    Pool2d,
)
from codegen_c.operators.scalar import Operand

# Shared parts of the Helium kernels of float16: lanes, blocks, constraints, and references that round.
#
# Activations and weights are float16 in memory; they are widened when read, sums and intermediates are float32, and a
# result is rounded once, to the nearest. So results are those of onnxruntime, which computes a float16 operator in
# float32 and rounds the result, except for the order of sums.
#
# Helium has no products of float16 that add to float32. Sums in float16 would be wrong if one of them leaves float16's
# range (65,504), however small the last one is. They also lose accuracy: simulated on ResNet-8 as float16, 2.4 times
# the tolerance of verification, and in runs of 8 products that are added up in float32 0.6 times; on DS-CNN 0.5 and
# 0.35 times.

LANES = Lanes(count=4, half=True)
SINGLE = Lanes(count=1, half=True)
VECTORS, PIXELS = 2, 3
"""Accumulators of a product: 6 vectors, beside two of weights."""


def holds_weights(operator: Conv2d | Dense, target: Target) -> bool:
    """float16 must represent every weight exactly"""
    return narrowest(operator.weight).dtype == "float16"


def finishes_in_vectors(operator: Conv2d | Dense | Pool2d, target: Target) -> bool:
    """the epilogue must consist of sums, products and bounds"""
    return Finish(program=operator.finish).fits(LANES)


def product_blocking(operator: Conv2d | Dense, target: Target) -> Blocking:
    """Return the blocks of products with float16 weights."""
    pixels = PIXELS if target.optimize == "speed" else 1
    return Blocking(lanes=LANES, vectors=VECTORS, pixels=pixels, weights=narrowest(operator.weight))


def rounded(made: Implementation) -> Implementation:
    """Return a float32 kernel whose activations are float16: its reference widens inputs and rounds results."""
    in_rows, reference = made.in_rows, made.reference

    def halves(inputs: list[Array]) -> list[Array]:
        with np.errstate(over="ignore"):
            return [array.astype(np.float16) for array in reference([array.astype(np.float32) for array in inputs])]

    def by_rows(stored: StoredRows) -> Implementation:
        assert in_rows is not None, "there is such a kernel"
        return rounded(in_rows(stored))

    return replace(made, reference=halves, in_rows=by_rows if in_rows else None)


# Casts between float16 and float32 with Helium, four elements at a time.
#
# float16[...] -> float32[...], exactly; float32[...] -> float16[...], to the nearest, ties to even.

VECTOR_INSTRUCTIONS, ROW_INSTRUCTIONS = 4, 30


def reference(operator: HalfCast, inputs: list[Array]) -> list[Array]:
    with np.errstate(over="ignore"):
        return [inputs[0].astype(operator.output.dtype)]


def implement(operator: HalfCast, target: Target, stored: StoredRows) -> Implementation:
    output, source = operator.output, operator.inputs[0]
    rowwise = len(output.shape) == 4 and output.shape[0] == 1
    num_rows = output.shape[1] if rowwise else 1
    function = "tvm_ext_round_halves" if output.dtype == "float16" else "tvm_ext_widen_halves"
    lines = [f"const int32_t count = {output.num_elements};", f"{function}(output, input, count);"]
    if rowwise:
        places = f"&output[{slot('h', stored.output)} * count], &input[{slot('h', stored.input(0))} * count]"
        row = f"{function}({places}, count);"
        count = output.num_elements // num_rows
        loop = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(row), "}"]
        lines = [f"const int32_t count = {count};", *loop]
    return Implementation(
        kernel=CAST_F16.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *(ROW_PARAMETERS if rowwise else ()),
            ),
            body="\n".join(lines),
            includes=LANES.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        instructions=output.num_elements * VECTOR_INSTRUCTIONS // LANES.count + num_rows * ROW_INSTRUCTIONS,
        spatial=row_by_row(output.shape[1]) if rowwise else None,
    )


CAST_F16 = Kernel(name="cast_f16", title="Cast between float16 and float32", operator=HalfCast, implement=implement)


# Dense layer of float16 with Helium: the product of dense_f32, whose vectors are widened before their channels.
#
# float16[..., C], float16[K, C] -> float16[..., K]. Sums are float32: the bias, then products with c ascending; each
# result is rounded once.


def dense_f16_implement(operator: HalfDense, target: Target, stored: StoredRows) -> Implementation:
    return rounded(by_vectors(DENSE_F16.name, operator, product_blocking(operator, target)))


DENSE_F16 = Kernel(
    name="dense_f16",
    title="Dense layer in float16",
    operator=HalfDense,
    implement=dense_f16_implement,
    constraints=(holds_weights, finishes_in_vectors),
)


# Depthwise conv2d of float16 with Helium: the loops of depthwise_f32, four channels widened at a time.
#
# float16[N, H, W, C], float16[C, R, S, 1] -> float16[N, P, Q, C]. Sums are float32: the bias, then products in the
# order r, s ascending; each result is rounded once.


def depthwise_f16_implement(operator: HalfConv2d, target: Target, stored: StoredRows) -> Implementation:
    blocking = replace(depthwise_blocking(operator, target), lanes=LANES)
    return rounded(by_channels(DEPTHWISE_F16.name, operator, blocking, stored))


DEPTHWISE_F16 = Kernel(
    name="depthwise_f16",
    title="Depthwise convolution in float16",
    operator=HalfConv2d,
    implement=depthwise_f16_implement,
    constraints=(is_depthwise, holds_weights, finishes_in_vectors),
)


# 1x1 conv2d of float16 with Helium: the product of pointwise_f32, whose pixels are widened before their channels.
#
# float16[N, H, W, C], float16[K, 1, 1, C] -> float16[N, H, W, K]. Sums are float32: the bias, then products with c
# ascending; each result is rounded once. Eight channels of weights are widened for three pixels.


def pointwise_f16_implement(operator: HalfConv2d, target: Target, stored: StoredRows) -> Implementation:
    return rounded(pointwise_f32_by_pixels(POINTWISE_F16.name, operator, product_blocking(operator, target), stored))


POINTWISE_F16 = Kernel(
    name="pointwise_f16",
    title="1x1 convolution in float16",
    operator=HalfConv2d,
    implement=pointwise_f16_implement,
    constraints=(is_pointwise, holds_weights, finishes_in_vectors),
)


# Softmax and log-softmax of float16 over the last axis with Helium: softmax_f32 of a vector, widened in scratch.
#
# float16[..., C] -> float16[..., C], float32 inside, each result rounded once. The output may take the memory of the
# input.


def softmax_f16_implement(operator: HalfSoftmax, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return _of_vectors(operator, target, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return rounded(replace(whole, in_rows=in_turn(operator, vectors)))


def _of_vectors(operator: HalfSoftmax, target: Target, count: int) -> Implementation:
    made, length = softmax_f32.of_vectors(operator, target, count), operator.output.shape[-1]
    vector = [
        "tvm_ext_widen_halves(widened, &input[i], length);",
        f"{softmax_f32.function_of(operator, target)}(widened, widened, 1, length);",
        "tvm_ext_round_halves(&output[i], widened, length);",
    ]
    vectors = [f"for (int32_t i = 0; i < {count} * length; i += length) {{", block(vector), "}"]
    if count == 1:
        vectors = loop("i", 1, vector)
    return replace(
        made,
        kernel=SOFTMAX_F16.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=LANES.element, role="input"),
                Parameter(name="output", ctype=LANES.element, role="output"),
                WIDENED,
            ),
            body="\n".join([f"const int32_t length = {length};", WIDENED_FLOATS, *vectors]),
            includes=(*made.function.includes, *LANES.includes),
        ),
        scratch_bytes=4 * length,
        instructions=made.instructions + 2 * operator.output.num_elements,
    )


SOFTMAX_F16 = Kernel(
    name="softmax_f16", title="Softmax in float16", operator=HalfSoftmax, implement=softmax_f16_implement
)


# A chain of element-wise operators of float16 in one pass with Helium, four elements at a time.
#
# Inputs as in elementwise_f32. Elements are widened, computed in float32, rounded where the chain requires it and at
# its end. Each is read before it is written, so the output may take the memory of any input of its own shape.

Read = Callable[[Lanes, Operand], str]


def elementwise_f16_implement(operator: HalfElementwise, target: Target, stored: StoredRows) -> Implementation:
    finish, output = Finish(program=operator.finish), operator.output
    rowwise = len(output.shape) == 4 and output.shape[0] == 1 and all(t.shape == output.shape for t in operator.inputs)
    widths = (SINGLE, LANES) if finish.fits(LANES) else (SINGLE,)
    body = _rows(operator, stored, finish) if rowwise else _flat(operator, stored, finish)
    count = widths[-1].count
    vector = 4 + 2 * len(operator.inputs) + operator.finish.num_instructions
    made = Implementation(
        kernel=ELEMENTWISE_F16.name,
        function=CFunction(
            parameters=(
                *(Parameter(name=f"input{i}", ctype=LANES.element, role="input") for i in range(len(operator.inputs))),
                Parameter(name="output", ctype=LANES.element, role="output"),
                *finish.constant_parameters(),
                *(ROW_PARAMETERS if rowwise else ()),
            ),
            body=body,
            helpers=finish.helper(*widths),
            includes=LANES.includes,
        ),
        reference=lambda inputs: elementwise_f16_reference(operator, inputs),
        constants=finish.constants(),
        instructions=output.num_elements * vector // count + 20,
        spatial=row_by_row(output.shape[1], len(operator.inputs)) if rowwise else None,
        in_place=tuple(i for i, t in enumerate(operator.inputs) if t.shape == output.shape),
        pitched=True,
    )
    return rounded(made)


def _run(finish: Finish, length: int, place: str, read: Read) -> list[str]:
    """Return code for `length` elements from `place` of the output on: vectors, then one by one."""

    def each(lanes: Lanes) -> str:
        return lanes.write("output", f"{place} + k", finish.call("", lambda o: read(lanes, o), lanes))

    whole = length // LANES.count * LANES.count if finish.fits(LANES) else 0
    lines: list[str] = []
    for begin, end, lanes in ((0, whole, LANES), (whole, length, SINGLE)):
        if begin < end:
            lines += loop("k", end, [each(lanes)], begin=begin, step=lanes.count)
    return lines


def _rows(operator: HalfElementwise, stored: StoredRows, finish: Finish) -> str:
    """Return code for images of one batch, row by row: a row is one run if nothing depends on channels."""
    _, _, columns, channels = operator.output.shape
    pitch, length = stored.pitch or channels, columns * channels
    names = [f"const int32_t row = {slot('h', stored.output)} * {row_elements(stored, operator.output)};"]
    names += [f"const int32_t row{i} = {slot('h', stored.input(i))} * {length};" for i in range(len(operator.inputs))]
    if pitch == channels and not finish.constants():
        lines = _run(finish, length, "row", lambda lanes, o: lanes.read(f"input{o.index}", f"row{o.index} + k"))
    else:

        def read(lanes: Lanes, o: Operand) -> str:
            if o.kind == "channel":
                return lanes.load(f"channel{o.index}", "k")
            return lanes.read(f"input{o.index}", f"row{o.index} + w * {channels} + k")

        pixel = _run(finish, channels, f"row + w * {pitch}", read)
        lines = loop("w", columns, pixel)
    return "\n".join(["for (int32_t h = row_begin; h < row_end; ++h) {", block([*names, *lines]), "}"])


def _flat(operator: HalfElementwise, stored: StoredRows, finish: Finish) -> str:
    """Return code for tensors of any shape, a run of the last axis at a time."""
    output = operator.output
    last = output.shape[-1] if output.shape else 1
    pixel = f"i / {last} * {stored.pitch}" if stored.pitch else "i"

    def read(lanes: Lanes, o: Operand) -> str:
        if o.kind == "channel":
            return lanes.load(f"channel{o.index}", "k")
        source = operator.inputs[o.index]
        if source.shape == output.shape:
            return lanes.read(f"input{o.index}", "i + k")
        if source.num_elements > 1:
            return lanes.read(f"input{o.index}", "k")
        one = SINGLE.read(f"input{o.index}", "0")
        return one if lanes.count == 1 else f"{lanes.ctype}_splat({one})"

    lines = _run(finish, last, pixel, read)
    return "\n".join(loop("i", output.num_elements, lines, step=last))


ELEMENTWISE_F16 = Kernel(
    name="elementwise_f16",
    title="Chain of element-wise operators in float16, in one pass",
    operator=HalfElementwise,
    implement=elementwise_f16_implement,
    constraints=(reads_inputs_only, broadcasts_simply),
)


KERNELS = (CAST_F16, DENSE_F16, DEPTHWISE_F16, POINTWISE_F16, SOFTMAX_F16, ELEMENTWISE_F16)
