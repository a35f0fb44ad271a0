"""Depthwise conv2d of a QDQ chain in vectors of 8 sums: 16 channels of one output pixel at a time, two taps at once.

int8 or uint8[N, H, W, C], int8[C, R, S, 1] -> int8 or uint8[N, P, Q, C], sums in int32, modulo 2^32. Rows that windows
read are copied to scratch as 16-bit numbers, padding filled in with the zero point and pixels filled up to whole
vectors. Either rounding.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.initializer import Value
from codegen_c.c_text.text import C_TYPES
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import qconv2d
from codegen_c.kernels.convolution.qdepthwise import is_depthwise, pack
from codegen_c.kernels.shared.layer import apart, image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.window import ROW_PARAMETERS, over, spatial
from codegen_c.operators.kinds import Array, QConv2d
from codegen_c.targets.host.kernels.qconv2d_host import (
    copying_instructions,
    rescale,
    row_numbers,
    start,
    sums_leave_room,
)
from codegen_c.targets.host.kernels.sums_host import FINISH_INSTRUCTIONS, ORDER, PARAMETERS, SCRATCH, SUM_INCLUDES, UNIT

MOST_TAPS = 49
PAIR_NUMBERS = 2 * UNIT
LAYER = "tvm_ext_host_depthwise_layer"


def few_taps(operator: QConv2d, target: Target) -> bool:
    """the window must have 49 taps or fewer, as each two have their own code"""
    return operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def implement(operator: QConv2d, target: Target, stored: StoredRows) -> Implementation:
    source, output, finish = operator.inputs[0], operator.output, rescale(operator)
    num_taps, pitch = operator.weight[0].size, _pitch(operator)
    units = output.num_elements // output.shape[3] * (pitch // UNIT)
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_host_depthwise({layer}, $_row, input, output, weights, factors, "
    members: dict[str, Value] = {
        "input": image(source), "output": image(output, pitch=stored.pitch), "window": sliding_window(operator.window),
        "pitch": pitch, "rescale": finish.members(),
    }  # fmt: skip
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                *PARAMETERS,
                SCRATCH,
                *ROW_PARAMETERS,
            ),
            body="\n".join([*rings, f"{call}scratch, row_begin, row_end);"]),
            helpers=f"{shapes(LAYER, members)}\n{_row(operator, stored)}",
            includes=("tvm_ext_host_depthwise.h", "tvm_ext_host_rows.h", *SUM_INCLUDES),
        ),
        reference=lambda inputs: qconv2d.reference(operator, inputs),
        constants=(("weights", _pack(operator)), ("factors", finish.table(start(operator)))),
        scratch_bytes=2 * row_numbers(operator.window, source, pitch),
        macs=output.num_elements * num_taps,
        instructions=units * (-(-num_taps // 2) * 7 + FINISH_INSTRUCTIONS) + copying_instructions(operator, pitch),
        passes=Passes(
            constants=max(1.0, units), input=max(1.0, operator.window.kernel[0]),
            scratch=max(1.0, output.num_elements * num_taps / row_numbers(operator.window, source, pitch)),
        ),
        accumulation="products with r, s ascending in pairs, modulo 2^32",
        spatial=spatial(operator.window, source, output),
        exact=True,
        pitched=True,
    )  # fmt: skip


def _pitch(operator: QConv2d) -> int:
    """Numbers from pixel to pixel in copied rows: whole vectors."""
    return -(-operator.inputs[0].shape[3] // UNIT) * UNIT


def _pack(operator: QConv2d) -> Array:
    """int16[units, pairs of taps, 16 lanes, 2]: taps two by two, 0 behind the last tap and channel."""
    taps = pack(operator.weight).reshape(operator.weight[0].size, -1)
    full = np.zeros((-(-len(taps) // 2) * 2, _pitch(operator)), dtype=np.int16)
    full[: len(taps), : taps.shape[1]] = taps
    return np.ascontiguousarray(full.reshape(-1, 2, full.shape[1] // UNIT, UNIT)[..., ORDER].transpose(2, 0, 3, 1))


def _row(operator: QConv2d, stored: StoredRows) -> str:
    """Definition of `$_row`, a tvm_ext_host_depthwise_row: products of all taps, unrolled, two at a time."""
    window, pitch, channels = operator.window, _pitch(operator), operator.output.shape[3]
    length = row_numbers(window, operator.inputs[0], pitch) // window.kernel[0]
    taps = [r * length + s * window.dilation[1] * pitch for r, s in np.ndindex(*window.kernel)]
    lines = ["tvm_ext_host_sums sums = tvm_ext_host_begin(&factors[4 * k]);"]
    for pair in range(0, len(taps), 2):
        first, second = taps[pair], taps[min(pair + 1, len(taps) - 1)]
        lines.append(
            f"tvm_ext_host_add_taps(&sums, &x[k + {first}], &x[k + {second}], &f[{pair // 2 * PAIR_NUMBERS}]);"
        )
    lines.append(f"tvm_ext_host_end(&$_layer.rescale, &pixel[k], sums, &factors[4 * k], {channels} - k);")
    step = -(-len(taps) // 2) * PAIR_NUMBERS
    lines = [f"const int16_t *const f = &weights[k * {step // UNIT}];", *lines]
    pixel = over("k", 0, channels, lines, step=UNIT)
    places = [
        f"const int16_t *const x = &rows[w * {window.strides[1] * pitch}];",
        f"uint8_t *const pixel = &y[w * {stored.pitch or channels}];",
    ]
    body = over("w", 0, operator.output.shape[2], [*places, *pixel])
    parameters = [
        "const int16_t *restrict rows", "uint8_t *y", "const int16_t *restrict weights",
        "const int32_t *restrict factors",
    ]  # fmt: skip
    return apart("$_row", parameters, body)


KERNEL = Kernel(
    name="qdepthwise_host",
    operator=QConv2d,
    implement=implement,
    constraints=(is_depthwise, few_taps, *qconv2d.CONSTRAINTS, sums_leave_room),
)
