"""MediaPipe's custom operator Convolution2DTransposeBias: a transposed convolution in float32 with a bias.

Its operands are data [N, H, W, C], weights [K, R, S, C] and bias [K]. Its options are a structure of C and no
flexbuffer: four bytes each of padding, width of the strides and height of the strides, all in little-endian order.
Later versions of the structure add a fused activation and the type of the bias. MediaPipe reads neither of them.

The shape of the output follows from the shape of the data. An axis with E elements, a kernel of R and a stride of S has
S * (E - 1) + R output elements with VALID padding. With SAME padding max(0, R - (E - 1) % S - 1) of these are cut off,
half of them (rounded down) at the beginning. TRANSPOSE_CONV pads in the same way for an output of this shape.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import relax

from codegen_c.custom.registry import custom_operator
from relay_passes.dataflow import static_shape
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.tflite.layers import LayerInput, transposed
from tvm_ext.frontends.tflite.read_file import TfliteFile, TfliteNode

TRANSPOSED = "Convolution2DTransposeBias"
_SAME, _VALID = 1, 2  # numbers of TfLitePadding; the schema of files counts from 0
_STRUCTURE = struct.Struct("<iii")
_SIZES = (12, 16, 20)
_LARGEST_STRIDE = 1 << 16


@dataclass(frozen=True, kw_only=True)
class TransposedWindow:
    """Padding of a transposed convolution, SAME or VALID, and its strides along rows and columns."""

    is_same: bool
    strides: tuple[int, int]

    def extent(self, axis: int, elements: int, kernel: int) -> int:
        """Return the number of output elements along an axis. axis: 0 for rows, 1 for columns."""
        stride = self.strides[axis]
        cut = max(0, kernel - (elements - 1) % stride - 1) if self.is_same else 0
        return stride * (elements - 1) + kernel - cut


def is_of_mediapipe(node: TfliteNode) -> bool:
    """Return True for an operator that is converted here: one of MediaPipe that the user does not define."""
    return node.is_custom and node.operator == TRANSPOSED and custom_operator(TRANSPOSED) is None


def refusal_of_mediapipe(file: TfliteFile, node: TfliteNode) -> str | None:
    """Return why an operator of MediaPipe cannot be compiled, or None."""
    if len(node.inputs) != 3 or len(node.outputs) != 1 or -1 in (*node.inputs, *node.outputs):
        return f"it has {len(node.inputs)} inputs and {len(node.outputs)} outputs; 3 and 1 are needed, none left out"
    tensors = [file.tensors[index] for index in (*node.inputs, *node.outputs)]
    wrong = next((tensor for tensor in tensors if tensor.dtype != "float32"), None)
    if wrong is not None:
        return f"its tensor {wrong.name!r} is of type {wrong.type_name}; MediaPipe defines it for float32 only"
    data, weight, bias, output = (tensor.shape for tensor in tensors)
    if len(data) != 4 or len(weight) != 4 or weight[3] != data[3] or bias != (weight[0],) or 0 in (*data, *weight):
        return f"its data {list(data)}, weights {list(weight)} and bias {list(bias)} do not fit together"
    try:
        wanted = _shape_of_output(_window(node), data, weight)
    except Refused as error:
        return str(error)
    # The axes that the file leaves open get their extents later.
    if None not in tensors[0].dims and output != wanted:
        return f"its output is {list(output)} in the file; its operands and options give {list(wanted)}"
    return None


def convert(node: TfliteNode, values: Mapping[int, relax.Expr]) -> relax.Expr:
    """Return the transposed convolution and its bias. Raises Refused."""
    data, weight, bias = (values[index] for index in node.inputs)
    window = _window(node)
    _, rows, columns, _ = _shape_of_output(window, static_shape(data), static_shape(weight))
    layer = LayerInput(value=data), LayerInput(value=weight)
    result = transposed(*layer, (rows, columns), strides=window.strides, is_same=window.is_same)
    return relax.op.add(result, bias)


def _shape_of_output(window: TransposedWindow, data: tuple[int, ...], weight: tuple[int, ...]) -> tuple[int, ...]:
    extents = [window.extent(axis, data[axis + 1], weight[axis + 1]) for axis in (0, 1)]
    if min(extents) < 1 or math.prod(extents) >= 1 << 31:
        raise Refused(f"its output would have {extents[0]} rows and {extents[1]} columns")
    return (data[0], *extents, weight[0])


def _window(node: TfliteNode) -> TransposedWindow:
    return read_window(bytes(node.table.CustomOptionsAsNumpy()) if node.table.CustomOptionsLength() else b"")


def read_window(raw: bytes) -> TransposedWindow:
    """Return padding and strides from the operator's options. Raises Refused for impossible options."""
    if len(raw) not in _SIZES:
        raise Refused(f"its options have {len(raw)} B; a TfLiteTransposeConvParams of {_SIZES[0]} B is needed")
    padding, width, height = _STRUCTURE.unpack_from(raw)
    if padding not in (_SAME, _VALID):
        raise Refused(f"its padding is {padding}; it is SAME ({_SAME}) or VALID ({_VALID})")
    if not 1 <= min(width, height) <= max(width, height) <= _LARGEST_STRIDE:
        raise Refused(f"its strides are {height} and {width}; they must be 1 to {_LARGEST_STRIDE}")
    if any(raw[_STRUCTURE.size : _STRUCTURE.size + 4]):
        raise Refused("it has a fused activation, which MediaPipe ignores; make the activation an operator of its own")
    return TransposedWindow(is_same=padding == _SAME, strides=(height, width))
