"""Kernels for transposed convolutions over NHWC images, gathered: float32, and quantized integers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codegen_c.c_text.text import Compound, Value, block, loop, scaled, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.conv_f32 import by_pixels, pixel_offsets, place, residual_place
from codegen_c.kernels.convolution.qconv2d import QCONV2D_I16_CONSTRAINTS
from codegen_c.kernels.shared.bit_widths import NINE_BITS, has_few_weights, nine_bit_weights, split_weights, wide_kernel
from codegen_c.kernels.shared.blocking import (
    Accumulators,
    ChannelRange,
    over_channels,
    pack,
    tile_headers,
    weight_blocking,
)
from codegen_c.kernels.shared.common_shift import by_high_products
from codegen_c.kernels.shared.lanes import Finish
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, LayerText, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import Products, Requantize, quantization, quantized_bytes, wide_sums
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, pack_blocks, slot
from codegen_c.operators.kinds import Conv2dTranspose, QConv2dTranspose, TensorType, Window
from tvm_ext.core.row_access import RowAccess

# Shared parts of transposed convolutions: the taps that an output element adds up, in C and in numpy.
#
# Input element i spreads over output elements i * stride + r - padding, so output element h adds up the taps r with
# (h + padding - r) a multiple of the stride.

Array = np.ndarray


def spread(
    inputs: Array, window: Window, output: tuple[int, ...]
) -> Iterator[tuple[int, int, tuple[slice, ...], Array]]:
    """Yield the taps (r, s), each with the part of an NHWC output that its products go to, and their input elements."""
    for r in range(window.kernel[0]):
        rows = _places(r - window.padding[0], window.strides[0], inputs.shape[1], output[0])
        for s in range(window.kernel[1]):
            columns = _places(s - window.padding[1], window.strides[1], inputs.shape[2], output[1])
            yield r, s, (slice(None), rows[0], columns[0]), inputs[:, rows[1], columns[1]]


def _places(first: int, stride: int, extent: int, limit: int) -> tuple[slice, slice]:
    """Return slices of the output and of the input elements, which go to first, first + stride ...

    if these are inside.
    """
    begin = max(0, -(first // stride))
    end = max(begin, min(extent, -(-(limit - first) // stride)))
    start = first + begin * stride
    return slice(start, start + (end - begin) * stride, stride), slice(begin, end)


def rows_of(operator: Conv2dTranspose | QConv2dTranspose, num_same_row: int = 0) -> Spatial:
    """Return the row behaviour; further inputs are read row by row.

    A row that no window reaches counts as a reader of the next input row.
    """
    window, height, rows = operator.window, operator.inputs[0].shape[1], operator.output.shape[1]
    places = np.arange(rows) + window.padding[0]
    first = np.clip(-((window.kernel[0] - 1 - places) // window.strides[0]), 0, height - 1)
    end = np.maximum(np.minimum(height, places // window.strides[0] + 1), first + 1)
    access = RowAccess(input_rows=height, begins=tuple(first.tolist()), ends=tuple(end.tolist()))
    return Spatial(output_rows=rows, inputs=(access, *(RowAccess.same(rows),) * num_same_row))


def over_taps(window: Window, source: TensorType, body: list[str]) -> list[str]:
    """Return loops over the taps (r, s) of output element (h, w), with the input element (i, j) of each tap."""
    lines = body
    for tap, at, index, axis in (("s", "w", "j", 1), ("r", "h", "i", 0)):
        stride, padding, extent = window.strides[axis], window.padding[axis], source.shape[1 + axis]
        position = f"{at} + {padding}" if padding else at
        distance = f"({position} - {tap})"
        first = 0 if stride == 1 else f"({position}) % {stride}"
        inside = [
            f"const int32_t {index} = {distance}{f' / {stride}' if stride > 1 else ''};",
            f"if ({index} >= 0 && {index} < {extent}) {{",
            block(lines),
            "}",
        ]
        lines = loop(tap, window.kernel[axis], inside, begin=first, step=stride)
    return lines


# float32 transposed convolution over NHWC images, gathered: one output pixel, a block of channels at a time.
#
# float32[N, H, W, C], float32[K, R, S, C] -> float32[N, P, Q, K], element-wise operators after it included.

TAP_INSTRUCTIONS = 14


def reference(operator: Conv2dTranspose, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, float64 sums rounded once."""
    total = np.zeros(operator.output.shape)
    for r, s, where, x in spread(inputs[0], operator.window, operator.output.shape[1:3]):
        total[where] += np.einsum("nhwc,kc->nhwk", x.astype(np.float64), operator.weight[:, r, s].astype(np.float64))
    return [operator.finish.run((total + operator.bias).astype(np.float32), inputs)]


def implement(operator: Conv2dTranspose, target: Target, stored: StoredRows) -> Implementation:
    finish, blocking = Finish(program=operator.finish), weight_blocking(operator.weight, target)
    (_, kernel_rows, kernel_columns, depth), window = operator.weight.shape, operator.window
    macs = operator.inputs[0].num_elements * operator.weight[..., 0].size
    blocks = -(-operator.output.shape[3] // blocking.width)
    each = TAP_INSTRUCTIONS + depth * (4 + 2 * blocking.vectors)
    taps = operator.output.num_elements // operator.output.shape[3] * kernel_rows * kernel_columns
    taps //= window.strides[0] * window.strides[1]

    def tile(segment: ChannelRange) -> list[str]:
        return _tile(operator, stored, finish, segment)

    headers = tile_headers(operator.output.shape[3], blocking)
    body = [*pixel_offsets(operator, stored, finish), *over_channels(operator.output.shape[3], blocking, tile)]
    return Implementation(
        kernel=CONV2D_TRANSPOSE_F32.name,
        function=by_pixels(operator, finish, 1, lambda _: body, blocking, layer=LayerText(includes=headers)),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("weights", pack(operator.weight, blocking)), ("bias", operator.bias), *finish.constants()),
        macs=macs,
        instructions=blocks * taps * each + operator.output.num_elements * (3 + operator.finish.num_instructions),
        accumulation="bias, then r, s, c ascending",
        spatial=rows_of(operator, len(finish.residuals())),
        pitched=True,
        row_pitched=True,
    )


def _tile(operator: Conv2dTranspose, stored: StoredRows, finish: Finish, segment: ChannelRange) -> list[str]:
    """Return the code of one block of output channels of one pixel, from k on."""
    batch, height, columns, depth = operator.inputs[0].shape
    sums = Accumulators(segment=segment, pixels=1, in_array=True)
    row = Compound(f"n * {height} + i") if batch > 1 else slot("i", stored.input(0))
    ctype = segment.weights.ctype
    tap = [
        f"const float *x = &input[{scaled(Compound(f'{times(row, columns)} + j'), 'depth')}];",
        f"const {ctype} *f = &filter[(r * {operator.window.kernel[1]} + s) * {times('depth', segment.width)}];",
        sums.add("x", "0", "f", "depth"),
    ]
    return [
        f"const int32_t depth = {depth};",
        f"const {ctype} *filter = &weights[k * {times('depth', operator.weight[0, ..., 0].size)}];",
        *sums.begin(),
        *over_taps(operator.window, operator.inputs[0], tap),
        *sums.store(finish, place, residual_place),
    ]


CONV2D_TRANSPOSE_F32 = Kernel(
    name="conv2d_transpose_f32",
    title="Transposed convolution in float32",
    operator=Conv2dTranspose,
    implement=implement,
)


# Transposed convolution of a quantized network, gathered: one output pixel, a block of channels at a time.
#
# int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Weights of -255 to 255 use
# the same loops.

LAYER = "tvm_ext_qconv2d_transpose_layer"


def qconv2d_transpose_reference(operator: QConv2dTranspose, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    total = np.zeros(operator.output.shape, dtype=np.int64)
    centred = inputs[0].astype(np.int64) - quantization(operator.inputs[0]).zero_point
    for r, s, where, x in spread(centred, operator.window, operator.output.shape[1:3]):
        total[where] += np.einsum("nhwc,kc->nhwk", x, operator.weight[:, r, s].astype(np.int64))
    return [_requantize(operator).run(total + operator.bias)]


def _requantize(operator: QConv2dTranspose) -> Requantize:
    exact = qconv2d.requantize_sums(operator, _wide(operator))
    return exact if exact.rounding != "litert" else exact.proved(*_products(operator).range())


def qconv2d_transpose_implement(operator: QConv2dTranspose, target: Target, stored: StoredRows) -> Implementation:
    finish, sums = _requantize(operator), _products(operator)
    if _wide(operator) is None:
        finish = by_high_products(finish, *sums.range())
    macs = operator.inputs[0].num_elements * operator.weight[..., 0].size
    has_offsets = operator.weight.dtype == NINE_BITS
    weight, offsets = split_weights(operator.weight) if has_offsets else (operator.weight, None)
    parameters = list(qconv2d.parameters(operator, finish, is_wide=_wide(operator) is not None))
    if has_offsets:
        parameters.insert(3, Parameter(name="offsets", ctype="int16_t", role="constant"))
    return Implementation(
        kernel=QCONV2D_TRANSPOSE.name,
        function=CFunction(
            parameters=tuple(parameters),
            body=_body(stored, finish, has_offsets=has_offsets),
            helpers=_shapes(operator, stored, finish),
            includes=("tvm_ext_qconv2d_transpose.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: qconv2d_transpose_reference(operator, inputs),
        constants=(
            ("weights", pack_blocks(weight, CHANNEL_BLOCK)),
            *(() if offsets is None else (("offsets", offsets),)),
            ("bias", sums.bias),
            *finish.constants(),
        ),
        macs=macs,
        instructions=macs * (2 + 2 * CHANNEL_BLOCK) // CHANNEL_BLOCK
        + macs // operator.inputs[0].shape[3] // CHANNEL_BLOCK * TAP_INSTRUCTIONS
        + operator.output.num_elements * qconv2d.REQUANTIZE_INSTRUCTIONS,
        accumulation="bias, then r, s, c ascending",
        spatial=rows_of(operator),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def _body(stored: StoredRows, finish: Requantize, *, has_offsets: bool) -> str:
    """Return a call of the loops of tvm_ext_qconv2d_transpose.h."""
    rings, layer = with_rings(LAYER, stored)
    tables = f"weights, {'offsets' if has_offsets else 'NULL'}, bias, multiplier, shift"
    call = f"tvm_ext_qconv2d_transpose({layer}, input, output, {tables}, row_begin, row_end);"
    return "\n".join([*rings, *finish.tables(), call])


def _products(operator: QConv2dTranspose) -> Products:
    """Return the products; the sums leave out the zero point, because an element's number of taps varies."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=True)


def _wide(operator: QConv2dTranspose) -> Products | None:
    """Return the sums if they have 64 bits, else None."""
    return wide_sums(operator.inputs[0], lambda: _products(operator))


def _shapes(operator: QConv2dTranspose, stored: StoredRows, finish: Requantize) -> str:
    """Return the layer's shapes for tvm_ext_qconv2d_transpose.h."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "rescale": rescale(finish, wide=_wide(operator) is not None),
    }
    return shapes(LAYER, members)


QCONV2D_TRANSPOSE = Kernel(
    name="qconv2d_transpose_i8",
    title="Quantized transposed convolution with activations of 8 bits",
    operator=QConv2dTranspose,
    implement=qconv2d_transpose_implement,
    constraints=qconv2d.CONSTRAINTS,
)


# Transposed convolution of a quantized network on 16-bit activations, integers only, by the loops of the 8-bit kernel.
#
# int16 or uint16[N, H, W, C], int8[K, R, S, C] -> int16 or uint16[N, P, Q, K]; sums and rounding as in qconv2d.py.

QCONV2D_TRANSPOSE_I16 = wide_kernel(
    "qconv2d_transpose_i16",
    "Quantized transposed convolution with activations of 16 bits",
    QCONV2D_TRANSPOSE,
    *QCONV2D_I16_CONSTRAINTS,
)


# Transposed convolution of a quantized network with weights of 9 bits, by the loops of the 8-bit kernel.
#
# int8 or uint8[N, H, W, C], weights[K, R, S, C] from -255 to 255 -> int8 or uint8[N, P, Q, K], sums in int32.

QCONV2D_TRANSPOSE_NINE_BITS = wide_kernel(
    "qconv2d_transpose_nine_bits",
    "Quantized transposed convolution with weights of 9 bits",
    QCONV2D_TRANSPOSE,
    quantized_bytes,
    nine_bit_weights,
    has_few_weights,
    qconv2d.sums_fit,
    qconv2d.rescaled_sums_fit,
)


KERNELS = (CONV2D_TRANSPOSE_F32, QCONV2D_TRANSPOSE, QCONV2D_TRANSPOSE_I16, QCONV2D_TRANSPOSE_NINE_BITS)
