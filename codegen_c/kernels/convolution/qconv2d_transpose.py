"""Transposed convolution of a QDQ chain over NHWC images, gathered: one output pixel, a block of channels at a time.

int8 or uint8[N, H, W, C], int8[K, R, S, C] -> int8 or uint8[N, P, Q, K], sums in int32. Weights of -255 to 255 have the
same loops (qconv2d_transpose_nine_bits.py).
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.transposed import rows_of, spread
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.nine_bits import NINE_BITS, split_weights
from codegen_c.kernels.shared.requantize import Products, Requantize, quantization, wide_sums
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, pack_blocks
from codegen_c.operators.kinds import QConv2dTranspose

LAYER = "tvm_ext_qconv2d_transpose_layer"

TAP_INSTRUCTIONS = 14


def reference(operator: QConv2dTranspose, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    total = np.zeros(operator.output.shape, dtype=np.int64)
    centred = inputs[0].astype(np.int64) - quantization(operator.inputs[0]).zero_point
    for r, s, where, x in spread(centred, operator.window, operator.output.shape[1:3]):
        total[where] += np.einsum("nhwc,kc->nhwk", x, operator.weight[:, r, s].astype(np.int64))
    return [qconv2d.requantize_sums(operator, _wide(operator)).run(total + operator.bias)]


def implement(operator: QConv2dTranspose, target: Target, stored: StoredRows) -> Implementation:
    finish, sums = qconv2d.requantize_sums(operator, _wide(operator)), _products(operator)
    macs = operator.inputs[0].num_elements * operator.weight[..., 0].size
    has_offsets = operator.weight.dtype == NINE_BITS
    weight, offsets = split_weights(operator.weight) if has_offsets else (operator.weight, None)
    parameters = list(qconv2d.parameters(operator, finish, is_wide=_wide(operator) is not None))
    if has_offsets:
        parameters.insert(3, Parameter(name="offsets", ctype="int16_t", role="constant"))
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=tuple(parameters),
            body=_body(stored, finish, has_offsets=has_offsets),
            helpers=_shapes(operator, stored, finish),
            includes=("tvm_ext_qconv2d_transpose.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
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
    """A call of the loops of tvm_ext_qconv2d_transpose.h."""
    rings, layer = with_rings(LAYER, stored)
    tables = f"weights, {'offsets' if has_offsets else 'NULL'}, bias, multiplier, shift"
    call = f"tvm_ext_qconv2d_transpose({layer}, input, output, {tables}, row_begin, row_end);"
    return "\n".join([*rings, *finish.tables(), call])


def _products(operator: QConv2dTranspose) -> Products:
    """The zero point stays out of the sums: how many taps an element has depends on where it is."""
    return Products.of(source=operator.inputs[0], weight=operator.weight, bias=operator.bias, padded=True)


def _wide(operator: QConv2dTranspose) -> Products | None:
    """The sums, where they have 64 bits."""
    return wide_sums(operator.inputs[0], lambda: _products(operator))


def _shapes(operator: QConv2dTranspose, stored: StoredRows, finish: Requantize) -> str:
    """The layer's shapes as tvm_ext_qconv2d_transpose.h takes them."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "rescale": rescale(finish, wide=_wide(operator) is not None),
    }
    return shapes(LAYER, members)


KERNEL = Kernel(
    name="qconv2d_transpose_i8",
    operator=QConv2dTranspose,
    implement=implement,
    constraints=qconv2d.CONSTRAINTS,
)
