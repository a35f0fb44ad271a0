"""Kernels for float32 products with constant matrices most of whose entries are zero, such as mel filter banks.

float32[..., C] times float32[K, C] -> float32[..., K]: a dense layer, a 1x1 convolution, or a constant matrix on the
left. A row is stored from its first to its last entry that is not zero, and only these entries are multiplied. Each
element starts at its bias and adds products with c ascending, so finite inputs give the bits of a dense layer. A row
does not read the inputs where it is zero: an infinity or NaN there has no effect on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import block, loop, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Passes, StoredRows, Target
from codegen_c.kernels.convolution import conv_f32
from codegen_c.kernels.convolution.conv_f32 import is_pointwise
from codegen_c.kernels.dense import dense_f32
from codegen_c.kernels.dense.dense_rows import in_rows
from codegen_c.kernels.matmul import matmul_f32
from codegen_c.kernels.shared.lanes import SCALAR, Finish
from codegen_c.kernels.shared.vector_rows import Rows
from codegen_c.kernels.shared.window import ROW_PARAMETERS, row_elements, slot, spatial
from codegen_c.operators.kinds import Array, ConstantMatmul, Conv2d, Dense, Matmul

HEADER = "tvm_ext_banded_f32.h"
LEAST_ZEROS = 0.5
"""Share of a matrix outside of its rows' bands from which these kernels take it."""
LONGEST = 1 << 16

# Modelled, as disassembled for a Cortex-M4: of four products (16), of each of the last ones (6), of each row (18).
FOUR_INSTRUCTIONS, ONE_INSTRUCTIONS, ROW_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 16, 6, 18, 12

Product = Conv2d | Dense | ConstantMatmul


@dataclass(frozen=True, kw_only=True, eq=False)
class Bands:
    """The rows of a matrix without the zeros at both ends.

    ranges: uint16, first column and length of each row. weights: float32, all rows one after another.
    """

    ranges: Array
    weights: Array

    @classmethod
    def of(cls, matrix: Array) -> Self:
        filled = matrix != 0
        begin = filled.argmax(axis=1)
        columns = int(matrix.shape[1])
        length = np.where(filled.any(axis=1), columns - filled[:, ::-1].argmax(axis=1) - begin, 0)
        inside = (np.arange(columns) - begin[:, np.newaxis]) % columns < length[:, np.newaxis]
        ranges = np.stack([begin, length], axis=1).astype(np.uint16)
        return cls(ranges=ranges.reshape(-1), weights=np.ascontiguousarray(matrix[inside]))

    @property
    def lengths(self) -> Array:
        return self.ranges[1::2].astype(np.int64)


def _matrix(operator: Product) -> Array:
    if isinstance(operator, ConstantMatmul):
        return operator.first.reshape(-1, operator.first.shape[-1])
    return operator.weight.reshape(len(operator.weight), -1)


def is_mostly_zero(operator: Product, target: Target) -> bool:
    """at least half of the matrix must be zeros ahead of the first and after the last other entry of its rows"""
    matrix = _matrix(operator)
    if matrix.dtype != np.float32 or matrix.shape[1] > LONGEST or np.count_nonzero(matrix) > LEAST_ZEROS * matrix.size:
        return False
    bands = Bands.of(matrix)
    return 0 < bands.weights.size <= (1 - LEAST_ZEROS) * matrix.size


def multiplies_floats(operator: ConstantMatmul, target: Target) -> bool:
    """both operands must be float32 matrices"""
    return isinstance(operator.product, Matmul)


def _rows(
    bands: Bands, finish: Finish, *, step: int, bias: str, element: Callable[[str | int], str], channel: str
) -> list[str]:
    """Return the loop over the rows of the matrix. It reads a vector at `x` with a stride of `step` elements.

    bias: expression of row k's. element: index of row k's result in the output, or in a residual input by its number.
    channel: index of channel constants.
    """
    value = finish.call(
        "sum",
        lambda operand: (
            f"channel{operand.index}[{channel}]"
            if operand.kind == "channel"
            else f"input{operand.index}[{element(operand.index)}]"
        ),
    )
    first = "x[bands[2 * k]]" if step == 1 else f"x[bands[2 * k] * {step}]"
    return [
        "const float *band = weights;",
        *loop("k", len(bands.lengths), [
            "const int32_t count = bands[2 * k + 1];",
            f"const float sum = tvm_ext_band_f32({bias}, &{first}, {step}, band, count);",
            f"output[{element('output')}] = {value};",
            "band = &band[count];",
        ]),
    ]  # fmt: skip


def _instructions(bands: Bands, finish: Finish, vectors: int) -> int:
    fours, ones = np.divmod(bands.lengths, 4)
    row = ROW_INSTRUCTIONS + finish.program.num_instructions
    products = int(fours.sum()) * FOUR_INSTRUCTIONS + int(ones.sum()) * ONE_INSTRUCTIONS
    return vectors * (VECTOR_INSTRUCTIONS + len(fours) * row + products)


def _implementation(
    kernel: Kernel, bands: Bands, finish: Finish, *, vectors: int, body: Sequence[str], bias: Array | None,
    reference: Callable[[list[Array]], list[Array]], extra: Sequence[Parameter] = (),
) -> Implementation:  # fmt: skip
    biased = bias is not None
    return Implementation(
        kernel=kernel.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype="float", role="input"),
                *finish.input_parameters(),
                Parameter(name="output", ctype="float", role="output"),
                Parameter(name="bands", ctype="uint16_t", role="constant"),
                Parameter(name="weights", ctype="float", role="constant"),
                *([Parameter(name="bias", ctype="float", role="constant")] if biased else []),
                *finish.constant_parameters(),
                *extra,
            ),
            body="\n".join(body), helpers=finish.helper(SCALAR), includes=(HEADER, "tvm_ext_layer.h"),
        ),
        reference=reference,
        constants=(
            ("bands", bands.ranges), ("weights", bands.weights), *([("bias", bias)] if bias is not None else []),
            *finish.constants(),
        ),
        macs=vectors * bands.weights.size,
        instructions=_instructions(bands, finish, vectors),
        passes=Passes(constants=float(vectors), input=2.0),
        accumulation="bias, then c ascending",
    )  # fmt: skip


def _dense(operator: Dense, target: Target, stored: StoredRows) -> Implementation:
    bands, finish = Bands.of(operator.weight), Finish(program=operator.finish)
    channels, depth = operator.weight.shape
    count = operator.output.num_elements // channels

    def vectors(count: int) -> Implementation:
        def element(_: str | int) -> str:
            return f"{times('m', channels)} + k"

        rows = _rows(bands, finish, step=1, bias="bias[k]", element=element, channel="k")
        body = loop("m", count, [f"const float *const x = &input[{times('m', depth)}];", *rows])
        return _implementation(
            DENSE, bands, finish, vectors=count, body=body, bias=operator.bias,
            reference=lambda inputs: dense_f32.reference(operator, inputs),
        )  # fmt: skip

    def row(part: Dense, rows: Rows) -> Implementation:
        return vectors(1)

    return replace(vectors(count), in_rows=in_rows(operator, row) if count > 1 else None)


def _pointwise(operator: Conv2d, target: Target, stored: StoredRows) -> Implementation:
    bands, finish = Bands.of(_matrix(operator)), Finish(program=operator.finish)
    images, height, columns, depth = operator.inputs[0].shape
    channels = operator.output.shape[3]

    def pixel(index: int | None, width: int, row_width: int) -> str:
        """Return the index of the first element of pixel (h, w) in the output, or in an input by its number."""
        row = slot("h", stored.output if index is None else stored.input(index))
        row = f"(n * {height} + {row})" if images > 1 else row
        return f"{times(row, row_width)} + {times('w', width)}"

    def element(which: str | int) -> str:
        if which == "output":
            return f"{pixel(None, stored.pitch or channels, row_elements(stored, operator.output))} + k"
        return f"{pixel(int(which), channels, columns * channels)} + k"

    rows = _rows(bands, finish, step=1, bias="bias[k]", element=element, channel="k")
    lines = loop("w", columns, [f"const float *const x = &input[{pixel(0, depth, columns * depth)}];", *rows])
    lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    made = _implementation(
        POINTWISE, bands, finish, vectors=images * height * columns, extra=ROW_PARAMETERS, bias=operator.bias,
        body=loop("n", images, lines) if images > 1 else lines,
        reference=lambda inputs: conv_f32.reference(operator, inputs),
    )  # fmt: skip
    by_rows = spatial(operator.window, operator.inputs[0], operator.output, len(finish.residuals()))
    return replace(made, spatial=by_rows, pitched=True, row_pitched=True)


def _columns(operator: ConstantMatmul, target: Target, stored: StoredRows) -> Implementation:
    product = operator.product
    assert isinstance(product, Matmul), "constraints have tested it"
    bands, finish, columns = Bands.of(_matrix(operator)), Finish(program=product.finish), product.shape.columns
    rows = _rows(
        bands, finish, step=columns, bias="0.0f", element=lambda _: f"{times('k', columns)} + column", channel="column"
    )
    body = loop("column", columns, ["const float *const x = &input[column];", *rows])
    return _implementation(
        COLUMNS, bands, finish, vectors=columns, body=body, bias=None,
        reference=lambda inputs: matmul_f32.reference(product, [operator.first, *inputs]),
    )  # fmt: skip


DENSE = Kernel(
    name="banded_dense_f32",
    title="Dense layer in float32 whose weights are mostly zeros around a band in each row, such as mel filters",
    operator=Dense,
    implement=_dense,
    constraints=(is_mostly_zero,),
)
POINTWISE = Kernel(
    name="banded_pointwise_f32",
    title="1x1 convolution in float32 whose weights are mostly zeros around a band in each row",
    operator=Conv2d,
    implement=_pointwise,
    constraints=(is_pointwise, is_mostly_zero),
)
COLUMNS = Kernel(
    name="banded_columns_f32",
    title="Product of a constant float32 matrix of mostly zeros with a matrix on its right",
    operator=ConstantMatmul,
    implement=_columns,
    constraints=(multiplies_floats, is_mostly_zero),
)
KERNELS = (DENSE, POINTWISE, COLUMNS)
