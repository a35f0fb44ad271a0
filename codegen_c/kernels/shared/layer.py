"""Layers as the C headers take them: structures of tvm_ext_layer.h as C text.

The shapes of a layer are one constant beside its functions. Rows that are stored in a ring buffer may be numbers of a
call, so they are set in a copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from codegen_c.c_text.initializer import Value, structure
from codegen_c.kernels.contract import Kept, StoredRows
from codegen_c.kernels.shared.requantize import quantization
from codegen_c.operators.kinds import TensorType, Window

INCLUDES = ("tvm_ext_layer.h",)


def image(tensor: TensorType, *, pitch: int | None = None) -> dict[str, Value]:
    """A `tvm_ext_image` of a quantized tensor [N, H, W, C]."""
    images, rows, columns, channels = tensor.shape
    members: dict[str, Value] = {
        "images": images, "rows": rows, "columns": columns, "channels": channels, "pitch": pitch or channels,
    }  # fmt: skip
    if tensor.dtype == "uint8":
        members |= {"is_unsigned": True}
    return {**members, "zero_point": quantization(tensor).zero_point}


def sliding_window(window: Window) -> dict[str, Value]:
    """A `tvm_ext_window`."""
    top, left, bottom, right = window.padding
    return {
        "rows": window.kernel[0], "columns": window.kernel[1],
        "row_stride": window.strides[0], "column_stride": window.strides[1],
        "row_dilation": window.dilation[0], "column_dilation": window.dilation[1],
        "top": top, "left": left, "bottom": bottom, "right": right,
    }  # fmt: skip


def shapes(ctype: str, members: Mapping[str, Value]) -> str:
    """Definition of `$_layer`, the shapes of a layer."""
    first, *others = structure(ctype, "$_layer", members)
    return "\n".join([f"static {first}", *others, ""])


def with_rings(ctype: str, stored: StoredRows) -> tuple[list[str], str]:
    """Statements that define the layer with its ring buffers, and its address; no statements where all is stored."""
    kept = {"input": stored.input(0), "output": stored.output}
    lines = [line for name, rows in kept.items() if rows for line in _ring(name, rows)]
    return ([f"{ctype} layer = $_layer;", *lines], "&layer") if lines else ([], "&$_layer")


def _ring(name: str, rows: Kept) -> list[str]:
    return [
        f"layer.{name}.is_ring = true;",
        f"layer.{name}.ring_rows = {rows.stored_text};",
        f"layer.{name}.ring_shift = {rows.shift_text or 0};",
    ]
