"""Compute nodes with only known inputs at import, by onnxruntime, or by ONNX's reference where onnxruntime cannot."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.onnx.element_types import SUPPORTED_DTYPES
from tvm_ext.frontends.onnx.refusals import draws
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.size_limits import ImportSizes

# Sizes, axes and shapes are passed to ONNX's shape inference as numbers. Larger tensors are none of these.
_MAX_PARAMETERS = 64
# Most numbers that are considered where the shape of a result depends on numbers.
_MAX_ELEMENTS = 1 << 20
_MAX_IR_VERSION = 11


def fold_node(
    node: onnx.NodeProto, inputs: Sequence[relax.Expr | None], opset: int, sizes: ImportSizes
) -> list[relax.Expr] | None:
    """Return the node's results as constants, or None.

    None where an input is unknown, the node cannot be computed alone, or it is random. Raises Refused for results that
    are too large.
    """
    arrays = [None if value is None else array_of(value) for value in inputs]
    if draws(node) or not all_constant(inputs) or any(_is_graph(a) for a in node.attribute):
        return None
    given = {name: array for name, array in zip(node.input, arrays, strict=False) if name and array is not None}
    model = _model(node, given, opset, sizes)
    if model is None:
        return None
    for compute in (_by_onnxruntime, _by_reference):
        try:
            results = compute(model, given)
        except Exception:  # both may raise anything for an operator that they do not know
            continue
        folded = _constants(node, results)
        return folded and [value and sizes.computed(value) for value in folded]
    return None


def known_if_empty(value: relax.Expr) -> relax.Expr:
    """Return a tensor without elements as a constant, because nothing in it can vary."""
    shape = static_shape(value)
    return constant(np.empty(shape, str(value.ty.dtype))) if 0 in shape else value


def all_constant(inputs: Sequence[object]) -> bool:
    """Return True if there are inputs, and the numbers of all of them are known."""
    given = [value for value in inputs if value is not None]
    return bool(given) and all(isinstance(value, tvm.ir.GenericConst) for value in given)


def _is_graph(attribute: onnx.AttributeProto) -> bool:
    return attribute.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)


def _model(
    node: onnx.NodeProto, given: dict[str, np.ndarray], opset: int, sizes: ImportSizes
) -> onnx.ModelProto | None:
    """Return a model of the node alone, or None where its results have unknown types. Raises Refused for its size."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in given.items()}
    inputs = [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    # Inference uses the numbers of initializers only, and only of initializers that are not also inputs.
    parameters = {name: array for name, array in given.items() if array.size <= _MAX_PARAMETERS}
    unknown = [value for value in inputs if value.name not in parameters]
    numbers = [numpy_helper.from_array(array, name) for name, array in parameters.items()]
    graph = helper.make_graph([node], "node", unknown, outputs, numbers)
    imports = [helper.make_opsetid(node.domain, opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=_MAX_IR_VERSION)
    try:
        inferred = onnx.shape_inference.infer_shapes(model).graph
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return None
    del model.graph.output[:]
    model.graph.output.extend(inferred.output)
    del model.graph.initializer[:]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for value in model.graph.output:
        if value.type.tensor_type.elem_type in (TensorProto.UNDEFINED, TensorProto.STRING):
            return None
        reason = _too_large(value.type.tensor_type, given, sizes)
        if reason:
            raise Refused(reason)
    return model


def _too_large(result: onnx.TypeProto.Tensor, given: dict[str, np.ndarray], sizes: ImportSizes) -> str | None:
    """Return why a result is not computed: its size, or the size of the operands that decide its size."""
    dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in result.shape.dim]
    if not result.HasField("shape") or None in dims:
        largest = max(array.size for array in given.values())
        return f"the shape of its output depends on {largest} numbers" if largest > _MAX_ELEMENTS else None
    extents = [extent for extent in dims if extent is not None]
    element_bytes = helper.tensor_dtype_to_np_dtype(result.elem_type).itemsize
    reason = sizes.limits.excess_of_tensor(extents, element_bytes)
    return reason or sizes.refuses_constant(math.prod(extents) * element_bytes)


def _by_onnxruntime(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime  # most models do not need this import

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, given)


def _by_reference(model: onnx.ModelProto, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    from onnx.reference import ReferenceEvaluator  # has all operators of ONNX

    return ReferenceEvaluator(model).run(None, given)


def _constants(node: onnx.NodeProto, results: Sequence[object]) -> list[relax.Expr] | None:
    """Return the node's outputs as constants, or None for types that are not supported."""
    arrays = [np.asarray(result) for result in results]
    if any(str(array.dtype) not in SUPPORTED_DTYPES for array in arrays):
        return None
    found = iter(arrays)
    return [constant(next(found)) if name else None for name in node.output]
