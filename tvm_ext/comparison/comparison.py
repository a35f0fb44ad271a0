"""Outcome of comparing a package layer by layer. Plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

Verdict = Literal["equal", "within", "differs", "no counterpart"]


@dataclass(frozen=True, kw_only=True)
class LayerComparison:
    """A value that a layer wrote, beside the reference's.

    nodes: the model's operators that the layer computes. value: the model's name of what it wrote. own_error: largest
    difference where the layer reads the reference's values; error: where it reads the package's own. mean: of the
    former. Both are in steps of a quantized type (`lsb`) or in the value's own numbers; largest: the reference's
    largest magnitude, in the same. limit: own error up to which it is within. reason: why there is no counterpart.
    """

    step: int
    name: str
    nodes: tuple[str, ...]
    value: str
    dtype: str
    lsb: bool
    verdict: Verdict
    own_error: float | None = None
    error: float | None = None
    mean: float | None = None
    largest: float | None = None
    limit: float | None = None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class PackageComparison:
    """All layers in order. witness: the runtime of the reference; own_reading: why it is our own, empty for others."""

    model: str
    on: str
    witness: str
    own_reading: str
    layers: tuple[LayerComparison, ...]

    @property
    def passed(self) -> bool:
        """True where no layer differs, and any was compared."""
        return self.first_difference is None and self.num_compared > 0

    @property
    def num_compared(self) -> int:
        return sum(layer.verdict != "no counterpart" for layer in self.layers)

    @property
    def first_difference(self) -> LayerComparison | None:
        return next((layer for layer in self.layers if layer.verdict == "differs"), None)

    @property
    def suspects(self) -> Sequence[str]:
        """Names of layers that the first difference may come from: those right before it without a counterpart, too."""
        first = self.first_difference
        if first is None:
            return ()
        before = self.layers[: self.layers.index(first)]
        found = [first.name]
        for layer in reversed(before):
            if layer.verdict != "no counterpart":
                break
            found.insert(0, layer.name)
        return list(dict.fromkeys(found))

    def summary(self) -> str:
        """One sentence."""
        first = self.first_difference
        if first is None:
            if not self.num_compared:
                return f"nothing was compared: {self.witness} has no tensor of any layer."
            return f"{self.num_compared} of {len(self.layers)} values compared with {self.witness}: no layer differs."
        *hidden, name = self.suspects
        beside = f" (or {', '.join(hidden)} before it, which {self.witness} has no tensor of)" if hidden else ""
        unit = "LSB" if first.lsb else f"of {first.largest:g}"
        return (
            f"first difference: {name}{beside}, {first.value}: {first.own_error:g} {unit} from {self.witness}, where "
            f"{first.limit:g} may be."
        )

    def to_json(self) -> dict[str, Any]:
        first = self.first_difference
        return {
            "model": self.model, "on": self.on, "reference": self.witness, "own_reading": self.own_reading or None,
            "passed": self.passed, "compared": self.num_compared, "first_difference": first.name if first else None,
            "suspects": list(self.suspects), "layers": [_finite(asdict(layer)) for layer in self.layers],
        }  # fmt: skip


def _finite(layer: dict[str, Any]) -> dict[str, Any]:
    """Figures as JSON has them: None for what is no number."""
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in layer.items()}
