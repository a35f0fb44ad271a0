"""Converters of ONNX operators, by domain and name. Our own, a file per family, take precedence over TVM's.

A family is a module with a table `CONVERTERS: dict[(domain, op_type), converter class]`. A converter class has TVM's
form (`_impl_v<opset>(bb, inputs, attr, params)` class methods).
"""

from __future__ import annotations

from tvm.relax.frontend.onnx import onnx_frontend

from tvm_ext.frontends.onnx.operators import (
    constants,
    contrib_attention,
    contrib_fused,
    convolution,
    elementwise,
    matrices,
    movement,
    normalization,
    older_opsets,
    pooling,
    quantized,
    recurrent,
    reductions,
    resize,
    selection,
)

Converters = dict[tuple[str, str], type[onnx_frontend.OnnxOpConverter]]

_FAMILIES = (
    constants,
    contrib_attention,
    contrib_fused,
    convolution,
    elementwise,
    matrices,
    movement,
    normalization,
    older_opsets,
    pooling,
    quantized,
    recurrent,
    reductions,
    resize,
    selection,
)

# TVM finds converters by name only. These belong to the domain com.microsoft alone.
_MICROSOFT_ONLY = frozenset(
    [
        "AllClassNMS",
        "Attention",
        "BiasGelu",
        "EmbedLayerNormalization",
        "FastGelu",
        "MatMulInteger16",
        "SkipLayerNormalization",
    ]
)
_MICROSOFT_TOO = frozenset(("Gelu", "QuantizeLinear", "DequantizeLinear"))
# Operators of com.microsoft that the standard has too, with its operator set that defines them alike.
_AS_STANDARD = {"ExpandDims": ("Unsqueeze", 13), "GatherND": ("GatherND", 13), "GridSample": ("GridSample", 16),
                "Pad": ("Pad", 13), "Range": ("Range", 11), "Trilu": ("Trilu", 14)}  # fmt: skip


def converters() -> Converters:
    """Return the converter of each operator that has one. Raises ValueError when two families define the same."""
    found: Converters = {}
    for name, converter in onnx_frontend._get_convert_map().items():
        if name not in _MICROSOFT_ONLY:
            found["", name] = converter
        if name in _MICROSOFT_ONLY | _MICROSOFT_TOO:
            found["com.microsoft", name] = converter
    owners: dict[tuple[str, str], str] = {}
    for family in _FAMILIES:
        for key, converter in family.CONVERTERS.items():
            if key in owners:
                raise ValueError(f"{key} is converted in {owners[key]} and in {family.__name__}")
            owners[key] = family.__name__
            found[key] = converter
    for name, (standard, opset) in _AS_STANDARD.items():
        found["com.microsoft", name] = _of_opset(found["", standard], opset)
    return found


def _of_opset(converter: type[onnx_frontend.OnnxOpConverter], opset: int) -> type[onnx_frontend.OnnxOpConverter]:
    """Return a converter that reads every node as a node of this operator set."""
    return type(
        converter.__name__, (converter,), {"get_converter": classmethod(lambda cls, _: converter.get_converter(opset))}
    )
