"""An activation and a constant of many numbers as an Operator: sums, differences, products, masks of a softmax."""

from __future__ import annotations

import numpy as np

from codegen_c.composites.graph import Call, CallOperand, NoMatch
from codegen_c.composites.quantized_chain import QuantizedChain
from codegen_c.operators.attention import QAffine, QMaskedSoftmax

VANISHING = 40.0
"""An element that is so much less than the largest one has an exponential below any step."""


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


def masked_softmax(chain: QuantizedChain, mask: Call) -> tuple[QMaskedSoftmax, tuple[int, ...]] | NoMatch:
    """A softmax over the last axis, behind a sum with a constant of zeros and of numbers that leave elements out."""
    known = [array for value in mask.operands if (array := _real(chain, value)) is not None]
    rank, source = len(chain.output.shape), chain.inputs[0]
    is_last = int(chain.body[1].attrs.axis) % rank == rank - 1
    if not is_last or mask.name != "add" or len(known) != 1 or len(chain.inputs) != 1 or source.quantization is None:
        return NoMatch("is not a softmax over the last axis of an activation and a constant mask")
    left_out = known[0] < 0
    most = -VANISHING - 255 * source.quantization.scale
    if source.shape != chain.output.shape or (known[0] > 0).any() or (known[0][left_out] > most).any():
        return NoMatch("its mask has other numbers than zero and those that leave an element out")
    if np.broadcast_to(left_out, source.shape).all(axis=-1).any():
        return NoMatch("its mask leaves out all elements of a vector")
    operator = QMaskedSoftmax(inputs=chain.inputs, outputs=(chain.output,), rounding=chain.rounding, mask=left_out)
    return operator, (0,)


def _real(chain: QuantizedChain, value: CallOperand) -> np.ndarray | None:
    """A constant's numbers, float64; None for an activation."""
    if value.array is not None:
        return value.array.astype(np.float64)
    given = chain.constants.get(value.var)
    return given.real if given else None
