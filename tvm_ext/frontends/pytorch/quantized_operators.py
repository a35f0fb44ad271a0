"""Quantize and dequantize as PT2E quantization writes them into a graph: the operators of `quantized_decomposed`.

torch computes clamp(round(x * (1 / scale)) + zero point, least, largest), and (q - zero point) * scale; bounds that are
narrower than the type stay as a clip of the integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import constant
from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused

Converter = Callable[[Any, Any], relax.Expr]

_QUANTIZED = ("int8", "uint8", "int16", "uint16")
_DEQUANTIZED = (*_QUANTIZED, "int32")


def register_operators() -> None:
    """Make torch know the operators, which it does once a module of its own is imported."""
    import torch.ao.quantization.fx._decomposed  # pyright: ignore[reportMissingImports] # noqa: F401


def _quantize(node: Any, importer: Any) -> relax.Expr:
    """`quantize_per_tensor` and `quantize_per_channel`: torch's node, TVM's importer -> the integers."""
    x, scale, zero_point, axis, (least, most), dtype = _arguments(node, importer)
    if dtype not in _QUANTIZED or _dtype(x) != "float32":
        raise Refused(f"it quantizes {_dtype(x)} to {dtype}, not float32 to {', '.join(_QUANTIZED)}")
    emit = importer.block_builder.emit
    integers = emit(relax.op.quantize(x, scale, zero_point, axis, dtype))
    limits = np.iinfo(dtype)
    if least > most:
        raise Refused(f"its bounds {least} and {most} leave no integer")
    if least <= limits.min and most >= limits.max:
        return integers
    return emit(relax.op.clip(integers, max(least, int(limits.min)), min(most, int(limits.max))))


def _dequantize(node: Any, importer: Any) -> relax.Expr:
    """`dequantize_per_tensor` and `dequantize_per_channel`: torch's node, TVM's importer -> real numbers."""
    x, scale, zero_point, axis, _, dtype = _arguments(node, importer)
    wanted = _torch_name(node.kwargs.get("out_dtype") or "float32")
    if dtype not in _DEQUANTIZED or wanted != "float32":
        raise Refused(f"it dequantizes {dtype} to {wanted}, not one of {', '.join(_DEQUANTIZED)} to float32")
    return importer.block_builder.emit(relax.op.dequantize(x, scale, zero_point, axis, "float32"))


CONVERTERS: dict[str, Converter] = {
    "quantize_per_tensor.default": _quantize,
    "quantize_per_tensor.tensor": _quantize,
    "quantize_per_channel.default": _quantize,
    "dequantize_per_tensor.default": _dequantize,
    "dequantize_per_tensor.tensor": _dequantize,
    "dequantize_per_channel.default": _dequantize,
}
"""Converters for TVM's importer by operator; each raises Refused for element types that have no integers here."""


def _arguments(node: Any, importer: Any) -> tuple[Any, Any, Any, int, tuple[int, int], str]:
    """Data, scale float32, zero point in the type of the integers, axis of these two, bounds, type of the integers."""
    given = arguments_of(node)
    dtype = _torch_name(given["dtype"])
    values = [given.get("scale", given.get("scales")), given.get("zero_point", given.get("zero_points"))]
    kinds = [_read(value, kind, importer) for value, kind in zip(values, ("float32", dtype), strict=True)]
    bounds = (int(given["quant_min"]), int(given["quant_max"]))
    return importer.env[given["input"]], *kinds, int(given.get("axis", 0)), bounds, dtype


def _read(value: Any, dtype: str, importer: Any) -> relax.Expr:
    """A number, or a tensor of the graph, as one of the given type; none as 0. One element loses its axes."""
    if value is None or isinstance(value, int | float):
        return constant(np.array(value or 0).astype(dtype))
    emit, tensor = importer.block_builder.emit, importer.env[value]
    if [int(dim) for dim in tensor.ty.shape.values] == [1]:
        tensor = emit(relax.op.reshape(tensor, ()))
    return tensor if _dtype(tensor) == dtype else emit(relax.op.astype(tensor, dtype))


def _dtype(value: relax.Expr) -> str:
    return str(value.ty.dtype)


def _torch_name(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
