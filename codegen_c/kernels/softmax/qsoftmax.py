"""Kernels for softmax over the last axis of a quantized tensor, integers only, also with a mask."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value, block, loop, structure, times
from codegen_c.kernels.contract import CFunction, Implementation, Kernel, Parameter, Spatial, StoredRows, Target
from codegen_c.kernels.shared.layer import image
from codegen_c.kernels.shared.requantize import (
    MAX_SHIFT,
    quantization,
    quantized_bytes,
    results_fit,
    round_shift,
    rounds_once,
    scale_of,
)
from codegen_c.kernels.shared.vector_rows import in_turn
from codegen_c.kernels.shared.window import ROW_PARAMETERS, slot
from codegen_c.operators.kinds import Array, QMaskedSoftmax, QSoftmax
from tvm_ext.core.row_access import RowAccess
from tvm_ext.core.time_model import IN_ROWS

# Softmax over the last axis of a quantized tensor, integers only: a table of exponentials, one division per row.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C], C up to 65535. exp((x - max) * scale) comes from a table with 30
# fractional bits; the sum is exact. One rounded division per row gives the factor from an exponential to output steps,
# and each element is rounded "onnx" (halves to even). Within 1 step of round(softmax / scale).

EXPONENTIAL_BITS = 30
# Divided by a sum of at least 2^30, a reciprocal of 60 bits leaves a factor of at most 2^30.
RECIPROCAL_BITS = 60
MAX_LENGTH = 65535
INCLUDES = ("tvm_ext_qsoftmax.h", "tvm_ext_layer.h", "tvm_ext_requantize.h")
ELEMENT_INSTRUCTIONS, VECTOR_INSTRUCTIONS = 33, 60


def reference(operator: QSoftmax, inputs: list[np.ndarray]) -> list[np.ndarray]:
    """The operator in numpy, bit for bit."""
    output, x = operator.output, inputs[0].astype(np.int64)
    exponential = exponentials(operator).astype(np.int64)[x.max(axis=-1, keepdims=True) - x]
    total = exponential.sum(axis=-1, keepdims=True)
    steps, shift = reciprocal(operator)
    factor = (steps + total // 2) // total
    value = round_shift(exponential * factor, shift) + quantization(output).zero_point
    limits = np.iinfo(output.dtype)
    return [np.clip(value, limits.min, limits.max).astype(output.dtype)]


def rows_are_short(operator: QSoftmax, target: Target) -> bool:
    """the last axis must have 1 to 65535 elements"""
    return 1 <= operator.inputs[0].shape[-1] <= MAX_LENGTH


def results_in_range(operator: QSoftmax, target: Target) -> bool:
    """a probability of one must stay below 2^30 steps of the output"""
    return results_fit(np.array(0), np.array(1), np.array(1 / scale_of(operator.output)))


def exponentials(operator: QSoftmax) -> np.ndarray:
    """Return exp(-d * input scale) for d = 0 to 255, times 2^30: int32[256]."""
    scale = scale_of(operator.inputs[0])
    return np.array([round(math.exp(-d * scale) * (1 << EXPONENTIAL_BITS)) for d in range(256)], dtype=np.int32)


def reciprocal(operator: QSoftmax) -> tuple[int, int]:
    """Return (reciprocal, shift) with reciprocal / 2^shift nearest to 1 / output scale, the reciprocal at most 2^60.

    The reciprocal is 0 if a probability of one is less than half a step.
    """
    steps = 1 / scale_of(operator.output)
    shift = RECIPROCAL_BITS - math.frexp(steps)[1]
    return (round(math.ldexp(steps, shift)), shift) if shift <= MAX_SHIFT else (0, 1)


def implement(operator: QSoftmax, target: Target, stored: StoredRows) -> Implementation:
    def vectors(count: int) -> Implementation:
        return _of_vectors(operator, count)

    whole = vectors(operator.output.num_elements // operator.output.shape[-1])
    return replace(whole, in_rows=in_turn(operator, vectors))


def _of_vectors(operator: QSoftmax, rows: int) -> Implementation:
    source, output = operator.inputs[0], operator.output
    return Implementation(
        kernel=QSOFTMAX.name,
        function=CFunction(
            parameters=(
                Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                Parameter(name="exponential", ctype="int32_t", role="constant"),
            ),
            body=_body(operator, rows),
            includes=INCLUDES,
        ),
        reference=lambda inputs: reference(operator, inputs),
        constants=(("exponential", exponentials(operator)),),
        instructions=rows * (output.shape[-1] * ELEMENT_INSTRUCTIONS + VECTOR_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )


def layer_of(operator: QSoftmax, rows: int) -> list[str]:
    """Return the lines of the layer's shapes and constants for tvm_ext_qsoftmax.h."""
    source, output = operator.inputs[0], operator.output
    steps, shift = reciprocal(operator)
    limits, length = np.iinfo(output.dtype), source.shape[-1]
    members: dict[str, Value] = {
        "input": image(replace(source, shape=(1, rows, 1, length))), "steps": f"INT64_C({steps})", "shift": shift,
        "zero_point": quantization(output).zero_point, "low": int(limits.min), "high": int(limits.max),
    }  # fmt: skip
    return structure("tvm_ext_qsoftmax_layer", "layer", members)


def _body(operator: QSoftmax, rows: int) -> str:
    """Return the layer, and a call of the loops of tvm_ext_qsoftmax.h."""
    return "\n".join([*layer_of(operator, rows), "tvm_ext_qsoftmax(&layer, input, output, exponential);"])


QSOFTMAX = Kernel(
    name="qsoftmax_i8",
    title="Quantized softmax over the last axis",
    operator=QSoftmax,
    implement=implement,
    constraints=(rounds_once, quantized_bytes, rows_are_short, results_in_range),
)


# Softmax of vectors that each keep one run of their elements, by a target's loops over the run.
#
# Masked elements become the zero point. Causal, sliding and padding masks keep runs.

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

    layer, length: the type of a layer, and its member for the length of vectors. lines: a layer of one vector.
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


def masked_reference(operator: QMaskedSoftmax, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    output, x = operator.output, inputs[0].astype(np.int64)
    kept = ~np.broadcast_to(operator.mask, x.shape)
    distance = np.where(kept, x, -256).max(axis=-1, keepdims=True) - x
    table = exponentials(operator).astype(np.int64)
    exponential = np.where(kept, table[np.clip(distance, 0, 255)], 0)
    total = exponential.sum(axis=-1, keepdims=True)
    steps, shift = reciprocal(operator)
    value = round_shift(exponential * ((steps + total // 2) // total), shift) + quantization(output).zero_point
    limits = np.iinfo(output.dtype)
    return [np.clip(value, limits.min, limits.max).astype(output.dtype)]


def masked_implement(operator: QMaskedSoftmax, loops: SoftmaxLoops, exponentials: Array) -> Implementation:
    """Return the kernel; for an image, or for several vectors, also by rows.

    exponentials: in the layout of the loops.
    """
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
        return replace(made(stored), kernel=f"{whole.kernel}{IN_ROWS}", spatial=spatial)

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
    lines = loop("m", vectors, [call])
    if stored is not None:
        lines = ["for (int32_t h = row_begin; h < row_end; ++h) {", block(lines), "}"]
    return Implementation(
        kernel=loops.kernel,
        function=CFunction(
            parameters=(*parameters, *(ROW_PARAMETERS if stored is not None else ())),
            body="\n".join(lines), helpers=_helper(operator, loops, parameters), includes=loops.includes,
        ),
        reference=lambda inputs: masked_reference(operator, inputs),
        constants=(("exponential", exponentials), ("runs", runs.bounds)),
        instructions=output.num_elements * loops.element_instructions
        + output.num_elements // length * (loops.vector_instructions + MASK_INSTRUCTIONS),
        accumulation="exact",
        in_place=(0,),
        exact=True,
    )  # fmt: skip


def _helper(operator: QMaskedSoftmax, loops: SoftmaxLoops, parameters: tuple[Parameter, ...]) -> str:
    """Return `$_vector(input, output, exponential, run)`, which computes one vector."""
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


# Softmax of a quantized tensor over its last axis with a mask, integers only: the portable kernel on the kept run.
#
# int8 or uint8[..., C] -> int8 or uint8[..., C]. Masked elements become the output's zero point.

LOOPS = SoftmaxLoops(
    kernel="qsoftmax_masked_i8", function="tvm_ext_qsoftmax", includes=INCLUDES, ctype="int32_t",
    layer="tvm_ext_qsoftmax_layer", length="input.channels", lines=lambda operator: layer_of(operator, 1),
    element_instructions=ELEMENT_INSTRUCTIONS, vector_instructions=VECTOR_INSTRUCTIONS,
)  # fmt: skip


def qsoftmax_masked_implement(operator: QMaskedSoftmax, target: Target, stored: StoredRows) -> Implementation:
    return masked_implement(operator, LOOPS, exponentials(operator))


QSOFTMAX_MASKED = Kernel(
    name=LOOPS.kernel,
    title="Quantized softmax over the last axis with a mask",
    operator=QMaskedSoftmax, implement=qsoftmax_masked_implement,
    constraints=(*QSOFTMAX.constraints, keeps_runs),
)  # fmt: skip


# Softmax kernels of targets: vectors one after the other, with the bytes of the portable kernel, whole or by rows.
#
# A probability's high product is rounded directly if no product of its vector can be a tie, which the trailing zeros of
# the vector's factor show.

LEAST_SHIFT = 33


def has_several_vectors(operator: QSoftmax, target: Target) -> bool:
    """one vector is left to the portable kernel, whose code is smaller"""
    return operator.output.num_elements > operator.output.shape[-1]


def high_product_fits(operator: QSoftmax, target: Target) -> bool:
    """a step of the output must be at most 1/64 and more than 2^-27, so that a high product holds its results"""
    return LEAST_SHIFT <= reciprocal(operator)[1] <= LEAST_SHIFT + 20


CONSTRAINTS = (*QSOFTMAX.constraints, has_several_vectors, high_product_fits)


@dataclass(frozen=True, kw_only=True, eq=False)
class SoftmaxVectors:
    """A target's loops over vectors, `<function>(&layer, input, output, exponential)` on a `tvm_ext_softmax_layer`.

    ctype: of the exponentials.
    """

    kernel: str
    function: str
    includes: tuple[str, ...]
    ctype: str
    element_instructions: int
    vector_instructions: int

    def implement(self, operator: QSoftmax, exponentials: Array) -> Implementation:
        """Return the kernel. exponentials: in the layout of the loops."""

        def vectors(count: int) -> Implementation:
            return self._of(operator, exponentials, count)

        whole = vectors(operator.output.num_elements // operator.output.shape[-1])
        return replace(whole, in_rows=in_turn(operator, vectors))

    def layer_of(self, operator: QSoftmax, count: int) -> list[str]:
        """Return the lines of a `tvm_ext_softmax_layer` of `count` vectors."""
        source, output = operator.inputs[0], operator.output
        length, limits = output.shape[-1], np.iinfo(output.dtype)
        steps, shift = reciprocal(operator)
        members: dict[str, Value] = {
            "vectors": count, "length": length, "is_unsigned": source.dtype == "uint8", "steps": f"INT64_C({steps})",
            "shift": shift, "zero_point": quantization(output).zero_point, "low": int(limits.min),
            "high": int(limits.max),
        }  # fmt: skip
        return structure("tvm_ext_softmax_layer", "layer", members)

    def masked(self) -> SoftmaxLoops:
        """Return the loops for masked layers, which compute vectors one by one."""
        return SoftmaxLoops(
            kernel=self.kernel.replace("softmax", "softmax_masked"), function=self.function, includes=self.headers,
            ctype=self.ctype, layer="tvm_ext_softmax_layer", length="length",
            lines=lambda operator: self.layer_of(operator, 1), element_instructions=self.element_instructions,
            vector_instructions=self.vector_instructions,
        )  # fmt: skip

    @property
    def headers(self) -> tuple[str, ...]:
        return (*self.includes, "tvm_ext_softmax_layer.h")

    def _of(self, operator: QSoftmax, exponentials: Array, count: int) -> Implementation:
        source, output = operator.inputs[0], operator.output
        return Implementation(
            kernel=self.kernel,
            function=CFunction(
                parameters=(
                    Parameter(name="input", ctype=C_TYPES[source.dtype], role="input"),
                    Parameter(name="output", ctype=C_TYPES[output.dtype], role="output"),
                    Parameter(name="exponential", ctype=self.ctype, role="constant"),
                ),
                body="\n".join(
                    [*self.layer_of(operator, count), f"{self.function}(&layer, input, output, exponential);"]
                ),
                includes=self.headers,
            ),
            reference=lambda inputs: reference(operator, inputs),
            constants=(("exponential", exponentials),),
            instructions=count * (output.shape[-1] * self.element_instructions + self.vector_instructions),
            accumulation="exact",
            in_place=(0,),
            exact=True,
        )


KERNELS = (QSOFTMAX, QSOFTMAX_MASKED)
