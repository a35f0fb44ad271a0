"""Outputs that say nothing: those that have no numbers, or the same ones whatever the inputs are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codegen_c.program.interface import Interface, Port
from tvm_ext.verification.verify import Array, Sample, is_float

_ADVICE = "verification on these samples says little about it. Give others (--verify-inputs), or look at the model"


def empty_outputs(outputs: Sequence[Sample], interface: Interface) -> list[str]:
    """A sentence for each output of numbers that is NaN, zero, constant or saturated in all samples.

    Only real numbers are looked at, as floats or as integers with a scale: an index may well be 0 each time.
    """
    found: list[str] = []
    for port in interface.outputs:
        arrays = [sample[port.source] for sample in outputs if port.source in sample]
        if not arrays or arrays[0].size == 0 or not interface.inputs:
            continue
        if not is_float(arrays[0]) and port.quantization is None:
            continue
        what = _emptiness(np.stack([array.astype(np.float64) for array in arrays]), port)
        found += [f"output {port.source} {what} in all {len(arrays)} samples; {_ADVICE}"] if what else []
    return found


def _emptiness(values: Array, port: Port) -> str:
    """How all values of an output, samples first, are empty; nothing where they are not."""
    if np.isnan(values).all():
        return "is NaN"
    if not np.isfinite(values).any():
        return "is NaN or infinite"
    zero = port.quantization.zero_point if port.quantization else 0
    if (values == zero).all():
        return "is 0"
    if len(values) > 1 and (values == values[0]).all():
        return "is the same"
    ends = _ends(values, port)
    if ends and np.isin(values, ends).all():
        return f"is saturated, {ends[0]:g} or {ends[1]:g},"
    return ""


def _ends(values: Array, port: Port) -> tuple[float, ...]:
    """Least and largest value that an output can have: of its integers, or of a function between 0 or -1 and 1."""
    if port.quantization is not None and port.dtype.startswith(("int", "uint")):
        info = np.iinfo(port.dtype)
        return float(info.min), float(info.max)
    least = 0.0 if values.min() >= 0 else -1.0
    return (least, 1.0) if values.max() == 1 else ()
