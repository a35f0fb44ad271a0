"""An activation and a constant of many numbers as an Operator: sums, differences and products."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, CallOperand, NoMatch
from codegen_c.composites.quantized_chain import QuantizedChain
from codegen_c.operators.attention import QAffine


def affine_operator(chain: QuantizedChain, anchor: Call) -> tuple[QAffine, tuple[int, ...]] | NoMatch:
    """add, subtract or multiply of one activation and a constant, real or quantized, of more than one number."""
    numbers = [_real(chain, value) for value in anchor.operands]
    known = [array for array in numbers if array is not None]
    if len(known) != 1 or len(chain.inputs) != 1 or chain.inputs[0].shape != chain.output.shape:
        return NoMatch("is no activation beside a constant")
    (constant,), is_first = known, numbers[0] is not None
    if not np.isfinite(constant).all():
        return NoMatch("its constant is not finite")
    if constant.size == 1 and not chain.constants:
        return NoMatch("its constant is one number")  # which a table of results holds, too
    one, none = np.ones((), np.float64), np.zeros((), np.float64)
    factors, addends = {
        "add": (one, constant), "subtract": (-one, constant) if is_first else (one, -constant),
        "multiply": (constant, none),
    }[anchor.name]  # fmt: skip
    operator = QAffine(
        inputs=chain.inputs, outputs=(chain.output,), factors=factors, addends=addends, low=chain.low,
        high=chain.high, rounding=chain.rounding,
    )  # fmt: skip
    return operator, (0,)


def _real(chain: QuantizedChain, value: CallOperand) -> np.ndarray | None:
    """A constant's numbers, float64; None for an activation."""
    if value.array is not None:
        return value.array.astype(np.float64)
    given = chain.constants.get(value.var)
    if given is None:
        return None
    shape = [1] * given.data.ndim
    if given.scale.size > 1:
        shape[given.axis] = given.scale.size
    return given.steps * given.scale.astype(np.float64).reshape(shape if given.data.ndim else ())
