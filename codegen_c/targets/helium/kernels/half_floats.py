"""Shared parts of the Helium kernels of float16: lanes, blocks, conditions, and references that round.

Activations and weights are float16 in memory; they are widened as they are read, sums and all between are float32, and
a result is rounded once, to the nearest. So results are those of onnxruntime, which computes a float16 operator in
float32 and rounds what it gives, but for the order of sums.

Helium has no products of float16 that add to float32. Sums in float16 would be wrong where one of them leaves float16's
range (65,504), however small the last one is. They lose accuracy, too: simulated on ResNet-8 as float16, 2.4 times what
verification tolerates, in runs of 8 products that are added up in float32 0.6 times; on DS-CNN 0.5 and 0.35 times.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codegen_c.kernels.contract import Array, Implementation, StoredRows, Target
from codegen_c.kernels.shared.blocking import Blocking
from codegen_c.kernels.shared.finish import Finish
from codegen_c.kernels.shared.lanes import Lanes
from codegen_c.kernels.shared.narrow_weights import narrowest
from codegen_c.operators.kinds import Conv2d, Dense, Pool2d

LANES = Lanes(count=4, half=True)
SINGLE = Lanes(count=1, half=True)
VECTORS, PIXELS = 2, 3
"""Sums of a product: 6 vectors, beside two of weights."""


def holds_weights(operator: Conv2d | Dense, target: Target) -> bool:
    """float16 must hold every weight"""
    return narrowest(operator.weight).dtype == "float16"


def finishes_in_vectors(operator: Conv2d | Dense | Pool2d, target: Target) -> bool:
    """what follows must be sums, products and bounds"""
    return Finish(program=operator.finish).fits(LANES)


def product_blocking(operator: Conv2d | Dense, target: Target) -> Blocking:
    """Blocks of products of float16 weights."""
    pixels = PIXELS if target.optimize == "speed" else 1
    return Blocking(lanes=LANES, vectors=VECTORS, pixels=pixels, weights=narrowest(operator.weight))


def rounded(made: Implementation) -> Implementation:
    """A kernel of float32 whose activations are float16: its reference widens inputs and rounds results."""
    in_rows, reference = made.in_rows, made.reference

    def halves(inputs: list[Array]) -> list[Array]:
        with np.errstate(over="ignore"):
            return [array.astype(np.float16) for array in reference([array.astype(np.float32) for array in inputs])]

    def by_rows(stored: StoredRows) -> Implementation:
        assert in_rows is not None, "there is such a kernel"
        return rounded(in_rows(stored))

    return replace(made, reference=halves, in_rows=by_rows if in_rows else None)
