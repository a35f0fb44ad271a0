"""Float activations that a layer quantizes by their own range: reference in numpy, and the C around its products.

Rounding is that of the runtime of the model's format (`relay_passes/own_operators.py` names them). Steps are stored in
scratch as int8, an image together with its padding, so that the layer itself has none. The zero point of a run is
subtracted from the sums: it is multiplied by the sum of a channel's weights, because padding holds the zero point, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from codegen_c.c_text.text import loop, times
from codegen_c.kernels.contract import Parameter
from codegen_c.operators.kinds import Array, OwnSteps, QConv2d, QDense, RangeMeaning, RealLayer, TensorType
from tvm_ext.core.alignment import aligned

INCLUDES = ("tvm_ext_layer.h", "tvm_ext_requantize.h", "tvm_ext_range.h")
FIND_INSTRUCTIONS, ROUND_INSTRUCTIONS = 7, 16
"""Modelled instructions of an element: to find the range, and to convert it to steps."""
RANGE_INSTRUCTIONS = {"onnx": 60, "tflite_asymmetric": 800, "tflite_symmetric": 40}
"""Modelled instructions of a range: double precision in software dominates."""
_MAGIC = np.float32(12582912.0)


@dataclass(frozen=True, kw_only=True)
class OwnRangeText:
    """C of a layer that quantizes its input: names and statements for its loops."""

    rule: OwnSteps
    layer: QConv2d | QDense
    source: TensorType

    @classmethod
    def of(cls, operator: RealLayer) -> Self | None:
        """Return the C text, or None if the input is quantized already."""
        rule = operator.own_steps
        return cls(rule=rule, layer=operator.layer, source=operator.inputs[0]) if rule else None

    @property
    def unpadded(self) -> QConv2d | QDense:
        """The layer that reads the steps."""
        return without_padding(self.layer) if isinstance(self.layer, QConv2d) else self.layer

    @property
    def count(self) -> int:
        """Number of elements that share a range."""
        return self.source.shape[-1] if self.rule.by_vector else self.source.num_elements

    @property
    def scratch_bytes(self) -> int:
        kind = self.unpadded.inputs[0]
        return aligned(kind.num_elements if isinstance(self.layer, QConv2d) else self.count)

    @property
    def instructions(self) -> int:
        ranges = self.source.num_elements // self.count
        each = FIND_INSTRUCTIONS + ROUND_INSTRUCTIONS
        return self.source.num_elements * each + ranges * RANGE_INSTRUCTIONS[self.rule.meaning]

    @property
    def has_zero_point(self) -> bool:
        return self.rule.meaning != "tflite_symmetric"

    def constants(self) -> tuple[tuple[str, Array], ...]:
        """Return the sums of each channel's weights, if a zero point is subtracted."""
        weight = self.layer.weight
        sums = weight.reshape(len(weight), -1).astype(np.int32).sum(axis=1, dtype=np.int32)
        return (("weight_sum", sums),) if self.has_zero_point else ()

    def parameters(self) -> tuple[Parameter, ...]:
        return (Parameter(name="weight_sum", ctype="int32_t", role="constant"),) if self.has_zero_point else ()

    def begin(self, vector: str = "") -> list[str]:
        """Return statements that find the range and the steps of the whole input, or of one vector."""
        place = f"&input[{times(vector, self.count)}]" if vector else "input"
        meaning = f"TVM_EXT_RANGE_{self.rule.meaning.removeprefix('tflite_').upper()}"
        found = [f"const tvm_ext_range range = tvm_ext_range_of({place}, {self.count}, {meaning});"]
        padding = self.layer.window.padding if isinstance(self.layer, QConv2d) else (0, 0, 0, 0)
        if not any(padding):
            return [*found, f"tvm_ext_range_steps(&range, {place}, steps, {self.count}, {meaning});"]
        _, rows, columns, channels = self.source.shape
        top, left, _, right = padding
        pitch = (left + columns + right) * channels
        first = (top * (left + columns + right) + left) * channels
        total = self.unpadded.inputs[0].num_elements
        row = columns * channels
        return [
            *found,
            f"(void)memset(steps, range.zero_point, {total});",
            *loop("h", rows, [
                f"int8_t *const row = &steps[{first} + {times('h', pitch)}];",
                f"tvm_ext_range_steps(&range, &input[{times('h', row)}], row, {row}, {meaning});",
            ]),
        ]  # fmt: skip

    def product(self) -> str:
        """Return the expression of the real number for element [i + k] of the sums, without a bias."""
        total = "(float)(sum[i + k] - range.zero_point * weight_sum[k])" if self.has_zero_point else "(float)sum[i + k]"
        return f"{total} * scale[k] * range.scale" if self.rule.scale_last else f"{total} * (scale[k] * range.scale)"


def without_padding(layer: QConv2d) -> QConv2d:
    """Return the layer on an image that includes its padding."""
    (source,), (top, left, bottom, right) = layer.inputs, layer.window.padding
    images, rows, columns, channels = source.shape
    shape = (images, top + rows + bottom, left + columns + right, channels)
    window = replace(layer.window, padding=(0, 0, 0, 0))
    return replace(layer, inputs=(replace(source, shape=shape),), window=window)


def steps_of(rule: OwnSteps, x: Array) -> tuple[Array, Array]:
    """Return distances from the zero point, int32 of x's shape, and scales: float32[], or one per vector, [..., 1]."""
    if not rule.by_vector:
        steps, scale = _steps(rule.meaning, x.reshape(-1))
        return steps.reshape(x.shape), np.array(scale, np.float32)
    found = [_steps(rule.meaning, vector) for vector in x.reshape(-1, x.shape[-1])]
    scales = np.array([scale for _, scale in found], np.float32).reshape(*x.shape[:-1], 1)
    return np.stack([steps for steps, _ in found]).reshape(x.shape), scales


def _steps(meaning: RangeMeaning, x: Array) -> tuple[Array, np.float32]:
    numbers = x[~np.isnan(x)]
    low, high = np.float32(min(numbers.min(initial=0), 0)), np.float32(max(numbers.max(initial=0), 0))
    with np.errstate(all="ignore"):
        if low == high:
            return np.zeros(x.shape, np.int32), np.float32(1)
        if meaning == "onnx":
            return _onnx_steps(x, low, high)
        if meaning == "tflite_asymmetric":
            return _asymmetric_steps(x, low, high)
        magnitude = max(-low, high)
        whole = _away(x * (np.float32(127) / magnitude))
        return np.clip(whole, -128, 127).astype(np.int32), magnitude / np.float32(127)


def _onnx_steps(x: Array, low: np.float32, high: np.float32) -> tuple[Array, np.float32]:
    scale = (high - low) / np.float32(255)
    place = (np.float32(0) - low) / scale
    zero_point = int(np.rint(place if place < 255 else np.float32(255))) - 128
    bits = (x / scale + _MAGIC).view(np.int32).astype(np.int64) - 0x4B400000
    return (np.clip(bits + zero_point, -128, 127) - zero_point).astype(np.int32), scale


def _asymmetric_steps(x: Array, low: np.float32, high: np.float32) -> tuple[Array, np.float32]:
    wide = np.float64(high - low) / 255
    below, above = np.float64(low) / wide, np.float64(high) / wide
    place = -128 - below if 128 + abs(below) < 127 + abs(above) else 127 - above
    zero_point = int(np.copysign(np.floor(np.abs(place) + 0.5), place)) if -128 < place < 127 else (
        127 if place >= 127 else -128
    )  # fmt: skip
    scale = np.float32(wide)
    whole = _away(x * (np.float32(1) / scale)) + zero_point
    return (np.clip(whole, -128, 127) - zero_point).astype(np.int32), scale


def _away(steps: Array) -> Array:
    """Return the nearest integers, halves away from zero; NaN and values beyond 512 become a value that is clipped."""
    known = np.abs(steps) < 512
    kept = np.where(known, steps, np.where(steps > 0, np.float32(512), np.float32(-512))).astype(np.float32)
    return np.trunc(kept + np.copysign(np.float32(0.49999997), kept)).astype(np.int64)
