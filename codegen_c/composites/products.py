"""Lower products of two activations to operators: matmul, and einsum if axes have another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from math import prod
from string import ascii_lowercase, ascii_uppercase

import numpy as np

from codegen_c.composites.chains import QuantizedChain, after_anchor, inputs_of
from codegen_c.composites.graph import Call, CallOperand, Composite, NoMatch
from codegen_c.operators.kinds import ConstantMatmul, Matmul, MatmulShape, QMatmul, Quantization, TensorType
from codegen_c.operators.scalar import Instruction, ScalarProgram

Labels = tuple[str, str, str]
"""A letter for each axis of the two operands and of the result, as in einsum."""


def product_operator(chain: QuantizedChain, anchor: Call) -> tuple[QMatmul | ConstantMatmul, tuple[int, ...]] | NoMatch:
    """Return the product of two activations of a chain, with a number that multiplies or divides it.

    The first operand may be a constant matrix.
    """
    if anchor.operands[0].var in chain.constants and anchor.name == "matmul":
        return _quantized_constant_first(chain, anchor)
    arguments = [chain.parameter(value) for value in anchor.operands]
    scale = _scale(chain.body[1:])
    if len(arguments) != 2 or None in arguments or scale is None:
        return NoMatch("more than a positive number and a clamp follows a product of two activations")
    first, second = (chain.inputs[index] for index in arguments if index is not None)
    shape = matmul_shape(anchor, first.shape, second.shape)
    if isinstance(shape, NoMatch):
        return shape
    operator = QMatmul(
        inputs=(first, second), outputs=(chain.output,), shape=shape, scale=scale, low=chain.low, high=chain.high,
        rounding=chain.rounding,
    )  # fmt: skip
    return operator, tuple(index for index in arguments if index is not None)


def _quantized_constant_first(chain: QuantizedChain, anchor: Call) -> tuple[ConstantMatmul, tuple[int, ...]] | NoMatch:
    known, index, scale = (
        chain.constants[anchor.operands[0].var],
        chain.parameter(anchor.operands[1]),
        _scale(chain.body[1:]),
    )
    if index is None or scale is None or known.scale.size != 1 or known.data.dtype not in (np.int8, np.uint8):
        return NoMatch("more than a clamp follows the product, or its matrix has several scales")
    quantization = Quantization(
        scale=float(known.scale.reshape(-1)[0]), zero_point=int(known.zero_point.reshape(-1)[0])
    )
    matrix = TensorType(shape=known.data.shape, dtype=str(known.data.dtype), quantization=quantization)
    second = chain.inputs[index]
    shape = _constant_shape(matrix.shape, second.shape)
    if isinstance(shape, NoMatch):
        return shape
    product = QMatmul(
        inputs=(matrix, second), outputs=(chain.output,), shape=shape, scale=scale, low=chain.low, high=chain.high,
        rounding=chain.rounding,
    )  # fmt: skip
    return ConstantMatmul(inputs=(second,), outputs=product.outputs, product=product, first=known.data), (index,)


def _constant_shape(first: tuple[int, ...], second: tuple[int, ...]) -> MatmulShape | NoMatch:
    """Return the axes of a product of a single constant matrix with a single matrix."""
    if min(len(first), len(second)) < 2 or prod(first[:-2]) != 1 or prod(second[:-2]) != 1:
        return NoMatch("its operands are not two matrices")
    depth, columns = second[-2:]
    return MatmulShape(rows=first[-2], heads=1, depth=depth, columns=columns, heads_inside=True, steps=(0, 1, columns))


def _float_constant_first(composite: Composite, anchor: Call) -> tuple[ConstantMatmul, tuple[int, ...]] | NoMatch:
    array, index = anchor.operands[0].array, anchor.operands[1].parameter
    if array is None or index is None or array.dtype != np.float32:
        return NoMatch("is no product of a constant matrix with an activation")
    second = composite.inputs[index]
    shape = _constant_shape(array.shape, second.shape)
    # The constant stands for an input that the composite does not have.
    first = replace(anchor, operands=(CallOperand(parameter=-1), anchor.operands[1]))
    after = after_anchor(composite, first, takes_bias=False, num_operands=2)
    if isinstance(shape, NoMatch) or isinstance(after, NoMatch):
        return shape if isinstance(shape, NoMatch) else after  # type: ignore[return-value]
    builder, _ = after
    matrix = TensorType(shape=array.shape, dtype="float32")
    inputs = tuple(composite.inputs[place] for place in builder.inputs[1:])
    product = Matmul(
        inputs=(matrix, *inputs), outputs=composite.outputs, shape=shape, finish=_with_factors(builder.program())
    )
    operator = ConstantMatmul(inputs=inputs, outputs=composite.outputs, product=product, first=array)
    return operator, tuple(builder.inputs[1:])


def float_product(composite: Composite, anchor: Call) -> tuple[Matmul | ConstantMatmul, tuple[int, ...]] | NoMatch:
    """Return the float product of two activations, with the element-wise operators that follow it.

    The first operand may be a constant matrix.
    """
    if anchor.operands[0].array is not None and anchor.name == "matmul":
        return _float_constant_first(composite, anchor)
    arguments = [operand.parameter for operand in anchor.operands]
    if len(arguments) != 2 or None in arguments:
        return NoMatch("is no product of two activations")
    first, second = (composite.inputs[index] for index in arguments if index is not None)
    shape = matmul_shape(anchor, first.shape, second.shape)
    after = after_anchor(composite, anchor, takes_bias=False, num_operands=2)
    if isinstance(shape, NoMatch) or isinstance(after, NoMatch):
        return shape if isinstance(shape, NoMatch) else after  # type: ignore[return-value]
    builder, _ = after
    operator = Matmul(
        inputs=inputs_of(composite, builder), outputs=composite.outputs, shape=shape,
        finish=_with_factors(builder.program()),
    )  # fmt: skip
    return operator, tuple(builder.inputs)


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


def _scale(calls: tuple[Call, ...]) -> float | None:
    """Return the positive number by which calls multiply or divide a product; None if they compute anything else."""
    if not calls:
        return 1.0
    call, *others = calls
    numbers = [value.array for value in call.operands if value.array is not None and value.array.size == 1]
    if others or len(numbers) != 1 or call.name not in ("multiply", "divide"):
        return None
    number = float(numbers[0].reshape(-1)[0])
    is_divisor = call.name == "divide"
    if not 0 < number < np.inf or (is_divisor and call.operands[0].array is not None):
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
