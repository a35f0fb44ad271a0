"""Kernel for products of two quantized activations, integers only: attention scores and sums of values.

int8 or uint8 tensors of any layout that `MatmulShape` describes, sums in int32 of (a - its zero point) * (b - its zero
point) with c ascending, one factor for all elements. Either rounding. Rows of the output are those of the first tensor;
the second tensor is read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from codegen_c.c_text.text import C_TYPES, Value
from codegen_c.kernels.contract import (
    CFunction,
    Constraint,
    Implementation,
    Kernel,
    Parameter,
    Spatial,
    StoredRows,
    Target,
)
from codegen_c.kernels.matmul.heads import spatial, sums_of
from codegen_c.kernels.shared.layer import BLOCK_INCLUDES, image, rescale, shapes, with_rings
from codegen_c.kernels.shared.product_kernel import SCRATCH
from codegen_c.kernels.shared.requantize import (
    Requantize,
    largest_distance,
    quantization,
    quantized_bytes,
    results_fit,
    scale_of,
)
from codegen_c.kernels.shared.window import ROW_PARAMETERS
from codegen_c.operators.kinds import Array, QMatmul, TensorType

LAYER = "tvm_ext_qmatmul_layer"
MAC_INSTRUCTIONS, RESULT_INSTRUCTIONS = 6, 24


def reference(operator: QMatmul, inputs: list[Array]) -> list[Array]:
    """The operator in numpy, bit for bit."""
    shape, (first, second) = operator.shape, operator.inputs
    a = inputs[0].astype(np.int64) - quantization(first).zero_point
    b = inputs[1].astype(np.int64) - quantization(second).zero_point
    return [requantize(operator).run(sums_of(shape, a, b)).reshape(operator.output.shape)]


def sums_fit(operator: QMatmul, target: Target) -> bool:
    """products must add up to less than 2^31, and to less than 2^30 steps of the output"""
    low, high = bounds(operator)
    return bool(high[0] < 1 << 31) and results_fit(low, high, factor(operator))


def bounds(operator: QMatmul) -> tuple[Array, Array]:
    """Return bounds of every partial sum, int64[1] each."""
    largest = largest_distance(operator.inputs[0]) * largest_distance(operator.inputs[1]) * operator.shape.depth
    return np.array([-largest]), np.array([largest])


def factor(operator: QMatmul) -> Array:
    """Return the output steps of one unit of a sum, float64[1].

    TensorFlow Lite multiplies the scales in single precision.
    """
    first, second = (scale_of(tensor) for tensor in operator.inputs)
    product = float(np.float32(first) * np.float32(second)) if operator.rounding == "tflite" else first * second
    return np.array([product * operator.scale / scale_of(operator.output)])


def requantize(operator: QMatmul) -> Requantize:
    return Requantize.of(
        factor(operator), output=operator.output, low=operator.low, high=operator.high, rounding=operator.rounding
    )


def images(operator: QMatmul) -> tuple[TensorType, TensorType]:
    """Return the first tensor and the output as images with a vector in each pixel."""
    shape, (first, _) = operator.shape, operator.inputs
    return (
        replace(first, shape=(1, *shape.outer, shape.depth)),
        replace(operator.output, shape=(1, *shape.outer, shape.columns)),
    )


def second_members(operator: QMatmul) -> dict[str, Value]:
    """Return a `tvm_ext_matrices` of tvm_ext_qmatmul.h."""
    shape, second = operator.shape, operator.inputs[1]
    head, column, element = shape.steps
    return {
        "heads": shape.heads, "depth": shape.depth, "columns": shape.columns, "heads_inside": shape.heads_inside,
        "head_step": head, "column_step": column, "element_step": element,
        "is_unsigned": second.dtype == "uint8", "zero_point": quantization(second).zero_point,
    }  # fmt: skip


def operands(operator: QMatmul) -> tuple[Parameter, Parameter, Parameter]:
    """Return the parameters of the three tensors."""
    first, second = operator.inputs
    return (
        Parameter(name="input", ctype=C_TYPES[first.dtype], role="input"),
        Parameter(name="second", ctype=C_TYPES[second.dtype], role="input"),
        Parameter(name="output", ctype=C_TYPES[operator.output.dtype], role="output"),
    )


def num_macs(operator: QMatmul) -> int:
    return operator.output.num_elements * operator.shape.depth


# The kernel of all targets: loops over heads and rows in a header, which take the shapes of the layer as one structure.


@dataclass(frozen=True, kw_only=True)
class MatmulParts:
    """Parts of a product of activations that differ by target.

    layer: type of the structure that holds the shapes. members: members of it besides images and matrices.
    first, second: members of the first tensor and of the matrices that differ from those of portable C.
    call: the loops, a function of the header, and its arguments. statements: C before the call.
    functions: definitions of C functions that the loops call. parameters, constants: factors.
    scratch_bytes: the function has a scratch parameter if this is above zero.
    instructions, spatial, accumulation: as in `Implementation`.
    """

    layer: str
    members: Mapping[str, Value]
    call: str
    includes: tuple[str, ...]
    instructions: int
    spatial: Spatial
    first: Mapping[str, Value] = field(default_factory=dict[str, Value])
    second: Mapping[str, Value] = field(default_factory=dict[str, Value])
    statements: Sequence[str] = ()
    functions: Sequence[str] = ()
    parameters: tuple[Parameter, ...] = ()
    constants: tuple[tuple[str, Array], ...] = ()
    scratch_bytes: int = 0
    accumulation: str = "exact"


def matmul_kernel(
    name: str,
    title: str,
    parts: Callable[[QMatmul, StoredRows, Target], MatmulParts],
    constraints: tuple[Constraint, ...],
) -> Kernel:
    """Return the kernel of a target. In the call, `$layer` stands for the shapes of the layer."""

    def implement(operator: QMatmul, target: Target, stored: StoredRows) -> Implementation:
        made = parts(operator, stored, target)
        first, output = images(operator)
        rings, layer = with_rings(made.layer, stored)
        members: dict[str, Value] = {
            "input": {**image(first), **made.first}, "output": image(output),
            "second": {**second_members(operator), **made.second}, **made.members,
        }  # fmt: skip
        scratch = (SCRATCH,) if made.scratch_bytes else ()
        return Implementation(
            kernel=name,
            function=CFunction(
                parameters=(*operands(operator), *made.parameters, *scratch, *ROW_PARAMETERS),
                body="\n".join([*rings, *made.statements, made.call.replace("$layer", layer)]),
                helpers="\n".join([shapes(made.layer, members), *made.functions]),
                includes=made.includes,
            ),
            reference=lambda inputs: reference(operator, inputs),
            constants=made.constants,
            scratch_bytes=made.scratch_bytes,
            macs=num_macs(operator),
            instructions=made.instructions,
            accumulation=made.accumulation,
            spatial=made.spatial,
            exact=True,
        )

    return Kernel(name=name, title=title, operator=QMatmul, implement=implement, constraints=constraints)


# Portable C.


def _parts(operator: QMatmul, stored: StoredRows, target: Target) -> MatmulParts:
    finish = requantize(operator)
    return MatmulParts(
        layer=LAYER,
        members={"rescale": rescale(finish)},
        statements=finish.tables(),
        call="tvm_ext_qmatmul($layer, input, second, output, multiplier, shift, row_begin, row_end);",
        includes=("tvm_ext_qmatmul.h", "tvm_ext_matrices.h", *BLOCK_INCLUDES),
        instructions=num_macs(operator) * MAC_INSTRUCTIONS + operator.output.num_elements * RESULT_INSTRUCTIONS,
        accumulation="c ascending",
        spatial=spatial(operator.shape),
    )


CONSTRAINTS = (quantized_bytes, sums_fit)
KERNEL = matmul_kernel("qmatmul_i8", "Product of two quantized activations", _parts, CONSTRAINTS)
