"""Instructions of a kernel call as learned from measurements: the kernel's own estimate, corrected by trees.

The correction is the binary logarithm of executed over modelled instructions. It follows from the kernel and
from the numbers of `step_features`; of a processor on which nothing was measured, estimates stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.costs.step_features import FEATURES, step_features
from codegen_c.kernels.contract import Implementation
from codegen_c.operators.kinds import TensorType
from tvm_ext.core.trees import Trees

MOST_BITS = 3.0
"""A correction is no more than by this power of two, up or down."""
_MODULI = (("output_channels", 4), ("output_channels", 8), ("input_channels", 4), ("output_width", 2))


@dataclass(frozen=True, kw_only=True, eq=False)
class LearnedCost:
    """trees: over the features of `vector`. kernels, simds: names known from training, in the order of columns."""

    trees: Trees
    kernels: tuple[str, ...]
    simds: tuple[str, ...]

    def instructions(
        self, implementation: Implementation, inputs: Sequence[TensorType], outputs: Sequence[TensorType], simd: str
    ) -> int:
        """Executed instructions of one call of all rows, predicted; ranks kernels, is no measurement."""
        numbers = step_features(implementation, inputs, outputs)
        (corrected,) = self.corrected([(simd, implementation.kernel, numbers)])
        return round(corrected)

    def corrected(self, steps: Sequence[tuple[str, str, Sequence[int]]]) -> np.ndarray:
        """Instructions of many calls, each by processor's simd, kernel and numbers of FEATURES."""
        modelled = np.array([numbers[0] for _, _, numbers in steps], np.float64)
        rows = np.array([vector(*step, kernels=self.kernels, simds=self.simds) for step in steps], np.float32)
        bits = np.clip(self.trees.predict(rows), -MOST_BITS, MOST_BITS)
        known = np.array([simd in self.simds and kernel in self.kernels for simd, kernel, _ in steps])
        return np.where(known, modelled * 2.0**bits, modelled)


def vector(
    simd: str, kernel: str, numbers: Sequence[int], *, kernels: Sequence[str], simds: Sequence[str]
) -> list[float]:
    """Features for the trees: logarithms of the numbers, instructions modelled per element, remainders, names."""
    named = dict(zip(FEATURES, numbers, strict=True))
    # math's logarithm takes whole numbers beyond 64 bits, which the work of long loops comes to.
    logarithms = [math.log2(1 + number) for number in numbers]
    density = math.log2((1 + named["modelled"]) / (1 + named["output_elements"]))
    remainders = [float(named[name] % modulus) for name, modulus in _MODULI]
    return [
        *logarithms, density, *remainders, *(float(kernel == name) for name in kernels),
        *(float(simd == name) for name in simds),
    ]  # fmt: skip
