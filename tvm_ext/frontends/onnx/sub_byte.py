"""Integers of 4 and 2 bits: each in a byte of its own, kept within its range where a model makes one.

So a dequantized weight of 4 bits is one of 8 bits to everything behind the import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tvm_ext.frontends.onnx.walk_nodes import graphs_of


@dataclass(frozen=True, kw_only=True)
class SubByte:
    """dtype: of the byte. low, high: least and largest value."""

    dtype: str
    low: int
    high: int


SUB_BYTES: Mapping[int, SubByte] = {
    TensorProto.INT4: SubByte(dtype="int8", low=-8, high=7),
    TensorProto.UINT4: SubByte(dtype="uint8", low=0, high=15),
    TensorProto.INT2: SubByte(dtype="int8", low=-2, high=1),
    TensorProto.UINT2: SubByte(dtype="uint8", low=0, high=3),
}
"""By element type of ONNX."""
_MAKING = frozenset(("QuantizeLinear", "Cast", "CastLike"))


def in_bytes(array: np.ndarray) -> np.ndarray:
    """The array with integers of less than a byte in bytes; others as they are."""
    kind = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8"}.get(array.dtype.name)
    return array if kind is None else array.astype(kind)


def spelled_out(node: onnx.NodeProto, element_types: Mapping[str, int], label: str) -> Iterator[onnx.NodeProto]:
    """The node, or others where it makes integers of less than a byte: QuantizeLinear clips them, Cast wraps them.

    element_types: of the model's tensors. label: name of the node.
    """
    kind = SUB_BYTES.get(element_types.get(node.output[0], 0)) if node.op_type in _MAKING else None
    if kind is None or node.domain not in ("", "ai.onnx"):
        yield node
        return
    result, between = (
        node.output[0],
        [f"{node.output[0]}/{step}" for step in ("wide", "raised", "wrapped", "low", "high")],
    )
    wide, raised, wrapped, low, high = between
    byte = helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype))
    if node.op_type == "QuantizeLinear":
        kept = [attribute for attribute in node.attribute if attribute.name != "output_dtype"]
        yield from _constants({low: kind.low, high: kind.high}, kind.dtype, label)
        quantize = helper.make_node("QuantizeLinear", node.input, [wide], name=label)
        quantize.attribute.extend([*kept, helper.make_attribute("output_dtype", byte)])
        yield quantize
        yield helper.make_node("Clip", [wide, low, high], [result], name=label)
        return
    yield from _constants({low: kind.low, high: kind.high - kind.low + 1}, "int32", label)
    yield helper.make_node("Cast", [node.input[0]], [wide], to=TensorProto.INT32, name=label)
    yield helper.make_node("Sub", [wide, low], [raised], name=label)
    yield helper.make_node("Mod", [raised, high], [f"{wrapped}/of"], name=label)
    yield helper.make_node("Add", [f"{wrapped}/of", low], [wrapped], name=label)
    yield helper.make_node("Cast", [wrapped], [result], to=byte, name=label)


def made_unseen(model: onnx.ModelProto, element_types: Mapping[str, int]) -> onnx.NodeProto | None:
    """Node that may make integers of less than a byte where no type says so.

    It stands in a function, branch or loop, or behind operators that are not of the standard. element_types: of the
    model's tensors.
    """
    if not any(tensor in SUB_BYTES for tensor in _types_in(model)):
        return None
    inner = [node for graph in list(graphs_of(model))[1:] for node in graph.node]
    inner += [node for function in model.functions for node in function.node]
    inner += [node for node in model.graph.node if node.output and node.output[0] not in element_types]
    return next((node for node in inner if node.op_type in _MAKING), None)


def _types_in(model: onnx.ModelProto) -> Iterable[int]:
    for graph in graphs_of(model):
        yield from (tensor.data_type for tensor in graph.initializer)
        yield from (value.type.tensor_type.elem_type for value in [*graph.input, *graph.output])
    nodes = [node for graph in graphs_of(model) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    for attribute in [attribute for node in nodes for attribute in node.attribute]:
        yield attribute.i if attribute.name in ("to", "output_dtype") else attribute.t.data_type


def _constants(values: Mapping[str, int], dtype: str, label: str) -> Iterator[onnx.NodeProto]:
    for name, value in values.items():
        tensor = numpy_helper.from_array(np.array(value, dtype))
        yield helper.make_node("Constant", [], [name], value=tensor, name=label)
