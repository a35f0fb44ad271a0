"""Scales and zero points of a tensor in a TensorFlow Lite file: values, counts, and the axis they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tflite

from tvm_ext.core.errors import BadModel


@dataclass(frozen=True, kw_only=True, eq=False)
class Scales:
    """Scales by which a tensor's integers stand for real numbers: one, or one for each index of `axis`.

    scale: float32[n], zero_point: int64[n], n = 1 or the extent of `axis`.
    """

    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    def equals(self, other: Scales | None) -> bool:
        return (
            other is not None
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.zero_point, other.zero_point)
        )


def read_scales(
    path: Path, table: tflite.Tensor, name: str, shape: tuple[int, ...], dtype: str | None
) -> Scales | None:
    """Scales of a tensor that has some. Raises BadModel."""
    quantization = table.Quantization()
    if quantization is None or quantization.ScaleLength() == 0:
        return None
    where = f"{path}: tensor {name!r}"
    scale = np.array(quantization.ScaleAsNumpy(), np.float32)
    zero_point = np.zeros(scale.shape, np.int64)
    if quantization.ZeroPointLength():
        zero_point = np.array(quantization.ZeroPointAsNumpy(), np.int64)
    if not np.isfinite(scale).all() or (scale <= 0).any():
        wrong = scale[~(np.isfinite(scale) & (scale > 0))][0]
        raise BadModel(f"{where} has a scale of {wrong}; scales are finite and above zero.")
    # Along the only axis there is no other one; older converters name that of the weights for a bias.
    axis = 0 if len(shape) == 1 else int(quantization.QuantizedDimension())
    if scale.size > 1 and not 0 <= axis < len(shape):
        raise BadModel(f"{where} has {scale.size} scales for axis {axis}; its shape {list(shape)} has no such axis.")
    if scale.size > 1 and shape[axis] != scale.size:
        raise BadModel(
            f"{where} has {scale.size} scales for axis {axis} of {list(shape)}; one for each index is needed."
        )
    if zero_point.size not in (1, scale.size):
        raise BadModel(f"{where} has {scale.size} scales and {zero_point.size} zero points; one for each is needed.")
    _check_range(where, zero_point, dtype)
    return Scales(scale=scale, zero_point=np.broadcast_to(zero_point, scale.shape), axis=axis if scale.size > 1 else 0)


def _check_range(where: str, zero_point: np.ndarray, dtype: str | None) -> None:
    """Raises BadModel for zero points that the tensor's own type cannot hold."""
    if dtype is None or not dtype.startswith(("int", "uint")):
        return
    limits = np.iinfo(dtype)
    outside = zero_point[(zero_point < limits.min) | (zero_point > limits.max)]
    if outside.size:
        raise BadModel(f"{where} has zero point {outside[0]}; a zero point lies within {dtype}.")
