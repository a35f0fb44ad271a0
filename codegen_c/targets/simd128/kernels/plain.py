"""Kernels for sums of two quantized tensors, 8 elements at a time, and for maxima of windows, 16 channels at a time.

Sums: int8 or uint8[...], int8 or uint8[...] -> int8 or uint8[...], by factors of 31 bits that give every pair of
elements its result (narrow_sums.py). Maxima: int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Any rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import CFunction, Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.elementwise import qbinary
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.shared.layer import image, one_image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.narrow_sums import NarrowSums, narrow_sums
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


LOW_BITS = 15
"""Number of bits in the low part of a factor or sum. Each part of a factor fits a number of 16 bits."""


def factors(operator: QBinary) -> NarrowSums | None:
    """Return factors of 31 bits and sums of 46 bits with their signs, or coarser ones; None if neither exist.

    Fine factors leave pairs of elements apart that fall on different sides of a half. Where scales are multiples of
    each other, pairs fall on halves, and coarse factors may move all of them in the direction in which it is rounded.
    """
    found = narrow_sums(operator, sum_bits=LOW_BITS + 30, factor_bits=LOW_BITS + 15) or narrow_sums(operator)
    return None if found is None or found.shift < LOW_BITS else found


def has_factors(operator: QBinary, target: Target) -> bool:
    """the operator must be a sum or difference for which factors of 31 bits give each pair of elements its result"""
    return factors(operator) is not None


def sums(operator: QBinary, target: Target, stored: StoredRows) -> Implementation:
    portable, output, found = qbinary.implement(operator, target, stored), operator.output, factors(operator)
    assert found is not None, "has_factors is a constraint"
    numbers = (found.first, found.second, found.start + (1 << (found.shift - 1)))
    *highs, high_start = (number >> LOW_BITS for number in numbers)
    *lows, low_start = (number & ((1 << LOW_BITS) - 1) for number in numbers)
    high_factors, low_factors = (f"{{{one}, {other}}}" for one, other in (highs, lows))
    first, second = (image(one_image(tensor)) for tensor in operator.inputs)
    rings, layer = with_rings(SUMS, stored, ("first", "second"))
    rows = "row_begin, row_end" if portable.spatial else "0, 1"
    _, height, columns, channels = one_image(output).shape
    helpers = shapes(SUMS, {
        "first": first, "second": second, "output": image(one_image(output), stored=stored),
        "high_factors": high_factors, "low_factors": low_factors, "high_start": high_start, "low_start": low_start,
        "shift": found.shift - LOW_BITS, "low": operator.low, "high": operator.high,
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
    constraints=(*qbinary.QBINARY.constraints, has_factors),
)
MAXIMUM = Kernel(
    name="qmaximum_simd128",
    title="Quantized max pooling, 16 channels of an output pixel at a time",
    operator=QPool2d,
    implement=maxima,
    constraints=(*qpool2d.QPOOL2D.constraints, is_maximum),
)
KERNELS = (QBINARY, MAXIMUM)
