"""Kernels for sums of two quantized tensors, 8 elements at a time, and for maxima of windows, 16 channels at a time.

Sums: int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], by factors of 32 bits that give every pair of
elements its result (narrow_sums.py). Maxima: int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Any rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.shared.layer import image, one_image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.narrow_sums import narrow_sums
from codegen_c.kernels.shared.product_kernel import activations
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import QBinary, QPool2d
from codegen_c.targets.simd128.kernels.products import INCLUDES
from codegen_c.targets.simd128.kernels.rescale import UNIT

BYTES = 16
RUN_INSTRUCTIONS, SUM_INSTRUCTIONS, TAP_INSTRUCTIONS, MAXIMUM_INSTRUCTIONS = 30, 26, 6, 20
"""Modelled instructions of a run of elements or an output pixel, of 8 sums, of 16 elements of a tap, and of 16
maxima."""
HEADER = "tvm_ext_simd128_plain.h"
SUMS, MAXIMA = "tvm_ext_simd128_qbinary_layer", "tvm_ext_simd128_maxima_layer"


def has_narrow_sums(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or difference for which factors of 32 bits give each pair of elements its result"""
    return narrow_sums(operator) is not None


def sums(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable, output, narrow = qbinary.implement(operator, target, stored), operator.output, narrow_sums(operator)
    assert narrow is not None, "has_narrow_sums is a constraint"
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    rings, layer = with_rings(SUMS, stored, ("first", "second"))
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    _, height, columns, channels = one_image(output).shape
    helpers = shapes(SUMS, {
        "first": first, "second": second, "output": image(one_image(output), stored=stored),
        "start": narrow.start + (1 << (narrow.shift - 1)), "first_factor": narrow.first,
        "second_factor": narrow.second, "shift": narrow.shift, "low": operator.low, "high": operator.high,
    })  # fmt: skip
    body = "\n".join([*rings, f"tvm_ext_simd128_qbinary({layer}, input0, input1, output, {rows});"])
    return replace(
        portable,
        kernel=QBINARY.name,
        function=replace(portable.function, body=body, helpers=helpers, includes=(HEADER, *INCLUDES)),
        instructions=height * (RUN_INSTRUCTIONS + -(-columns * channels // UNIT) * SUM_INSTRUCTIONS),
    )


def is_maximum(operator: QPool2d, target: Target) -> bool:
    """the pool must take maxima"""
    return operator.method == "max"


def maxima(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    portable = qpool2d.implement(operator, target, stored)
    (source,), output, (rows, columns) = operator.inputs, operator.output, operator.window.kernel
    rings, layer = with_rings(MAXIMA, stored)
    pixels, vectors = output.num_elements // output.shape[3], -(-output.shape[3] // BYTES)
    has_high = operator.high < np.iinfo(output.dtype).max
    each = RUN_INSTRUCTIONS + vectors * (rows * columns * TAP_INSTRUCTIONS + MAXIMUM_INSTRUCTIONS)
    return replace(
        portable,
        kernel=MAXIMUM.name,
        function=CFunction(
            parameters=(*activations(source, output), *ROW_PARAMETERS),
            body="\n".join([*rings, f"tvm_ext_simd128_maxima({layer}, input, output, row_begin, row_end);"]),
            helpers=shapes(MAXIMA, {
                "input": image(source), "output": image(output, stored=stored),
                "window": sliding_window(operator.window), "has_high": has_high,
                "low": operator.low, "high": operator.high,
            }),
            includes=(HEADER, *INCLUDES),
        ),
        constants=(),
        instructions=pixels * each,
    )  # fmt: skip


QBINARY = Kernel(
    name="qbinary_simd128",
    title="Quantized add and subtract of tensors of one shape, 8 elements at a time",
    operator=QBinary,
    implement=sums,
    constraints=(*qbinary.QBINARY.constraints, has_narrow_sums),
)
MAXIMUM = Kernel(
    name="qmaximum_simd128",
    title="Quantized max pooling, 16 channels of an output pixel at a time",
    operator=QPool2d,
    implement=maxima,
    constraints=(*qpool2d.QPOOL2D.constraints, is_maximum),
)
KERNELS = (QBINARY, MAXIMUM)
