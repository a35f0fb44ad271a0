"""Constants of 4 bits an element in TensorFlow Lite files: two to a byte, the first of them in its lower bits."""

from __future__ import annotations

import numpy as np
import tflite


def is_packed(model: tflite.Model, table: tflite.Tensor) -> bool:
    """True for a constant of 4 bits an element."""
    is_constant = table.Buffer() < model.BuffersLength() and model.Buffers(table.Buffer()).DataLength() > 0
    return table.Type() == tflite.TensorType.INT4 and is_constant


def unpacked(raw: np.ndarray, num_elements: int) -> np.ndarray:
    """int8[num_elements] of uint8[ceil(num_elements / 2)]."""
    signed = raw.view(np.int8)
    return np.stack([(signed << 4) >> 4, signed >> 4], axis=-1).reshape(-1)[:num_elements]
