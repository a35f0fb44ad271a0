"""Instructions of a kernel call as the compiler models them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from codegen_c.kernels.contract import Implementation
from codegen_c.operators.kinds import TensorType


def modelled(implementation: Implementation, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
    """Return the kernel's own estimate; for generic code, which has none, one for each element that it touches."""
    return implementation.instructions or sum(prod(kind.shape) for kind in (*inputs, *outputs))
