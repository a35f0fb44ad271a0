"""Results of a comparison layer by layer: judgement of each value, and the table of all values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, Literal

import numpy as np

from tvm_ext.comparison.compared_values import ComparedValue
from tvm_ext.report.cells import FoldingTable, escape
from tvm_ext.verification.account import LEAST_ELEMENTS, MEAN_LSB, TOLERANCE_LSB, source_of
from tvm_ext.verification.verify import difference, float_tolerance

Verdict = Literal["equal", "within", "differs", "no counterpart"]


@dataclass(frozen=True, kw_only=True)
class LayerComparison:
    """Comparison of a value that a layer writes with the reference's value.

    nodes: the model's operators that the layer computes.
    value: the model's name of the value.
    lsb: True if errors are in steps of a quantized type, False if they are in the value's numbers.
    own_error, mean: largest and mean difference if the layer reads the reference's values.
    error: largest difference if the layer reads the package's values.
    largest: the reference's largest magnitude.
    limit: largest own error that passes.
    reason: why there is no counterpart, else empty.
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
    """Comparison of all layers of a package, in order.

    runtime: name of the reference runtime. own_reading: why it is our own reading of the file; empty for another
    runtime.
    """

    model: str
    on: str
    runtime: str
    own_reading: str
    layers: tuple[LayerComparison, ...]

    @property
    def passed(self) -> bool:
        """True if at least one layer was compared and no layer differs."""
        return self.first_difference is None and self.num_compared > 0

    @property
    def num_compared(self) -> int:
        return sum(layer.verdict != "no counterpart" for layer in self.layers)

    @property
    def first_difference(self) -> LayerComparison | None:
        return next((layer for layer in self.layers if layer.verdict == "differs"), None)

    @property
    def suspects(self) -> Sequence[str]:
        """Names of the layers that may cause the first difference: it, and layers just before without a counterpart."""
        first = self.first_difference
        if first is None:
            return ()
        before = self.layers[: self.layers.index(first)]
        names = [first.name]
        for layer in reversed(before):
            if layer.verdict != "no counterpart":
                break
            names.insert(0, layer.name)
        return list(dict.fromkeys(names))

    def summary(self) -> str:
        """Return the result in one sentence."""
        first = self.first_difference
        if first is None:
            if not self.num_compared:
                return f"nothing was compared, because {self.runtime} has no tensor of any layer."
            return f"{self.num_compared} of {len(self.layers)} values compared with {self.runtime}: no layer differs."
        *hidden, name = self.suspects
        beside = f" (or {', '.join(hidden)} before it, without tensors in {self.runtime})" if hidden else ""
        unit = "LSB" if first.lsb else f"of {first.largest:g}"
        return (
            f"first difference: {name}{beside}, {first.value}: {first.own_error:g} {unit} from {self.runtime}; the "
            f"limit is {first.limit:g}."
        )

    def to_json(self) -> dict[str, Any]:
        first = self.first_difference
        return {
            "model": self.model, "on": self.on, "reference": self.runtime, "own_reading": self.own_reading or None,
            "passed": self.passed, "compared": self.num_compared, "first_difference": first.name if first else None,
            "suspects": list(self.suspects), "layers": [_finite(asdict(layer)) for layer in self.layers],
        }  # fmt: skip


def _finite(layer: dict[str, Any]) -> dict[str, Any]:
    """Return the entries with None for numbers that are not finite, because JSON has no infinity."""
    return {key: None if isinstance(value, float) and not isfinite(value) else value for key, value in layer.items()}


_MOST_LETTERS = 40


def comparison_table(comparison: PackageComparison) -> FoldingTable:
    """Return a table of the errors of each layer: alone on the reference's values, and with all errors before it."""
    title = f"{comparison.model} on {comparison.on} compared with {comparison.runtime}"
    if comparison.own_reading:
        title += f", our own reading of the model ({comparison.own_reading})"
    table = FoldingTable("#", "layer", "value in the model", title=escape(title), title_justify="left")
    for heading in ("own max error", "own mean", "max error", "limit"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for layer in comparison.layers:
        errors = [layer.own_error, layer.mean, layer.error, layer.limit]
        unit = " LSB" if layer.lsb else ""
        cells = ["-" if error is None else f"{error:.3g}{unit}" for error in errors]
        verdict = f"{layer.verdict}: {layer.reason}" if layer.reason else layer.verdict
        style = "bold red" if layer.verdict == "differs" else None
        table.add_row(
            str(layer.step), escape(layer.name), escape(_short(layer.value)), *cells, escape(verdict), style=style
        )
    return table


def _short(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 3]}..."


Array = np.ndarray


def judged_value(value: ComparedValue, wanted: Array | None, fed: Array | None, own: Array | None) -> LayerComparison:
    """Compare a value with the reference's value `wanted`.

    fed: the layer's result from the reference's values. own: the layer's result from the package's values.
    """
    tensor = value.tensor
    lsb = tensor.quantization is not None

    def compared(verdict: Verdict, reason: str = "", **errors: float) -> LayerComparison:
        return LayerComparison(
            step=value.step, name=value.step_name, nodes=value.nodes, value=source_of(tensor), dtype=tensor.dtype,
            lsb=lsb, verdict=verdict, reason=reason, **errors,
        )  # fmt: skip

    if fed is None or own is None:
        return compared("no counterpart", value.absent)
    if wanted is None:
        return compared("no counterpart", "the reference has no tensor of this name, type and size")
    shape = wanted.shape
    signed = fed.reshape(shape).astype(np.float64) - wanted.astype(np.float64)
    own_error, relative = difference(fed.reshape(shape), wanted)
    error, _ = difference(own.reshape(shape), wanted)
    largest = float(np.abs(wanted[np.isfinite(wanted)].astype(np.float64)).max(initial=0))
    mean = float(signed.mean()) if signed.size and np.isfinite(signed).all() else 0.0
    is_float = tensor.dtype.startswith(("float", "bfloat"))
    limit = float_tolerance(tensor.dtype) * largest if is_float else float(TOLERANCE_LSB if lsb else 0)
    is_off = lsb and signed.size >= LEAST_ELEMENTS and abs(mean) > MEAN_LSB
    differs = is_off or not (relative <= float_tolerance(tensor.dtype) if is_float else own_error <= limit)
    verdict: Verdict = "differs" if differs else "equal" if not own_error else "within"
    return compared(verdict, own_error=own_error, error=error, mean=mean, largest=largest, limit=limit)
