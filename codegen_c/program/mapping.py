"""Mapping of a linked value between two types and quantizations: the real value times a scale, plus a shift."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from codegen_c.operators.kinds import Quantization

Array = np.ndarray
MappingKind = Literal["copy", "table", "scale", "quantize", "dequantize"]
_BYTES = ("int8", "uint8")


@dataclass(frozen=True, kw_only=True)
class Element:
    """Type of a tensor's elements. If quantized, real = scale * (element - zero_point)."""

    dtype: str
    quantization: Quantization | None = None

    def __str__(self) -> str:
        found = self.quantization
        return f"{self.dtype} of scale {found.scale:g}, zero point {found.zero_point}" if found else self.dtype


@dataclass(frozen=True, kw_only=True, eq=False)
class Mapping:
    """Computation of target elements from source elements.

    copy: the same bytes. table: 256 elements, indexed by the source's byte. scale, dequantize, quantize: factor *
    element + offset in float32. `dequantize` first subtracts `zero_point` from the element. `quantize` rounds to
    nearest, halves to even, and saturates; NaN becomes the lowest element.
    """

    kind: MappingKind
    source: Element
    target: Element
    factor: float = 1.0
    offset: float = 0.0
    zero_point: int = 0
    table: Array | None = None

    @property
    def constant_bytes(self) -> int:
        """Size of the table."""
        return self.table.nbytes if self.table is not None else 0

    def reference(self, elements: Array) -> Array:
        """Return the target elements, bit for bit as the C computes them."""
        if self.kind == "copy":
            return elements.copy()
        if self.table is not None:
            return self.table[elements.view(np.uint8)]
        factor, offset = np.float32(self.factor), np.float32(self.offset)
        if self.kind == "dequantize":
            return factor * (elements.astype(np.int32) - self.zero_point).astype(np.float32) + offset
        values = np.asarray(factor * elements + offset, np.float32)
        if self.kind == "scale":
            return values
        limits = np.iinfo(self.target.dtype)
        whole = np.rint(np.clip(np.nan_to_num(values, nan=limits.min), limits.min, limits.max))
        return whole.astype(self.target.dtype)


def mapping_of(source: Element, target: Element, scale: float, shift: float, *, between: bool = False) -> Mapping | str:
    """Return the mapping real(target) = scale * real(source) + shift, or the reason why there is none.

    between: True if values between elements are mapped, which are float32, without the zero point of the source.
    """
    if between:
        if _form(source) is None:
            return f"{source} has no real values to interpolate; resize = 'nearest' copies elements"
        step = source.quantization.scale if source.quantization else 1.0
        source, scale = Element(dtype="float32"), scale * step
    if source == target and (scale, shift) == (1.0, 0.0):
        return Mapping(kind="copy", source=source, target=target)
    ends = [_form(source), _form(target)]
    for end, form in zip((source, target), ends, strict=True):
        if form is None:
            return f"{end} has no real values to scale; only equal types can be copied, with scale 1 and shift 0"
    if ends == ["bytes", "bytes"]:
        return Mapping(kind="table", source=source, target=target, table=_table(source, target, scale, shift))
    if ends == ["bytes", "float"]:
        assert source.quantization is not None, "its form says so"
        factor = scale * source.quantization.scale
        zero_point = source.quantization.zero_point
        return Mapping(
            kind="dequantize", source=source, target=target, factor=factor, offset=shift, zero_point=zero_point
        )
    if ends == ["float", "bytes"]:
        assert target.quantization is not None, "its form says so"
        step = target.quantization.scale
        offset = shift / step + target.quantization.zero_point
        return Mapping(kind="quantize", source=source, target=target, factor=scale / step, offset=offset)
    return Mapping(kind="scale", source=source, target=target, factor=scale, offset=shift)


def _form(element: Element) -> str | None:
    if element.dtype == "float32":
        return "float"
    return "bytes" if element.dtype in _BYTES and element.quantization else None


def _table(source: Element, target: Element, scale: float, shift: float) -> Array:
    """Return the target's element for each byte of the source, rounded once, halves to even."""
    assert source.quantization and target.quantization, "both are quantized"
    elements = np.arange(256, dtype=np.uint8).view(source.dtype).astype(np.float64)
    real = scale * source.quantization.scale * (elements - source.quantization.zero_point) + shift
    limits = np.iinfo(target.dtype)
    whole = np.rint(real / target.quantization.scale) + target.quantization.zero_point
    return np.clip(whole, limits.min, limits.max).astype(target.dtype)
