"""Dense layer of float16 with Helium: the product of dense_f32, whose vectors are widened before their channels.

float16[..., C], float16[K, C] -> float16[..., K]. Sums are float32: the bias, then products with c ascending; each
result is rounded once.
"""

from __future__ import annotations

from codegen_c.kernels.contract import Implementation, Kernel, StoredRows, Target
from codegen_c.kernels.dense.dense_f32 import by_vectors
from codegen_c.operators.kinds import HalfDense
from codegen_c.targets.helium.kernels.half_floats import (
    finishes_in_vectors,
    holds_weights,
    product_blocking,
    rounded,
)


def implement(operator: HalfDense, target: Target, stored: StoredRows) -> Implementation:
    return rounded(by_vectors(KERNEL.name, operator, product_blocking(operator, target)))


KERNEL = Kernel(
    name="dense_f16",
    operator=HalfDense,
    implement=implement,
    constraints=(holds_weights, finishes_in_vectors),
)
