"""Lower products of two activations to operators: matmul, and einsum if axes have another order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from string import ascii_lowercase, ascii_uppercase

import numpy as np

from codegen_c.composites.chains import QuantizedChain, QuantizedConstant, after_anchor
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.operators.kinds import Array, ConstantMatmul, Matmul, MatmulShape, QMatmul, Quantization, TensorType
from codegen_c.operators.scalar import Instruction, ScalarProgram

Labels = tuple[str, str, str]
"""A letter for each axis of the two operands and of the result, as in einsum."""
Product = Matmul | QMatmul | ConstantMatmul
_CONSTANT = -1
"""Stands for the parameter of a constant operand, which is no input of its composite."""


def product_operator(chain: QuantizedChain, anchor: Call) -> tuple[Product, tuple[int, ...]] | NoMatch:
    """Return the product of two activations of a chain, with a number that multiplies or divides it.

    The first operand may be a constant matrix.
    """
    matrix = chain.constants.get(anchor.operands[0].var) if anchor.name == "matmul" else None
    if matrix is not None and (matrix.scale.size != 1 or matrix.data.dtype not in (np.int8, np.uint8)):
        return NoMatch("its constant matrix has several scales")
    arguments = [chain.parameter(value) for value in anchor.operands[0 if matrix is None else 1 :]]
    known = tuple(index for index in arguments if index is not None)
    constants = () if matrix is None else (_matrix_type(matrix),)
    scale = _scale(chain)
    if len(anchor.operands) != 2 or len(known) != len(arguments) or scale is None:
        return NoMatch("more than a positive number and a clamp follows a product of two activations")
    inputs = tuple(chain.inputs[index] for index in known)
    shape = _shape(anchor, (*constants, *inputs), is_constant=matrix is not None)
    if isinstance(shape, NoMatch):
        return shape
    product = QMatmul(
        inputs=(*constants, *inputs), outputs=(chain.output,), shape=shape, scale=scale, low=chain.low, high=chain.high,
        rounding=chain.rounding,
    )  # fmt: skip
    return _with_constant(product, None if matrix is None else matrix.data), known


def _matrix_type(matrix: QuantizedConstant) -> TensorType:
    scale, zero_point = float(matrix.scale.reshape(-1)[0]), int(matrix.zero_point.reshape(-1)[0])
    quantization = Quantization(scale=scale, zero_point=zero_point)
    return TensorType(shape=matrix.data.shape, dtype=str(matrix.data.dtype), quantization=quantization)


def _shape(anchor: Call, operands: Sequence[TensorType], *, is_constant: bool) -> MatmulShape | NoMatch:
    """Return the axes of a product. is_constant: the first operand is a constant, then both are single matrices."""
    first, second = (operand.shape for operand in operands[:2])
    if not is_constant:
        return matmul_shape(anchor, first, second)
    if min(len(first), len(second)) < 2 or prod(first[:-2]) != 1 or prod(second[:-2]) != 1:
        return NoMatch("its operands are not two matrices")
    return matmul_shape(anchor, first[-2:], second[-2:])


def _with_constant(product: Matmul | QMatmul, matrix: Array | None) -> Product:
    """Return the product, or where its first operand is a constant matrix, the operator that carries the matrix."""
    if matrix is None:
        return product
    return ConstantMatmul(inputs=product.inputs[1:], outputs=product.outputs, product=product, first=matrix)


def float_product(composite: Composite, anchor: Call) -> tuple[Product, tuple[int, ...]] | NoMatch:
    """Return the float product of two activations, with the element-wise operators that follow it.

    The first operand may be a constant matrix.
    """
    matrix = anchor.operands[0].array if anchor.name == "matmul" else None
    if matrix is not None and matrix.dtype == np.float32:
        # The constant stands for an input that the composite does not have.
        anchor = replace(anchor, operands=(CallOperand(parameter=_CONSTANT), *anchor.operands[1:]))
    else:
        matrix = None
    arguments = [operand.parameter for operand in anchor.operands]
    if len(arguments) != 2 or None in arguments:
        return NoMatch("is no product of two activations")
    after = after_anchor(composite, anchor, takes_bias=False, num_operands=2)
    if isinstance(after, NoMatch):
        return after
    builder, _ = after
    constants = () if matrix is None else (TensorType(shape=matrix.shape, dtype="float32"),)
    read = (composite.inputs[index] for index in arguments if index not in (None, _CONSTANT))
    shape = _shape(anchor, (*constants, *read), is_constant=matrix is not None)
    if isinstance(shape, NoMatch):
        return shape
    own = tuple(index for index in builder.inputs if index != _CONSTANT)
    operands, finish = (*constants, *(composite.inputs[index] for index in own)), _with_factors(builder.program())
    product = Matmul(inputs=operands, outputs=composite.outputs, shape=shape, finish=finish)
    return _with_constant(product, matrix), own


def _with_factors(program: ScalarProgram) -> ScalarProgram:
    """Return the program with divisions by a number replaced by multiplications, which vectors of floats support."""

    def factor(instruction: Instruction) -> Instruction:
        if instruction.function != "divide" or instruction.operands[1].kind != "number":
            return instruction
        first, number = instruction.operands
        is_usual = 1e-30 < abs(number.number) < 1e30  # its inverse neither overflows nor becomes subnormal
        inverse = replace(number, number=1 / number.number) if is_usual else number
        return Instruction(function="multiply", operands=(first, inverse)) if is_usual else instruction

    return replace(program, instructions=tuple(map(factor, program.instructions)))


def _scale(chain: QuantizedChain) -> float | None:
    """Return the positive number that multiplies or divides a product; None if anything else follows the product."""
    if not chain.body[1:]:
        return 1.0
    call, *others = chain.body[1:]
    known = (
        chain.constants[value.var].real if value.var in chain.constants else value.array for value in call.operands
    )
    numbers = [array for array in known if array is not None and array.size == 1]
    if others or len(numbers) != 1 or call.name not in ("multiply", "divide"):
        return None
    number = float(numbers[0].reshape(-1)[0])
    is_divisor = call.name == "divide"
    first = call.operands[0]
    if not 0 < number < np.inf or (is_divisor and (first.array is not None or first.var in chain.constants)):
        return None
    return 1 / number if is_divisor else number


def matmul_shape(anchor: Call, first: tuple[int, ...], second: tuple[int, ...]) -> MatmulShape | NoMatch:
    """Return the axes of a product as rows, heads, depth and columns. Heads are axes that all three tensors have."""
    labels = _labels(anchor, first, second)
    if labels is None:
        return NoMatch("its operands are not stacks of matrices")
    a, b, result = labels
    extents = dict(zip((*b, *a), (*second, *first), strict=True))
    # Axes of extent 1 are neither rows nor heads.
    wide = [label for label in a[:-1] if extents[label] > 1]
    heads, rows = [label for label in wide if label in b], [label for label in wide if label not in b]
    columns = [label for label in b if label not in a and extents[label] > 1] or [result[-1]]
    if (*a[:-1],) != (*result[:-1],) or a[-1] not in b or columns != [result[-1]] or wide not in (
        rows + heads, heads + rows
    ):  # fmt: skip
        return NoMatch("its axes are not rows and heads in one order")
    steps = _steps(b, extents)
    # One stride must reach all heads of the second tensor.
    if any(steps[one] != steps[other] * extents[other] for one, other in pairwise(heads)):
        return NoMatch("its heads are not evenly spaced")
    return MatmulShape(
        rows=prod(extents[label] for label in rows), heads=prod(extents[label] for label in heads),
        depth=extents[a[-1]], columns=extents[result[-1]], heads_inside=wide == rows + heads,
        steps=(steps[heads[-1]] if heads else 0, steps.get(result[-1], 1), steps[a[-1]]),
    )  # fmt: skip


def _labels(anchor: Call, first: tuple[int, ...], second: tuple[int, ...]) -> Labels | None:
    """Return the labels of all axes, or None if the product is not a stack of matrix products."""
    if anchor.name == "einsum":
        operands, _, result = str(anchor.attrs.subscripts).replace(" ", "").partition("->")
        a, _, b = operands.partition(",")
        simple = len(a) == len(first) and len(b) == len(second) and all(len(set(x)) == len(x) for x in (a, b, result))
        return (a, b, result) if simple and result and "," not in b else None
    if min(len(first), len(second)) < 2 or len(second) > len(first):
        return None
    *batch, row, depth, column = ascii_lowercase[: len(first) + 1]
    shared: list[str] = []
    stacks = zip(second[:-2], first[len(first) - len(second) : -2], batch[len(first) - len(second) :], strict=True)
    for own, (extent, other, label) in zip(ascii_uppercase, stacks, strict=False):
        if extent not in (1, other):
            return None
        shared.append(label if extent == other else own)  # one matrix for all along this axis
    return "".join([*batch, row, depth]), "".join([*shared, depth, column]), "".join([*batch, row, column])


def _steps(labels: str, extents: Mapping[str, int]) -> dict[str, int]:
    """Return the stride of each axis of a tensor, in elements."""
    return {label: prod(extents[other] for other in labels[place + 1 :]) for place, label in enumerate(labels)}
