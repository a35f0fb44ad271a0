"""Element types of ONNX in TVM, including narrow floats and integers of less than a byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.onnx.check_nodes import Types
from tvm_ext.frontends.onnx.read_file import graphs_of
from tvm_ext.frontends.onnx.refusals import operator_of
from tvm_ext.frontends.refusals import RefusedNode

NARROW_FLOATS = frozenset(("float16", "bfloat16"))
# Operators that move elements, or only use shapes, so that they compute and round nothing.
_MOVES = frozenset(
    "Identity Reshape Flatten Squeeze Unsqueeze Transpose Concat Split Slice Gather Expand Shape Size "
    "DepthToSpace SpaceToDepth Tile".split()
)


def computes_narrow(node: onnx.NodeProto, inputs: Sequence[relax.Expr | None]) -> bool:
    """Return True for a node that computes with 16-bit floats."""
    if node.op_type in _MOVES and node.domain in ("", "ai.onnx"):
        return False
    return any(_dtype(value) in NARROW_FLOATS for value in inputs)


def widened(value: relax.Expr | None) -> relax.Expr | None:
    """Return a 16-bit value as float32. A constant stays a constant."""
    if _dtype(value) not in NARROW_FLOATS:
        return value
    array = array_of(value)
    return relax.op.astype(value, "float32") if array is None else constant(array.astype(np.float32))


def narrow_results(node: onnx.NodeProto, inputs: Sequence[relax.Expr | None]) -> list[str]:
    """Return the type of each output that the standard ties to a 16-bit input, or an empty list.

    Operators outside the standard return the type of their inputs.
    """
    narrow = [dtype if (dtype := _dtype(value)) in NARROW_FLOATS else "" for value in inputs]
    try:
        schema = onnx.defs.get_schema(node.op_type, "" if node.domain == "ai.onnx" else node.domain)
    except onnx.defs.SchemaError:
        return [max(narrow)] * len(node.output)
    types: dict[str, str] = {}
    for index, dtype in enumerate(narrow):
        if dtype:
            types.setdefault(schema.inputs[min(index, len(schema.inputs) - 1)].type_str, dtype)
    last = len(schema.outputs) - 1
    return [types.get(schema.outputs[min(index, last)].type_str, "") for index in range(len(node.output))]


def narrowed(value: relax.Expr, dtype: str) -> relax.Expr:
    """Return a float32 result in the type that it has in the model. Other results are unchanged."""
    if not dtype or _dtype(value) != "float32":
        return value
    array = array_of(value)
    if array is None:
        return relax.op.astype(value, dtype)
    with np.errstate(over="ignore"):
        return constant(array.astype(dtype))


def _dtype(value: relax.Expr | None) -> str:
    return str(value.ty.dtype) if isinstance(value, relax.Expr) and isinstance(value.ty, relax.TensorType) else ""


# Strings, complex numbers and 8-bit floats are missing here, because C11 has none of them.
_INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
SUPPORTED_DTYPES = frozenset({"bool", "float32", "float64"} | _INTEGERS | NARROW_FLOATS)

# ONNX treats every transform as two-sided.
_INFERRED_WRONG = frozenset(["STFT"])


def dtype_of(data_type: int) -> str | None:
    """Return `float32` for TensorProto.FLOAT, `int8` for INT4 (a byte each), or None for unsupported types."""
    if data_type in SUB_BYTES:
        return SUB_BYTES[data_type].dtype
    if data_type not in onnx.TensorProto.DataType.values() or data_type == onnx.TensorProto.UNDEFINED:
        return None
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(data_type))
    return dtype if dtype in SUPPORTED_DTYPES else None


def type_name(data_type: int) -> str:
    """Return the name in the ONNX standard, such as `STRING` or `FLOAT8E5M2`, or the number without a name."""
    known = dict(zip(onnx.TensorProto.DataType.values(), onnx.TensorProto.DataType.keys(), strict=True))
    return known.get(data_type, str(data_type))


def not_supported(data_type: int) -> str:
    """Return why a tensor of such elements is refused."""
    return unsupported_type(type_name(data_type))


def unsupported_type(name: str) -> str:
    """Return why an operator with such elements is refused."""
    return f"its element type {name} is not supported; integers, bool, and floats of 64, 32 and 16 bits are"


def contradictions(model: onnx.ModelProto, inferred: Types, tensors: Mapping[str, relax.Expr]) -> list[RefusedNode]:
    """Return nodes whose imported results differ in type or shape from ONNX's inference.

    A wrong shape is an error of a converter, which would otherwise show only as wrong numbers.
    """
    read = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    problems = []
    for index, node in enumerate(model.graph.node):
        if node.op_type in _INFERRED_WRONG:
            continue
        for name in [name for name in node.output if name in read]:
            expected, found = inferred.get(name), tensors.get(name)
            if expected is None or found is None:
                continue
            dtype, shape = str(found.ty.dtype), static_shape(found)
            if dtype_of(expected.elem_type) != dtype or not _agrees(expected, shape):
                reason = f"{name!r} is {dtype}{list(shape)} here, {_text(expected)} in the file, or as ONNX infers"
                label = node.name or f"{node.op_type}_{index}"
                problems.append(RefusedNode(operator=operator_of(node), node=label, reason=reason))
    return problems


def _agrees(expected: onnx.TypeProto.Tensor, shape: tuple[int, ...]) -> bool:
    if not expected.HasField("shape"):
        return True
    dims = expected.shape.dim
    known = [(dim.dim_value, found) for dim, found in zip(dims, shape, strict=False) if dim.HasField("dim_value")]
    return len(dims) == len(shape) and all(wanted == found for wanted, found in known)


def _text(expected: onnx.TypeProto.Tensor) -> str:
    dims = [str(dim.dim_value) if dim.HasField("dim_value") else "?" for dim in expected.shape.dim]
    shape = f"[{', '.join(dims)}]" if expected.HasField("shape") else ""
    return f"{dtype_of(expected.elem_type)}{shape}"


@dataclass(frozen=True, kw_only=True)
class SubByte:
    """An integer type of less than a byte.

    dtype: of the byte.
    low, high: least and largest value.
    """

    dtype: str
    low: int
    high: int


SUB_BYTES: Mapping[int, SubByte] = {
    TensorProto.INT4: SubByte(dtype="int8", low=-8, high=7),
    TensorProto.UINT4: SubByte(dtype="uint8", low=0, high=15),
    TensorProto.INT2: SubByte(dtype="int8", low=-2, high=1),
    TensorProto.UINT2: SubByte(dtype="uint8", low=0, high=3),
}
"""Types of less than a byte, by element type of ONNX."""
_MAKING = frozenset(("QuantizeLinear", "Cast", "CastLike"))


def in_bytes(array: np.ndarray) -> np.ndarray:
    """Return the array with integers of less than a byte in bytes. Other arrays are unchanged."""
    kind = {"int4": "int8", "int2": "int8", "uint4": "uint8", "uint2": "uint8"}.get(array.dtype.name)
    return array if kind is None else array.astype(kind)


def spelled_out(node: onnx.NodeProto, element_types: Mapping[str, int], label: str) -> Iterator[onnx.NodeProto]:
    """Yield the node, or replacements where it creates integers of less than a byte.

    QuantizeLinear clips such integers, and Cast wraps them.
    element_types: of the model's tensors.
    label: name of the node.
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
    """Return a node that may create integers of less than a byte without a type that says so, or None.

    It stands in a function, branch or loop, or after operators outside the standard.
    element_types: of the model's tensors.
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
