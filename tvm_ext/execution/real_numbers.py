"""Real numbers as integers of a quantized port, and back: as the functions of the package's header do it, in numpy."""

from __future__ import annotations

import numpy as np

from codegen_c.operators.kinds import Rounding
from codegen_c.program.interface import Port


def quantized(port: Port, real: np.ndarray, rounding: Rounding) -> np.ndarray:
    """Integers of a quantized port, of its dtype: scaled in float32, rounded as the model's format does, saturated.

    NaN becomes the zero point, as in `NAME_quantize_PORT` of the header.
    """
    assert port.quantization is not None, "the port is quantized"
    with np.errstate(over="ignore", invalid="ignore"):
        steps = (np.asarray(real, np.float32) / np.float32(port.quantization.scale)).astype(np.float64)
    nearest = np.rint(steps) if rounding == "onnx" else np.copysign(np.floor(np.abs(steps) + 0.5), steps)
    limits = np.iinfo(port.dtype)
    shifted = np.nan_to_num(nearest, nan=0.0) + port.quantization.zero_point
    return np.clip(shifted, limits.min, limits.max).astype(port.dtype)


def dequantized(port: Port, integers: np.ndarray) -> np.ndarray:
    """Real numbers, float32, for which integers of a quantized port stand."""
    assert port.quantization is not None, "the port is quantized"
    steps = (integers.astype(np.int64) - port.quantization.zero_point).astype(np.float32)
    return np.float32(port.quantization.scale) * steps
