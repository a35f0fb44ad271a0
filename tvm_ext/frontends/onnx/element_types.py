"""Element types of ONNX as TVM knows them, and a check of the import against ONNX's own type inference."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.onnx.check_inference import Types
from tvm_ext.frontends.onnx.narrow_floats import NARROW_FLOATS
from tvm_ext.frontends.onnx.refusals import operator_of
from tvm_ext.frontends.onnx.sub_byte import SUB_BYTES
from tvm_ext.frontends.refusals import RefusedNode

# Strings, complex numbers and floats of a byte are not here: C11 has none of them.
_INTEGERS = {f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}
SUPPORTED_DTYPES = frozenset({"bool", "float32", "float64"} | _INTEGERS | NARROW_FLOATS)

# ONNX takes every transform for a two-sided one.
_INFERRED_WRONG = frozenset(["STFT"])


def dtype_of(data_type: int) -> str | None:
    """`float32` for TensorProto.FLOAT, `int8` for INT4 (a byte each); None for types that cannot be compiled."""
    if data_type in SUB_BYTES:
        return SUB_BYTES[data_type].dtype
    if data_type not in onnx.TensorProto.DataType.values() or data_type == onnx.TensorProto.UNDEFINED:
        return None
    dtype = str(onnx.helper.tensor_dtype_to_np_dtype(data_type))
    return dtype if dtype in SUPPORTED_DTYPES else None


def type_name(data_type: int) -> str:
    """`STRING`, `FLOAT8E5M2`: the name in the ONNX standard, or the number where it has none."""
    known = dict(zip(onnx.TensorProto.DataType.values(), onnx.TensorProto.DataType.keys(), strict=True))
    return known.get(data_type, str(data_type))


def not_supported(data_type: int) -> str:
    """Reason why a tensor of such elements is refused."""
    return unsupported_type(type_name(data_type))


def unsupported_type(name: str) -> str:
    """Reason why an operator with such elements is refused."""
    return f"its element type {name} is not supported; integers, bool, and floats of 64, 32 and 16 bits are"


def contradictions(model: onnx.ModelProto, inferred: Types, tensors: Mapping[str, relax.Expr]) -> list[RefusedNode]:
    """Nodes whose imported results differ in type or shape from what ONNX infers for the model.

    A wrong shape is a converter's error that nothing else would notice before the numbers are wrong.
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
