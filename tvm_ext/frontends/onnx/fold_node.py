"""Nodes all of whose inputs are known: computed at import by onnxruntime, or by ONNX's reference where it cannot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.onnx.element_types import SUPPORTED_DTYPES

# A few bytes may ask for any size; what is larger is not computed here.
_MAX_ELEMENTS = 1 << 26
_MAX_IR_VERSION = 11


def fold_node(node: onnx.NodeProto, inputs: Sequence[relax.Expr | None], opset: int) -> list[relax.Expr] | None:
    """The node's results as constants; None where an input is not known, or the node cannot be computed alone."""
    arrays = [None if value is None else array_of(value) for value in inputs]
    if not all_constant(inputs) or any(_is_graph(a) for a in node.attribute):
        return None
    given = {name: array for name, array in zip(node.input, arrays, strict=False) if name and array is not None}
    model = _model(node, given, opset)
    if model is None:
        return None
    for compute in (_by_onnxruntime, _by_reference):
        try:
            results = compute(model, given)
        except Exception:  # both raise what they like about an operator they do not know
            continue
        return _constants(node, results)
    return None


def known_if_empty(value: relax.Expr) -> relax.Expr:
    """A tensor without elements holds nothing that could vary: it is a constant."""
    shape = static_shape(value)
    return constant(np.empty(shape, str(value.ty.dtype))) if 0 in shape else value


def all_constant(inputs: Sequence[object]) -> bool:
    """Whether there are inputs, and the numbers of all of them are known."""
    given = [value for value in inputs if value is not None]
    return bool(given) and all(isinstance(value, tvm.ir.GenericConst) for value in given)


def _is_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _model(node: onnx.NodeProto, given: dict[str, np.ndarray], opset: int) -> onnx.ModelProto | None:
    """The node alone, its inputs as inputs; None where its results are too large or of unknown type."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", inputs, outputs)
    imports = [helper.make_opsetid(node.domain, opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=_MAX_IR_VERSION)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return None
    del model.graph.output[:]
    model.graph.output.extend(inferred.output)
    for value in model.graph.output:
        dims = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == TensorProto.UNDEFINED or np.prod(dims, dtype=float) > _MAX_ELEMENTS:
            return None
    return model


def _by_onnxruntime(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def _by_reference(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ReferenceEvaluator(model).run(None, given)


def _constants(node: onnx.NodeProto, results: Sequence[object]) -> list[relax.Expr] | None:
    """In the places of the node's outputs; None for types that are not supported."""
    arrays = [np.asarray(result) for result in results]
    if any(str(array.dtype) not in SUPPORTED_DTYPES for array in arrays):
        return None
    found = iter(arrays)
    return [constant(next(found)) if name else None for name in node.output]
