"""Kernel for interpolation of quantized images, integers only: weighted sums of a few elements of a few rows.

int8 or uint8[N, H, W, C] -> int8 or uint8[N, P, Q, C]. Weights of rows and of columns have 11 fractional bits and add
up to exactly one; the sum of products, exact in int32, is rounded once, halves to even, and clamped. Results differ
from real arithmetic by less than a step if scales are equal.
"""

from __future__ import annotations

import numpy as np

from codegen_c.c_text.text import C_TYPES, Compound, loop, plus, times
from codegen_c.kernels.contract import (
    CFunction,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.shared.requantize import (
    INCLUDES,
    Requantize,
    quantization,
    quantized_bytes,
    results_fit,
    rounds_once,
    scale_of,
    signed,
)
from codegen_c.kernels.shared.window import ROW_PARAMETERS, over_pixels, row_elements, slot
from codegen_c.operators.kinds import Array, QInterpolate
from tvm_ext.core.row_access import RowAccess

WEIGHT_BITS = 11
ONE = 1 << WEIGHT_BITS


def reference(operator: QInterpolate, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    x = inputs[0].astype(np.int64)
    rows = np.einsum("pt,nptwc->npwc", fixed(operator.rows[1]), x[:, operator.rows[0]])
    sums = np.einsum("qt,npqtc->npqc", fixed(operator.columns[1]), rows[:, :, operator.columns[0]])
    return [finish(operator).run(sums - quantization(operator.inputs[0]).zero_point * ONE * ONE)]


def adds_up_to_one(operator: QInterpolate, target: Target) -> bool:
    """weights of an element must be 0 to 1, and add up to 1"""
    pairs = (operator.rows, operator.columns)
    return all((w >= 0).all() and np.allclose(w.sum(axis=1), 1.0, atol=1e-4) for _, w in pairs)


def rows_in_order(operator: QInterpolate, target: Target) -> bool:
    """input rows must ascend with the output's rows"""
    return bool((np.diff(operator.rows[0], axis=0) >= 0).all())


def results_in_range(operator: QInterpolate, target: Target) -> bool:
    """no result may reach 2^30 steps of the output before it is clamped"""
    largest = np.array(255 * ONE * ONE)
    return results_fit(-largest, largest, _factors(operator))


def fixed(weights: Array) -> Array:
    """Return weights as int64 with WEIGHT_BITS fractional bits; the largest of each row absorbs the rounding error."""
    whole = np.rint(weights.astype(np.float64) * ONE).astype(np.int64)
    largest = whole.argmax(axis=1)
    whole[np.arange(len(whole)), largest] += ONE - whole.sum(axis=1)
    return whole


def _factors(operator: QInterpolate) -> np.ndarray:
    return np.array([scale_of(operator.inputs[0]) / (scale_of(operator.output) * ONE * ONE)])


def finish(operator: QInterpolate) -> Requantize:
    return Requantize.of(_factors(operator), output=operator.output, low=operator.low, high=operator.high)


def implement(operator: QInterpolate, target: Target, stored: StoredRows) -> Implementation:
    requantize = finish(operator)
    tables = (
        ("rows", operator.rows[0].astype(np.int32)),
        ("row_weights", fixed(operator.rows[1]).astype(np.int32)),
        ("columns", operator.columns[0].astype(np.int32)),
        ("column_weights", fixed(operator.columns[1]).astype(np.int32)),
    )
    num_taps = operator.rows[0].shape[1] * operator.columns[0].shape[1]
    return Implementation(
        kernel=KERNEL.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[operator.inputs[0].dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
                *(Parameter(name=name, ctype="int32_t", role="constant") for name, _ in tables),
                *ROW_PARAMETERS,
            ),
            body=_body(operator, stored, requantize),
            helpers=requantize.helper(),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=tuple((name, table.reshape(-1)) for name, table in tables),
        macs=operator.output.num_elements * num_taps,
        instructions=operator.output.num_elements * (num_taps * 4 + 20),
        accumulation="rows, columns ascending",
        spatial=_rows(operator),
        exact=True,
        pitched=True,
        row_pitched=True,
    )


def _rows(operator: QInterpolate) -> Spatial:
    places = operator.rows[0]
    access = RowAccess(
        input_rows=operator.inputs[0].shape[1],
        begins=tuple(places.min(axis=1).tolist()), ends=tuple((places.max(axis=1) + 1).tolist()),
    )  # fmt: skip
    return Spatial(output_rows=operator.output.shape[1], inputs=(access,))


def _body(operator: QInterpolate, stored: StoredRows, requantize: Requantize) -> str:
    (_, height, width, channels), output = operator.inputs[0].shape, operator.output.shape
    row_taps, column_taps = operator.rows[0].shape[1], operator.columns[0].shape[1]
    images, ctype = output[0] > 1, C_TYPES[operator.inputs[0].dtype]
    kept_in, kept_out, pitch = height, output[1], stored.pitch or channels
    rows: list[str] = []
    for r in range(row_taps):
        tap = plus(times("h", row_taps), r)
        place = (
            Compound(f"n * {kept_in} + {slot(f'rows[{tap}]', stored.input(0))}")
            if images
            else slot(f"rows[{tap}]", stored.input(0))
        )
        rows += [
            f"const {ctype} *row{r} = &input[{times(place, width * channels)}];",
            f"const int32_t row_weight{r} = row_weights[{tap}];",
        ]
    place = Compound(f"n * {kept_out} + {slot('h', stored.output)}") if images else slot("h", stored.output)
    rows += [f"{C_TYPES[operator.output.dtype]} *out = &output[{times(place, row_elements(stored, operator.output))}];"]
    pixel: list[str] = []
    for s in range(column_taps):
        tap = plus(times("w", column_taps), s)
        pixel += [
            f"const int32_t column{s} = {times(f'columns[{tap}]', channels)};",
            f"const int32_t column_weight{s} = column_weights[{tap}];",
        ]
    zero = signed(-quantization(operator.inputs[0]).zero_point * ONE * ONE)
    across = [
        " + ".join(f"column_weight{s} * row{r}[column{s} + c]" for s in range(column_taps)) for r in range(row_taps)
    ]
    total = " + ".join(f"row_weight{r} * ({text})" for r, text in enumerate(across))
    inner = [
        f"const int32_t sum = {total}{zero};",
        f"out[{times('w', pitch)} + c] = {requantize.call('sum', '')};",
    ]
    pixel += loop("c", channels, inner)
    return over_pixels(rows, pixel, output)


KERNEL = Kernel(
    name="qinterpolate_i8",
    title="Interpolation of quantized images: weighted sums of a few elements of a few rows",
    operator=QInterpolate,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, adds_up_to_one, rows_in_order, results_in_range),
)
