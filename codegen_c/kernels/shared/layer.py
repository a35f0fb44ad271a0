"""Layers as structures of tvm_ext_layer.h in C text.

The shapes of a layer are one constant beside its functions. Ring buffers may depend on parameters of a call, so they
are set in a copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from codegen_c.c_text.text import MOST_COLUMNS, Value, block, structure
from codegen_c.kernels.contract import ALL_STORED, Kept, StoredRows
from codegen_c.kernels.shared.requantize import Requantize, quantization
from codegen_c.kernels.shared.sums import holds_sums
from codegen_c.operators.kinds import QDense, TensorType, Window

BLOCK_INCLUDES = (
    "tvm_ext_layer.h", "tvm_ext_qblock.h", "tvm_ext_requantize.h", "tvm_ext_requantize_litert.h",
    "tvm_ext_requantize_tflite.h",
)  # fmt: skip
"""Headers of the portable integer kernels' blocks."""


def image(tensor: TensorType, *, stored: StoredRows = ALL_STORED, kept: Kept | None = None) -> dict[str, Value]:
    """Return a `tvm_ext_image` of a tensor [N, H, W, C].

    stored: layout of an output's pixels and rows. kept: its ring buffer, if its numbers are constants.
    """
    images, rows, columns, channels = tensor.shape
    members: dict[str, Value] = {
        "images": images, "rows": rows, "columns": columns, "channels": channels,
        "pitch": stored.pitch or channels,
    }  # fmt: skip
    if stored.row_pitch:
        members |= {"row_pitch": stored.row_pitch}
    if kept:
        members |= {"is_ring": True, "ring_rows": kept.stored_text, "ring_shift": kept.shift_text or 0}
    if holds_sums(tensor):
        members |= {"holds_sums": True}
    if tensor.dtype in ("int16", "uint16"):
        members |= {"is_wide": True}
    if tensor.dtype in ("uint8", "uint16"):
        members |= {"is_unsigned": True}
    if tensor.quantization:
        members |= {"zero_point": tensor.quantization.zero_point}
    return members


def sliding_window(window: Window) -> dict[str, Value]:
    """Return a `tvm_ext_window`."""
    top, left, bottom, right = window.padding
    return {
        "rows": window.kernel[0], "columns": window.kernel[1],
        "row_stride": window.strides[0], "column_stride": window.strides[1],
        "row_dilation": window.dilation[0], "column_dilation": window.dilation[1],
        "top": top, "left": left, "bottom": bottom, "right": right,
    }  # fmt: skip


def row_of_vectors(operator: QDense) -> dict[str, Value]:
    """Return the images and the window of a dense layer as a convolution of one row, whose pixels are the vectors."""
    channels, depth = operator.weight.shape
    vectors = operator.output.num_elements // channels
    return {
        "input": image(replace(operator.inputs[0], shape=(1, 1, vectors, depth))),
        "output": image(replace(operator.output, shape=(1, 1, vectors, channels))),
        "window": sliding_window(Window(kernel=(1, 1))),
    }  # fmt: skip


def rescale(finish: Requantize, *, wide: bool = False) -> dict[str, Value]:
    """Return a `tvm_ext_rescale` of tvm_ext_qblock.h. wide: sums have 64 bits."""
    members: dict[str, Value] = {"is_wide": True} if wide else {}
    members |= {"by_high_product": True} if finish.takes_high_products else {}
    members |= {"rounds_up": True} if finish.rounding == "tflite_wide" else {}
    members |= {"in_floats": True} if finish.rounding == "litert" else {}
    return members | {
        "rounds_twice": finish.rounding == "tflite", "channel_step": 0 if finish.is_uniform else 1,
        "zero_point": quantization(finish.output).zero_point, "low": finish.low, "high": finish.high,
    }  # fmt: skip


def shapes(ctype: str, members: Mapping[str, Value], *, name: str = "$_layer") -> str:
    """Return the definition of the shapes of a layer."""
    first, *others = structure(ctype, name, members)
    return "\n".join([f"static {first}", *others, ""])


def apart(name: str, parameters: Sequence[str], lines: Sequence[str], *, linkage: str = "TVM_EXT_STEP") -> str:
    """Return the definition of a void C function that is not inlined: one copy for all callers."""
    head = f"{linkage} void {name}({', '.join(parameters)})"
    if len(head) > MOST_COLUMNS:
        head = f"{linkage} void {name}(\n" + block(",\n".join(parameters)) + ")"
    return f"{head}\n{{\n{block(lines)}\n}}\n"


@dataclass(frozen=True, kw_only=True)
class LayerText:
    """A layer's shapes as C:

    their definition, statements before their use, the expression of their address, headers.
    """

    definition: str = ""
    statements: Sequence[str] = ()
    address: str = ""
    includes: tuple[str, ...] = ()


NO_LAYER = LayerText()
"""Text of a kernel that needs no shapes."""


def with_rings(
    ctype: str,
    stored: StoredRows,
    inputs: Sequence[str] = ("input",),
    output: str = "output",
    *,
    shapes: str = "$_layer",
    name: str = "layer",
) -> tuple[list[str], str]:
    """Return statements that define the layer with its ring buffers, and its address; none without ring buffers.

    inputs, output: members of the layer that describe them. shapes: the constant; name: of its copy with ring buffers.
    """
    kept = {member: stored.input(index) for index, member in enumerate(inputs)} | {output: stored.output}
    lines = [line for member, rows in kept.items() if rows for line in _ring(f"{name}.{member}", rows)]
    return ([f"{ctype} {name} = {shapes};", *lines], f"&{name}") if lines else ([], f"&{shapes}")


def _ring(member: str, rows: Kept) -> list[str]:
    return [
        f"{member}.is_ring = true;",
        f"{member}.ring_rows = {rows.stored_text};",
        f"{member}.ring_shift = {rows.shift_text or 0};",
    ]


def one_image(tensor: TensorType) -> TensorType:
    """Return a tensor of any shape as one image, for element-wise kernels: its last axis becomes the channels."""
    shape = tensor.shape
    if len(shape) == 4 and shape[0] == 1:
        return tensor
    channels = shape[-1] if shape else 1
    return replace(tensor, shape=(1, 1, tensor.num_elements // channels, channels))
