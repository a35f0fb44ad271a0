"""ReferenceResult of a reference runtime about a model, and reasons of others that gave none. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Sample = Mapping[str, Array]
Carried = Sequence[Mapping[str, Any]]
"""States of a model as a reference runtime needs them: `name`, `initial`, and `output`, which is empty where the file
keeps the state itself; else the next sample has that output's value as the input `name`."""


@dataclass(frozen=True, kw_only=True)
class RuntimeRefusal:
    """A reference runtime that gave nothing, and its reason: it is not installed, refused the file, crashed, took too
    long."""

    runtime: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"runtime": self.runtime, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, eq=False)
class ReferenceResult:
    """Outputs, and tensors inside the model, for each sample, under the model's own names.

    runtime: who said so. own_reading: why this is our own reading of the model and nobody else's; empty where it is
    somebody else's. refusals: of those asked before. ties: for each sample, bool tensors that mark the elements of
    quantized tensors whose real value lies half way between two integers; empty where the runtime does not show real
    values.
    """

    __test__ = False  # not a test, whatever pytest makes of the name

    runtime: str
    own_reading: str
    outputs: list[dict[str, Array]]
    inner: list[dict[str, Array]]
    ties: list[dict[str, Array]] = field(default_factory=list["dict[str, Array]"])
    refusals: tuple[RuntimeRefusal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The reference_result as `report.json` has it."""
        return {
            "reference": self.runtime,
            "own_reading": self.own_reading or None,
            "refused_by": [refusal.to_json() for refusal in self.refusals],
        }


def fed(carried: Carried) -> dict[str, Array]:
    """The states that go in and come out of a file's graph, as the first sample finds them, by input."""
    return {state["name"]: state["initial"] for state in carried if state["output"]}


def after(carried: Carried, outputs: Sample) -> dict[str, Array]:
    """The same states as the next sample finds them, by input."""
    return {state["name"]: outputs[state["output"]] for state in carried if state["output"]}
