"""Softmax of vectors each of which keeps one run of its elements, by a target's loops over the run.

What a mask leaves out gets the zero point. Causal, sliding and padding masks keep runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codegen_c.c_text.text import C_TYPES, block, times
from codegen_c.kernels.contract import CFunction, Implementation, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.shared.requantize import quantization, round_shift
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.kernels.softmax import qsoftmax
from codegen_c.operators.kinds import Array, QMaskedSoftmax, QSoftmax
from tvm_ext.core.row_access import RowAccess

MASK_INSTRUCTIONS = 30


@dataclass(frozen=True, kw_only=True, eq=False)
class Runs:
    """Half-open runs that vectors keep, int32[count, 2]: vector m has run m / inner % count."""

    bounds: Array
    inner: int

    @classmethod
    def of(cls, operator: QMaskedSoftmax) -> Runs:
        shape = operator.output.shape
        mask = operator.mask.reshape((1,) * (len(shape) - operator.mask.ndim) + operator.mask.shape)
        varied = [axis for axis in range(len(shape) - 1) if mask.shape[axis] > 1] or [len(shape) - 1]
        begin, end = varied[0], min(varied[-1] + 1, len(shape) - 1)
        rows = np.broadcast_to(mask, (*mask.shape[:begin], *shape[begin:end], *mask.shape[end:-1], shape[-1]))
        kept = ~rows.reshape(-1, shape[-1])
        first, last = kept.argmax(axis=-1), shape[-1] - kept[:, ::-1].argmax(axis=-1)
        return cls(bounds=np.stack([first, last], axis=-1).astype(np.int32), inner=prod(shape[end:-1]))


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxLoops:
    """Loops over the vectors of a layer, `<function>(&layer, input, output, exponential)`.

    layer, length: the type of a layer, and its member that says how long vectors are; lines: a layer of one vector.
    """

    kernel: str
    function: str
    includes: tuple[str, ...]
    ctype: str
    layer: str
    length: str
    lines: Callable[[QSoftmax], list[str]]
    element_instructions: int
    vector_instructions: int


def keeps_runs(operator: QMaskedSoftmax, target: Target) -> bool:
    """the mask must leave each vector one run of elements"""
    kept = ~np.broadcast_to(operator.mask, operator.output.shape).reshape(-1, operator.output.shape[-1])
    edges = np.diff(kept.astype(np.int8), axis=-1, prepend=0, append=0)
    return bool((np.abs(edges).sum(axis=-1) == 2).all())


def reference(operator: QMaskedSoftmax, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    output, x = operator.output, inputs[0].astype(np.int64)
    kept = ~np.broadcast_to(operator.mask, x.shape)
    distance = np.where(kept, x, -256).max(axis=-1, keepdims=True) - x
    table = qsoftmax.exponentials(operator).astype(np.int64)
    exponential = np.where(kept, table[np.clip(distance, 0, 255)], 0)
    total = exponential.sum(axis=-1, keepdims=True)
    steps, shift = qsoftmax.reciprocal(operator)
    value = round_shift(exponential * ((steps + total // 2) // total), shift) + quantization(output).zero_point
    limits = np.iinfo(output.dtype)
    return [np.clip(value, limits.min, limits.max).astype(output.dtype)]


def implement(operator: QMaskedSoftmax, loops: SoftmaxLoops, exponentials: Array) -> Implementation:
    """The kernel; of an image, or of several vectors, by rows too. exponentials: as the loops read them."""
    shape = operator.output.shape
    vectors = prod(shape[:-1])
    rows = shape[1] if len(shape) == 4 and shape[0] == 1 else vectors

    def made(stored: StoredRows | None) -> Implementation:
        return _made(operator, loops, exponentials, vectors // rows if stored else vectors, stored)

    whole = made(None)
    return _with_rows(whole, made, rows) if rows > 1 else whole


def _with_rows(whole: Implementation, made: Callable[[StoredRows], Implementation], rows: int) -> Implementation:
    spatial = Spatial(output_rows=rows, inputs=(RowAccess.same(rows),))

    def by_rows(stored: StoredRows) -> Implementation:
        return replace(made(stored), kernel=f"{whole.kernel}_in_rows", spatial=spatial)

    return replace(whole, in_rows=by_rows)


def _made(
    operator: QMaskedSoftmax, loops: SoftmaxLoops, exponentials: Array, vectors: int, stored: StoredRows | None
) -> Implementation:
    source, output, runs = operator.inputs[0], operator.output, Runs.of(operator)
    parameters = (
        Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
        Parameter(name="exponential", ctype=loops.ctype, role="constant"),
        Parameter(name="runs", ctype="int32_t", role="constant"),
    )
    length = output.shape[-1]
    places = ["m", "m"]
    if stored is not None:
        places = [f"{times(slot('h', kept), vectors)} + m" for kept in (stored.input(0), stored.output)]
    vector = f"{times('h', vectors)} + m" if stored is not None else "m"
    row = f"({vector}){f' / {runs.inner}' if runs.inner > 1 else ''} % {len(runs.bounds)}"
    call = (
        f"$_vector(&input[({places[0]}) * {length}], &output[({places[1]}) * {length}], exponential, "
        f"&runs[2 * ({row})]);"
    )
    lines = [f"for (int32_t m = 0; m < {vectors}; ++m) {{", block(call), "}"]
    if stored is not None:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    return Implementation(
        kernel=loops.kernel,
        function=CFunction(
            parameters=(*parameters, *(ROW_PARAMETERS if stored is not None else ())),
            body="\n".join(lines), helpers=_helper(operator, loops, parameters), includes=loops.includes,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("exponential", exponentials), ("runs", runs.bounds)),
        instructions=output.num_elements * loops.element_instructions
        + output.num_elements // length * (loops.vector_instructions + MASK_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )  # fmt: skip


def _helper(operator: QMaskedSoftmax, loops: SoftmaxLoops, parameters: tuple[Parameter, ...]) -> str:
    """`$_vector(input, output, exponential, run)`: one vector."""
    *operands, _ = (parameter.declaration() for parameter in parameters)
    length, zero = operator.output.shape[-1], quantization(operator.output).zero_point
    lines = [
        *loops.lines(operator),
        f"{loops.layer} present = layer;",
        f"present.{loops.length} = run[1] - run[0];",
        "for (int32_t c = 0; c < run[0]; ++c) {", f"    output[c] = {zero};", "}",
        f"for (int32_t c = run[1]; c < {length}; ++c) {{", f"    output[c] = {zero};", "}",
        f"{loops.function}(&present, &input[run[0]], &output[run[0]], exponential);",
    ]  # fmt: skip
    declared = ", ".join([*operands, "const int32_t *run"])
    return f"static inline void $_vector({declared})\n{{\n{block(lines)}\n}}\n"
