"""Operators of attention as the Helium kernels treat them by code of its own: uint8, and vectors of no whole steps."""

from __future__ import annotations

import numpy as np

from codegen_c.kernels.contract import Kernel
from codegen_c.operators.kinds import (
    MatmulShape,
    Operator,
    QMatmul,
    QNormalize,
    QSoftmax,
    Quantization,
    QUnary,
    TensorType,
)
from codegen_c.operators.scalar import Instruction, Operand, ScalarProgram
from codegen_c.targets.helium.kernels import dense as dense_helium
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from codegen_c.targets.helium.kernels import softmax as softmax_helium


def tensor(*shape: int, scale: float = 0.02, zero_point: int = 5, dtype: str = "uint8") -> TensorType:
    return TensorType(shape=shape, dtype=dtype, quantization=Quantization(scale=scale, zero_point=zero_point))


def matmul(second: TensorType, shape: MatmulShape) -> QMatmul:
    first = tensor(1, *shape.outer, shape.depth)
    output = tensor(1, *shape.outer, shape.columns, scale=0.1, dtype="int8")
    return QMatmul(inputs=(first, second), outputs=(output,), shape=shape, scale=0.5, low=-128, high=127)


def softmax() -> QSoftmax:
    output = tensor(3, 22, scale=1 / 256, zero_point=-128, dtype="int8")
    return QSoftmax(inputs=(tensor(3, 22, scale=0.05),), outputs=(output,))


def normalization() -> QNormalize:
    random = np.random.default_rng(4)
    return QNormalize(
        inputs=(tensor(3, 22),), outputs=(tensor(3, 22, dtype="int8"),), weight=random.normal(1, 0.3, 22).astype("f4"),
        bias=random.normal(0, 0.3, 22).astype("f4"), epsilon=1e-5, is_centered=True, low=-128, high=127,
    )  # fmt: skip


def negative() -> QUnary:
    finish = ScalarProgram(instructions=(Instruction(function="negative", operands=(Operand(kind="value"),)),))
    return QUnary(inputs=(tensor(1, 3, 2, 11),), outputs=(tensor(1, 3, 2, 11, dtype="int8"),), finish=finish)


SCORES = MatmulShape(rows=5, heads=2, depth=20, columns=6, heads_inside=True, steps=(20, 40, 1))
VALUES = MatmulShape(rows=3, heads=2, depth=21, columns=5, heads_inside=False, steps=(5, 1, 10))
SAMPLES: dict[str, tuple[Kernel, Operator]] = {
    "matmul": (dense_helium.QMATMUL, matmul(tensor(6, 2, 20, dtype="int8"), SCORES)),
    "matmul_strided": (dense_helium.QMATMUL, matmul(tensor(21, 2, 5), VALUES)),
    "softmax": (softmax_helium.QSOFTMAX, softmax()),
    "normalize": (softmax_helium.QNORMALIZE, normalization()),
    "unary": (elementwise_helium.QUNARY, negative()),
}
