"""Kernels for quantized max and average pooling, integers only, of 8 or 16 bits; whole images also by rows."""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import (
    Accumulating,
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Passes,
    StoredRows,
    Target,
)
from codegen_c.kernels.shared import requantize_tflite
from codegen_c.kernels.shared.bit_widths import quantized_words, wide_kernel
from codegen_c.kernels.shared.copies import SHORTEST_LOOP
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, sliding_window, with_rings
from codegen_c.kernels.shared.requantize import (
    Requantize,
    largest_distance,
    quantization,
    quantized_bytes,
    results_fit,
    scale_of,
)
from codegen_c.kernels.shared.window import CHANNEL_BLOCK, ROW_PARAMETERS, accumulated, spatial, taps, taps_inside
from codegen_c.operators.kinds import Operator, Pool2d, QPool2d, TensorType

# Pooling of a quantized network in numpy: sums or maxima of windows, and their requantization.


def reference(operator: QPool2d, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    sums, counts = window_sums(operator, inputs[0]), counted_taps(operator)
    if operator.method == "max":
        return [np.minimum(sums, operator.high).astype(operator.output.dtype)]
    if not operator.has_factor:
        averages = requantize_tflite.divide(sums, counts[:, :, np.newaxis])
        return [np.clip(averages, operator.low, operator.high).astype(operator.output.dtype)]
    return [average(operator).run(sums, (counts - counts.min())[:, :, np.newaxis])]


def window_sums(operator: QPool2d, x: np.ndarray) -> np.ndarray:
    """Return one int64 sum or maximum per window, before requantization."""
    size = operator.output.shape[1:3]
    if operator.method == "max":
        largest = np.full(operator.output.shape, operator.low, dtype=np.int64)
        for _, _, tap in taps(x, operator.window, (size[0], size[1]), operator.low):
            largest = np.maximum(largest, tap)
        return largest
    zero_point = quantization(operator.inputs[0]).zero_point if operator.has_factor else 0
    sums = np.zeros(operator.output.shape, dtype=np.int64)
    for _, _, tap in taps(x, operator.window, (size[0], size[1]), zero_point):
        sums += tap.astype(np.int64) - zero_point
    return sums


def counted_taps(operator: QPool2d) -> np.ndarray:
    """Return the number of taps that the sum of each output pixel is divided by, int64[P, Q]."""
    extents = zip(operator.inputs[0].shape[1:3], operator.output.shape[1:3], strict=True)
    rows, columns = (taps_inside(operator.window, axis, *extent) for axis, extent in enumerate(extents))
    if operator.count_include_pad:
        return np.full((len(rows), len(columns)), operator.window.kernel[0] * operator.window.kernel[1])
    return np.outer(rows, columns)


def factors(operator: QPool2d) -> np.ndarray:
    """Return the output steps of one unit of the sum, for each count from the smallest to the largest that occurs."""
    counts = counted_taps(operator)
    used = np.arange(counts.min(), counts.max() + 1, dtype=np.float64)
    return scale_of(operator.inputs[0]) / (scale_of(operator.output) * used)


def average(operator: QPool2d) -> Requantize:
    """Return the requantization of sums that have a factor."""
    if operator.rounding == "tflite":
        count = operator.window.kernel[0] * operator.window.kernel[1]
        return mean_requantize(operator, count, low=operator.low, high=operator.high)
    if operator.rounding == "litert":
        count = operator.window.kernel[0] * operator.window.kernel[1]
        largest = np.array([largest_distance(operator.inputs[0]) * count])
        exact = Requantize.of(
            litert_mean_factor(operator, count), output=operator.output, low=operator.low, high=operator.high,
            rounding="litert",
        )  # fmt: skip
        return exact.proved(-largest, largest)
    return Requantize.of(factors(operator), output=operator.output, low=operator.low, high=operator.high)


def litert_mean_factor(operator: Operator, count: int) -> np.ndarray:
    """Return the output steps of one unit of a sum of `count` elements, as LiteRT's default kernels compute them."""
    ratio = np.float32(scale_of(operator.inputs[0])) / np.float32(scale_of(operator.output))
    return np.array([ratio * (np.float32(1) / np.float32(count))], np.float64)


def mean_requantize(operator: Operator, count: int, *, low: int, high: int) -> Requantize:
    """Return TensorFlow Lite's requantization of sums of `count` elements to their mean."""
    ratio = scale_of(operator.inputs[0]) / scale_of(operator.output)
    mantissa, shift = requantize_tflite.fixed_point_of_mean(ratio, count)
    return Requantize(
        mantissa=np.array([mantissa], np.int32), shift=np.array([shift], np.uint8), output=operator.output, low=low,
        high=high, rounding="tflite",
    )  # fmt: skip


# Pools over a whole image that take its rows in parts: a few rows per call, with sums kept between the calls.
#
# int8, uint8 or float32[1, H, W, C] -> [1, 1, 1, C]. Each channel adds its elements in the order of rows, then columns,
# like the pool over the whole image: no bit of the result depends on the number of rows per call. Integer sums are a
# separate int32[C]; floats are summed in the output itself.

BLOCK_INSTRUCTIONS = 24
"""Instructions per block of channels in one call: loading and storing its sums, and the loops."""


def is_global(operator: QPool2d | Pool2d) -> bool:
    """Return True if the window is the whole of one image."""
    batch, height, columns, _ = operator.inputs[0].shape
    window = operator.window
    whole = window.kernel == (height, columns) and window.dilation == (1, 1) and not any(window.padding)
    return whole and batch == 1 and operator.output.shape[1:3] == (1, 1) and len(operator.inputs) == 1


def instructions(operator: QPool2d | Pool2d, whole: int) -> int:
    """Return the modelled instructions with one row per call. whole: instructions of the pool that runs at once."""
    _, height, _, channels = operator.inputs[0].shape
    return whole + height * -(-channels // CHANNEL_BLOCK) * BLOCK_INSTRUCTIONS


# A pool over a whole image of a quantized network, integers only, that takes rows in parts.
#
# int8 or uint8[1, H, W, C] -> int8 or uint8[1, 1, 1, C], and int32[C] of sums, or maxima, between the calls.

LAYER = "tvm_ext_qpool2d_layer"


def accumulating(operator: QPool2d) -> Accumulating | None:
    """Return a pool over the whole image that takes its rows in parts; None for other pools."""
    if not is_global(operator):
        return None
    return Accumulating(
        row_counts=(operator.inputs[0].shape[1],),
        implement=lambda rows, stored: _by_rows(operator, stored),
    )


def pool_shapes(operator: QPool2d, stored: StoredRows, finish: Requantize | None) -> str:
    """Return the layer's shapes for tvm_ext_qpool2d.h. finish: requantization of an average, if there is one."""
    members: dict[str, Value] = {
        "input": image(operator.inputs[0]),
        "output": image(operator.output, stored=stored),
        "window": sliding_window(operator.window),
        "is_maximum": operator.method == "max",
        "divides": operator.method == "average" and finish is None,
        "fewest": int(counted_taps(operator).min()),
        "rescale": rescale(finish) if finish else {"low": operator.low, "high": operator.high},
    }
    return shapes(LAYER, members)


def factors_text(finish: Requantize | None) -> str:
    """Return the arguments for the tables of factors."""
    return "multiplier, shift" if finish else "NULL, NULL"


def _by_rows(operator: QPool2d, stored: StoredRows) -> Implementation:
    """Return a pool with one sum or maximum per channel; without padding all windows have equal taps, so one factor."""
    finish = average(operator) if operator.has_factor else None
    channels, rings = operator.output.shape[3], with_rings(LAYER, stored)
    arguments = f"{rings[1]}, input, output, sums, {factors_text(finish)}, row_begin, row_end"
    tables = finish.tables() if finish else []
    function = CFunction(
        parameters=(
            Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
            Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
            Parameter(name="sums", ctype="int32_t", role="output"),
            *(finish.parameters() if finish else ()),
            *ROW_PARAMETERS,
        ),
        body="\n".join([*rings[0], *tables, f"tvm_ext_qpool2d_add({arguments});"]),
        helpers=pool_shapes(operator, stored, finish),
        includes=("tvm_ext_qpool2d.h", *BLOCK_INCLUDES),
    )
    whole = operator.inputs[0].num_elements * 2 + channels * 20
    return Implementation(
        kernel="qpool2d_i8_by_rows",
        function=function,
        reference=lambda inputs: [*reference(operator, inputs), window_sums(operator, inputs[0]).astype(np.int32)],
        constants=finish.constants() if finish else (),
        instructions=instructions(operator, whole),
        accumulation="r, s ascending",
        spatial=accumulated(operator.inputs[0].shape[1]),
        exact=True,
        sums=TensorType(shape=(1, 1, 1, channels), dtype="int32"),
    )


# Max and average pooling of a quantized network, integers only: four channels of one output pixel at a time.
#
# int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Max takes the largest tap inside the input. Average adds x -
# zero point in int32, r then s ascending, and multiplies by input scale / (output scale * number of taps): of those
# inside the input, or of the whole window (padding then being real zeros); rounded once, halves to even. In rounding
# "tflite" the integers themselves are averaged, on one scale, halves away from zero; but a mean has a factor, with
# TensorFlow Lite's roundings.


def keeps_quantization(operator: QPool2d, target: Target) -> bool:
    """max pooling, and averages in TFLite's rounding, must have one type, scale and zero point on both sides"""
    source, output = operator.inputs[0], operator.output
    same = source.dtype == output.dtype and quantization(source) == quantization(output)
    return same or operator.has_factor


def counts_what_it_reads(operator: QPool2d, target: Target) -> bool:
    """an average in TFLite's rounding must not count padding"""
    return operator.rounding == "onnx" or not operator.count_include_pad


def windows_meet_input(operator: QPool2d, target: Target) -> bool:
    """every window of an average must hold at least one element of the input"""
    return operator.method == "max" or counted_taps(operator).min() > 0


def sums_fit(operator: QPool2d, target: Target) -> bool:
    """a window must add up to a sum that fits int32, and to less than 2^30 steps of the output"""
    if operator.method == "max":
        return True
    farthest = largest_distance(operator.inputs[0])
    largest = np.array(farthest * operator.window.kernel[0] * operator.window.kernel[1])
    return bool(largest < 1 << 31) and results_fit(-largest, largest, factors(operator))


def implement(operator: QPool2d, target: Target, stored: StoredRows) -> Implementation:
    finish = average(operator) if operator.has_factor else None
    num_taps = operator.output.num_elements * operator.window.kernel[0] * operator.window.kernel[1]
    return Implementation(
        kernel=QPOOL2D.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(finish.parameters() if finish else ()),
                *ROW_PARAMETERS,
            ),
            body=_body(stored, finish),
            helpers=pool_shapes(operator, stored, finish),
            includes=("tvm_ext_qpool2d.h", *BLOCK_INCLUDES),
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=finish.constants() if finish else (),
        instructions=_instructions(operator, num_taps),
        passes=Passes(input=max(1.0, num_taps / operator.inputs[0].num_elements)),
        accumulation="r, s ascending",
        spatial=spatial(operator.window, operator.inputs[0], operator.output, columns_at_once=1),
        exact=True,
        pitched=True,
        row_pitched=True,
        accumulating=accumulating(operator),
    )


MOST_IN_REGISTERS = {"max": 6, "average": 4}
"""Taps of a window up to which GCC keeps all values in registers, if it computes whole blocks of channels alone."""
SHORT = {"max": (4.0, -1.5), "average": (2.1, 6.0)}
"""Modelled instructions of a tap and of an element for windows that GCC writes out, with all values in registers."""
UNROLLED = {"max": (4.7, -2.5), "average": (3.8, 0.5)}
"""Modelled instructions of a tap and of an element for longer windows, which GCC unrolls."""
LOOPED = {"max": (4.7, -2.5), "average": (3.2, 7.0)}
"""Modelled instructions of a tap and of an element for windows that are read in loops."""
PADDED = {"max": (4.7, -2.5), "average": (2.2, 14.0)}
"""Modelled instructions of a tap inside the image and of an element for windows with padding."""


def _instructions(operator: QPool2d, num_taps: int) -> int:
    """Return the modelled instructions, fitted to windows of 2 to 18 taps and 6 to 128 channels on a Cortex-M4."""
    elements, method = operator.output.num_elements, operator.method
    if method == "average" and is_global(operator):
        return num_taps * 2 + num_taps // CHANNEL_BLOCK + elements * 10
    window, is_inside = operator.window, not any(operator.window.padding)
    count = window.kernel[0] * window.kernel[1]
    is_written_out = is_inside and count <= SHORTEST_LOOP + 1
    if method == "average" and operator.has_factor:
        loops = 0 if is_written_out else num_taps // CHANNEL_BLOCK * 6
        return num_taps * (2 if is_inside else 3) + loops + elements * 13
    if not is_inside:
        costs = PADDED
    elif not is_written_out:
        costs = LOOPED
    else:
        has_blocks = operator.output.shape[3] % CHANNEL_BLOCK == 0
        costs = UNROLLED if has_blocks and count > MOST_IN_REGISTERS[method] else SHORT
    per_tap, per_element = costs[method]
    return round(elements * (float(counted_taps(operator).mean()) * per_tap + per_element))


def _body(stored: StoredRows, finish: Requantize | None) -> str:
    """Return a call of the loops of tvm_ext_qpool2d.h."""
    rings, layer = with_rings(LAYER, stored)
    call = f"tvm_ext_qpool2d({layer}, input, output, {factors_text(finish)}, row_begin, row_end);"
    return "\n".join([*rings, *(finish.tables() if finish else []), call])


WINDOWS = (keeps_quantization, counts_what_it_reads, windows_meet_input, sums_fit)
QPOOL2D = Kernel(
    name="qpool2d_i8",
    title="Quantized max and average pooling, 8 bits",
    operator=QPool2d,
    implement=implement,
    constraints=(quantized_bytes, *WINDOWS),
)


# Max and average pooling of a quantized network on 16-bit activations, by the loops of the 8-bit kernel.
#
# int16 or uint16[N, H, W, C] -> int16 or uint16[N, P, Q, C].

QPOOL2D_I16 = wide_kernel(
    "qpool2d_i16", "Quantized max and average pooling, 16 bits", QPOOL2D, quantized_words, *WINDOWS
)


KERNELS = (QPOOL2D, QPOOL2D_I16)
