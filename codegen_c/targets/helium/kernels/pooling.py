"""Kernels for quantized max and average pooling with Helium, 16 channels at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.pooling import qpool2d
from codegen_c.kernels.pooling.qpool2d import accumulating, average, counted_taps, reference
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.copies import SHORTEST_LOOP
from codegen_c.kernels.shared.layer import image, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import Requantize
from codegen_c.kernels.shared.window import ROW_PARAMETERS, spatial, taps_inside
from codegen_c.operators.kinds import QPool2d
from codegen_c.targets.helium.kernels.product import LAYER_INCLUDES, Rescale, flip

# Modelled instructions of pooling with Helium: taps inside the image, rows of taps, blocks of channels, and pixels.

VECTOR = 16
"""Channels of a block."""


@dataclass(frozen=True, kw_only=True)
class PoolCost:
    """Instructions of each part of the loops, fitted to the instructions executed on a Cortex-M55 in QEMU.

    several: of a pixel with more than one block. part, part_row: additional instructions of an incomplete block, and of
    each of its rows of taps. tap, looped_tap: of a tap of an unrolled window, and of a looped one. many: number of taps
    above which each tap takes `far` more, because the offsets of load instructions are short.
    """

    call: float
    pixel: float
    several: float
    block: float
    part: float
    row: float
    part_row: float
    tap: float
    looped_tap: float
    many: int
    far: float


INSIDE = {
    "max": PoolCost(call=12, pixel=0, several=2.8, block=0, part=1.8, row=1, part_row=0.7, tap=4, looped_tap=3.1,
                    many=17, far=0.8),
    "average": PoolCost(call=30, pixel=4.7, several=41.7, block=21.8, part=5.8, row=2.6, part_row=0, tap=6.4,
                        looped_tap=6.4, many=10, far=2.7),
}  # fmt: skip
"""Costs of windows inside the image, whose taps are constant."""
ACROSS = {
    "max": PoolCost(call=12, pixel=26, several=12, block=0, part=0, row=3, part_row=6, tap=5.9, looped_tap=5.9,
                    many=0, far=0),
    "average": PoolCost(call=12, pixel=38.7, several=7.2, block=25.3, part=3, row=3.5, part_row=6.5, tap=9.9,
                        looped_tap=9.9, many=0, far=0),
}  # fmt: skip
"""Costs of windows across edges, whose taps are counted at each pixel."""


def pool_instructions(operator: QPool2d, rescaling: int) -> int:
    """Return the instructions of one call. rescaling: of four sums."""
    window, (_, height, width, channels) = operator.window, operator.inputs[0].shape
    images, rows, columns, _ = operator.output.shape
    cost = (ACROSS if any(window.padding) else INSIDE)[operator.method]
    is_written_out = max(window.kernel) <= SHORTEST_LOOP
    tap = cost.tap if is_written_out else cost.looped_tap
    if is_written_out and window.kernel[0] * window.kernel[1] >= cost.many:
        tap += cost.far
    turned = 1 if operator.inputs[0].dtype == "uint8" else 0  # conversion to int8, and back
    blocks, is_part = -(-channels // VECTOR), channels % VECTOR > 0
    row_taps, column_taps = (
        int(taps_inside(window, axis, extent, outputs).sum())
        for axis, (extent, outputs) in enumerate(((height, rows), (width, columns)))
    )
    of_pixel = cost.pixel + (cost.several if blocks > 1 else 0)
    of_block = cost.block + 4 * rescaling + (cost.part if is_part else 0) + turned
    of_row = cost.row + (cost.part_row if is_part else 0)
    pixels, taps = rows * columns, row_taps * column_taps
    each = pixels * of_pixel + blocks * (pixels * of_block + row_taps * columns * of_row + taps * (tap + turned))
    return round(cost.call + images * each)


# Quantized max and average pooling with Helium: 16 channels of one output pixel at a time.
#
# int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Elements are read as int8 (uint8 minus 128). Average sums up
# to 255 of them in 16 bits, then subtracts the zero point in 32 bits. TensorFlow Lite's averages of the integers
# themselves are sums divided by their number, halves away from zero: the same as a factor of sums scaled up, which is
# proved for all sums.

LAYER = "tvm_ext_helium_pool2d_layer"
MOST_TAPS = 255
SCALE_BITS = 12
"""Bits by which sums of 16 bits are scaled up where they are divided."""


def rounds_as_known(operator: QPool2d, target: Target) -> bool:
    """averages must round once, as in ONNX, or be averages of the integers themselves, as in TensorFlow Lite"""
    return operator.method == "max" or operator.rounding == "onnx" or _divides(operator)


def _divides(operator: QPool2d) -> bool:
    """Return True for averages of the integers themselves."""
    return operator.method == "average" and not operator.has_factor


def few_taps(operator: QPool2d, target: Target) -> bool:
    """the window of an average must have at most 255 taps, because they are summed in 16 bits"""
    return operator.method == "max" or operator.window.kernel[0] * operator.window.kernel[1] <= MOST_TAPS


def sums_leave_room(operator: QPool2d, target: Target) -> bool:
    """if the factor of an average is one quarter or more, its sums must be small enough to be scaled up"""
    return operator.method == "max" or _rescale(operator).fits(*_bounds(operator))


def _bounds(operator: QPool2d) -> tuple[np.ndarray, np.ndarray]:
    largest = np.array([255 * operator.window.kernel[0] * operator.window.kernel[1]])
    return -largest, largest


def _rescale(operator: QPool2d) -> Rescale:
    if _divides(operator):
        return Rescale.of(_quotient(operator), *_bounds(operator))
    return Rescale.of(average(operator), *_bounds(operator))


def quotients_are_exact(operator: QPool2d, target: Target) -> bool:
    """the factors of averages of integers must give the quotient of every sum"""
    if not _divides(operator):
        return True
    counts, finish = counted_taps(operator), _quotient(operator)
    for index, count in enumerate(range(int(counts.min()), int(counts.max()) + 1)):
        sums = np.arange(-128 * count, 255 * count + 1)
        scaled = finish.mantissa[index].astype(np.int64) * (sums << SCALE_BITS)
        product, rest = (scaled + (1 << 30)) >> 31, int(finish.shift[index]) - 31
        found = (product - (product < 0) + (1 << (rest - 1))) >> rest
        if not np.array_equal(found, requantize_tflite.divide(sums, np.full_like(sums, count))):
            return False
    return True


def _quotient(operator: QPool2d) -> Requantize:
    """Return the requantization of scaled sums to averages of integers, one for each number of elements."""
    counts = counted_taps(operator)
    factors = [2.0**-SCALE_BITS / count for count in range(int(counts.min()), int(counts.max()) + 1)]
    return Requantize.of(
        np.array(factors), output=operator.output, low=operator.low, high=operator.high, rounding="tflite"
    )


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = _rescale(operator) if operator.method == "average" else None
    tables = [("multiplier", 0), ("shift", 1)] if finish and not finish.requantize.is_uniform else []
    num_blocks = operator.output.num_elements // operator.output.shape[3] * -(-operator.output.shape[3] // VECTOR)
    num_taps = num_blocks * operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in tables),
                *ROW_PARAMETERS,
            ),
            body=_body(stored, finish),
            helpers=_shapes(operator, stored, finish),
            includes=("tvm_ext_helium_pool2d.h", *LAYER_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, finish.factors()[index]) for name, index in tables) if finish else (),
        instructions=pool_instructions(operator, 6 if _divides(operator) else finish.instructions if finish else 0),
        passes=Passes(input=max(1.0, num_taps * VECTOR / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )


def _shapes(operator: QPool2d, stored: StoredRows, finish: Rescale | None) -> str:
    """Return the layer's shapes for tvm_ext_helium_pool2d.h; the limits of a maximum are those of int8 elements."""
    turned = flip(operator.output)
    limits: dict[str, Value] = {"low": operator.low + turned, "high": operator.high + turned}
    # Averages of integers have no zero point, and negative sums are not clamped.
    of_integers: dict[str, Value] = {"rounds_up": False, "zero_point": 0} if _divides(operator) else {}
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "is_maximum": finish is None,
        **({"divides": True, "scale_bits": SCALE_BITS} if _divides(operator) else {}),
        "fewest": int(counted_taps(operator).min()),
        "factor_step": 0 if finish is None or finish.requantize.is_uniform else 1,
        "rescale": {**finish.members(), **of_integers} if finish else limits,
    }
    return shapes(LAYER, members)


def _body(stored: StoredRows, finish: Rescale | None) -> str:
    """Return a call of the loops of tvm_ext_helium_pool2d.h."""
    rings, layer = with_rings(LAYER, stored)
    tables: list[str] = []
    if finish and finish.requantize.is_uniform:
        values = zip(("multiplier", "shift"), finish.factors(), strict=True)
        tables = [f"static const int32_t {name}[] = {{{array[0]}}};" for name, array in values]
    factors = "multiplier, shift" if finish else "NULL, NULL"
    call = f"tvm_ext_helium_pool2d({layer}, input, output, {factors}, row_begin, row_end);"
    return "\n".join([*rings, *tables, call])


KERNEL = Kernel(
    name="qpool2d_helium",
    title="Quantized max and average pooling, 16 channels at a time",
    operator=QPool2d,
    implement=implement,
    constraints=(rounds_as_known, *qpool2d.QPOOL2D.constraints, few_taps, sums_leave_room, quotients_are_exact),
)
