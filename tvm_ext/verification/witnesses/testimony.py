"""Testimony of a witness about a model, and reasons of others that gave none. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray
Sample = Mapping[str, Array]


@dataclass(frozen=True, kw_only=True)
class WitnessRefusal:
    """A witness that gave nothing, and its reason: it is not installed, refused the file, crashed, took too long."""

    witness: str
    reason: str

    def to_json(self) -> dict[str, str]:
        return {"witness": self.witness, "reason": self.reason}


@dataclass(frozen=True, kw_only=True, eq=False)
class Testimony:
    """Outputs, and tensors inside the model, for each sample, under the model's own names.

    witness: who said so. own_reading: why this is our own reading of the model and nobody else's; empty where it is
    somebody else's. refusals: of those asked before.
    """

    __test__ = False  # not a test, whatever pytest makes of the name

    witness: str
    own_reading: str
    outputs: list[dict[str, Array]]
    inner: list[dict[str, Array]]
    refusals: tuple[WitnessRefusal, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As `report.json` has it."""
        return {
            "reference": self.witness,
            "own_reading": self.own_reading or None,
            "refused_by": [refusal.to_json() for refusal in self.refusals],
        }
