"""The judgement of one value: how far it is from the reference's, and whether that is rounding."""

from __future__ import annotations

import numpy as np

from tvm_ext.comparison.compared_values import ComparedValue
from tvm_ext.comparison.comparison import LayerComparison, Verdict
from tvm_ext.verification.account import LEAST_ELEMENTS, MEAN_LSB, TOLERANCE_LSB, source_of
from tvm_ext.verification.verify import difference, float_tolerance

Array = np.ndarray


def judged_value(value: ComparedValue, wanted: Array | None, fed: Array | None, own: Array | None) -> LayerComparison:
    """The comparison of a value. fed: as the layer gives it from the reference's values; own: from the package's."""
    tensor = value.tensor
    lsb = tensor.quantization is not None

    def compared(verdict: Verdict, reason: str = "", **figures: float) -> LayerComparison:
        return LayerComparison(
            step=value.step, name=value.step_name, nodes=value.nodes, value=source_of(tensor), dtype=tensor.dtype,
            lsb=lsb, verdict=verdict, reason=reason, **figures,
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
    figures = {"own_error": own_error, "error": error, "mean": mean, "largest": largest, "limit": limit}
    return compared(verdict, **figures)
