"""Types and shapes of a model by ONNX's own inference, which refuses what the standard does not allow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from tvm_ext.core.errors import BadModel

Types = dict[str, onnx.TypeProto.Tensor]
# Domains of which ONNX knows the operators; only a model of these alone can be judged.
_STANDARD = frozenset(["", "ai.onnx"])
# Operators for which ONNX infers wrong types or shapes, or refuses what is right.
_INFERRED_WRONG = frozenset(["STFT", "Loop", "Scan", "If", "SequenceMap", "MeanVarianceNormalization"])

# With its data propagation, ONNX's inference writes out each element of a vector, known or not.
_LONGEST_VECTOR = 1 << 16


def inferred_types(
    path: Path, model: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], *, longest_vector: int | None = None
) -> Types:
    """Types of the tensors that can be inferred, by name, for inputs of the given shapes. Raises BadModel.

    Shapes written into the file for other tensors may be stale, and are not read; their types are. longest_vector:
    elements of the longest tensor of rank 1; where it is known and not too long, shapes that are computed are followed
    too.
    """
    data_prop = longest_vector is not None and longest_vector <= _LONGEST_VECTOR
    static = onnx.ModelProto()
    static.CopyFrom(model)
    for value in static.graph.input:
        if value.name in shapes:
            dims = [onnx.TensorShapeProto.Dimension(dim_value=dim) for dim in shapes[value.name]]
            value.type.tensor_type.shape.CopyFrom(onnx.TensorShapeProto(dim=dims))
    del static.graph.value_info[:]
    for value in static.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    try:
        graph = onnx.shape_inference.infer_shapes(
            static, check_type=_is_standard(model), strict_mode=_is_standard(model), data_prop=data_prop
        ).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        if not _is_standard(model):
            return {}
        text = " ".join(str(error).split()).removeprefix("[ShapeInferenceError] ")[:400]
        raise BadModel(f"{path}: ONNX's type and shape inference refuses it: {text}") from None
    return {value.name: value.type.tensor_type for value in [*graph.value_info, *graph.output] if _is_tensor(value)}


def _is_standard(model: onnx.ModelProto) -> bool:
    """True for a model of standard operators alone, all of which ONNX infers rightly."""
    known = all(node.domain in _STANDARD and node.op_type not in _INFERRED_WRONG for node in model.graph.node)
    return known and not model.functions


def _is_tensor(value: onnx.ValueInfoProto) -> bool:
    return value.type.HasField("tensor_type") and value.type.tensor_type.elem_type != onnx.TensorProto.UNDEFINED
