"""Models of one ONNX operator, with onnxruntime and ONNX's reference evaluator beside them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import compose, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.pairing.operator_case import Array, Input, Model

OPSET = 22


def onnx_model(
    kind: str,
    inputs: Mapping[str, Input | Array | None],
    *,
    outputs: Sequence[str] = ("float32",),
    opset: int = OPSET,
    domain: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> Model:
    """Return a model of one node.

    inputs: of the node in order; an array is an initializer, None an optional input that is left out. outputs: their
    element types; an empty one is an optional output that is not asked for. attributes: those that are None are left
    out.
    """
    names = [name if value is not None else "" for name, value in inputs.items()]
    while names and not names[-1]:
        names.pop()
    results = [f"y{index}" if dtype else "" for index, dtype in enumerate(outputs)]
    given = {name: value for name, value in (attributes or {}).items() if value is not None}
    node = helper.make_node(kind, names, results, domain=domain, name="node", **given)
    specs = {name: value for name, value in inputs.items() if isinstance(value, Input)}
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info(name, _element(spec.dtype), spec.shape) for name, spec in specs.items()],
        [
            helper.make_tensor_value_info(name, _element(dtype), None)
            for name, dtype in zip(results, outputs, strict=True)
            if name
        ],
        [numpy_helper.from_array(value, name) for name, value in inputs.items() if isinstance(value, np.ndarray)],
    )
    domains = [helper.make_opsetid("", opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(graph, opset_imports=domains, ir_version=10)
    return Model(
        source=model,
        inputs=specs,
        run=lambda arrays: _onnxruntime(model, arrays),
        join=_join,
        kind=f"onnx {opset} {domain}",
        standard=None if domain else lambda arrays: _reference(model, arrays),
    )


def _join(models: Sequence[Model]) -> Model:
    """Return one graph of the graphs of several models, whose names begin with `p0_`, `p1_`."""
    parts = [compose.add_prefix(model.source, f"p{index}_") for index, model in enumerate(models)]
    joined = parts[0]
    for part in parts[1:]:
        joined.graph.node.extend(part.graph.node)
        joined.graph.input.extend(part.graph.input)
        joined.graph.output.extend(part.graph.output)
        joined.graph.initializer.extend(part.graph.initializer)
    return replace(models[0], source=joined)


def _element(dtype: str) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


_SESSIONS: dict[int, Any] = {}


def _onnxruntime(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    import onnxruntime as ort

    if id(model) not in _SESSIONS:
        _SESSIONS.clear()
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        _SESSIONS[id(model)] = (model, session)
    return [np.asarray(array) for array in _SESSIONS[id(model)][1].run(None, dict(arrays))]


def _reference(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> list[Array]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, dict(arrays))]
