"""Results of a reference runtime, and refusals of the runtimes that were asked before. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Sample = Mapping[str, Array]
Carried = Sequence[Mapping[str, Any]]
"""States of a model. Each has `name`, `initial` and `output`: the next sample has the value of the output `output` as
its input `name`. `output` is empty if the runtime keeps the state itself."""


@dataclass(frozen=True, kw_only=True)
class RuntimeRefusal:
    """Refusal of a reference runtime. reason: not installed, file refused, a crash, or a time limit."""

    runtime: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"runtime": self.runtime, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferenceResult:
    """Results of a reference runtime by sample, under the model's own names.

    runtime: name of the runtime.
    own_reading: why the results come from our own reading of the file; empty if another runtime read the file.
    outputs, inner: outputs and inner tensors for each sample.
    ties: for each sample, bool tensors that mark the elements of quantized tensors whose real value is half way between
    two integers; empty if the runtime does not show real values.
    refusals: refusals of the runtimes that were asked before.
    """

    __test__ = False  # pytest must not collect the class as a test

    runtime: str
    own_reading: str
    outputs: list[dict[str, Array]]
    inner: list[dict[str, Array]]
    ties: list[dict[str, Array]] = field(default_factory=list["dict[str, Array]"])
    refusals: tuple[RuntimeRefusal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the entries of report.json about the reference runtime."""
        return {
            "reference": self.runtime,
            "own_reading": self.own_reading or None,
            "refused_by": [refusal.to_json() for refusal in self.refusals],
        }


def fed(carried: Carried) -> dict[str, Array]:
    """Return the initial values of the states that are inputs and outputs of the file's graph, by input."""
    return {state["name"]: state["initial"] for state in carried if state["output"]}


def after(carried: Carried, outputs: Sample) -> dict[str, Array]:
    """Return the same states for the next sample, by input."""
    return {state["name"]: outputs[state["output"]] for state in carried if state["output"]}
