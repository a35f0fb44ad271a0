"""onnxruntime on an ONNX file, and the operators that onnxruntime computes differently from the standard."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # the thread of its telemetry would start with the import
import onnxruntime as ort
from onnx import helper, numpy_helper

from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.core.limits import Limits
from tvm_ext.frontends.onnx.read_file import read_onnx
from tvm_ext.verification.reference_runtimes.reference_result import Carried, after, fed

Array = np.ndarray
Sample = Mapping[str, Array]

IR_VERSION = 10
"""Newest version of the file format, not of the operators, that onnxruntime reads. Newer files get this version."""


# Let onnxruntime open models of an unreleased operator set. It then refuses only the operators that changed in the set.
os.environ.setdefault("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")


def run_reference(
    path: str, sha256: str, limits: str, samples: Sequence[Sample], inner: Sequence[str], states: Carried = (),
    other_mode: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return outputs and inner tensors by sample. other_mode: with all of onnxruntime's own rewrites of the graph.

    Raises BadModel if the file has changed, and UnsupportedModel if onnxruntime deviates from the standard.
    """
    file = read_onnx(Path(path), Limits.from_json(limits))
    if file.sha256 != sha256:
        raise BadModel(f"{path}: has changed since it was loaded.")
    reason = deviation(file.model)
    if reason:
        raise UnsupportedModel(reason)
    names = {output.name for output in file.model.graph.output}
    watched = [name for name in inner if name not in names]
    found = onnx_outputs(file.model, samples, watched, states, optimized=other_mode)
    return {
        "outputs": [{name: values[name] for name in values if name in names} for values in found],
        "inner": [{name: values[name] for name in values if name not in names} for values in found],
    }


def onnx_outputs(
    model: onnx.ModelProto, samples: Sequence[Sample], inner: Sequence[str] = (), states: Carried = (),
    *, optimized: bool = False,
) -> list[dict[str, Array]]:  # fmt: skip
    """Return outputs by sample, with the states at the beginning of each sample.

    inner: names of further tensors to return; names that are not the output of a node are skipped.
    states: outputs that are the inputs of the next sample.
    """
    session = _session(model, inner, optimized=optimized)
    keys = [output.name for output in session.get_outputs()]
    kinds = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    # A package has no inputs without elements, but onnxruntime requires an array for them.
    empty = {
        value.name: np.zeros(value.shape, helper.tensor_dtype_to_np_dtype(kinds[value.name]))
        for value in session.get_inputs()
        if 0 in value.shape
    }
    found: list[dict[str, Array]] = []
    kept = fed(states)
    for sample in samples:
        values = dict(zip(keys, session.run(None, empty | dict(sample) | kept), strict=True))
        found.append({**kept, **values})
        kept = after(states, values)
    return found


def _session(model: onnx.ModelProto, inner: Sequence[str], *, optimized: bool) -> ort.InferenceSession:
    options, levels = ort.SessionOptions(), ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.ir_version = min(model.ir_version, IR_VERSION)
    outputs = {output.name for output in model.graph.output}
    made = {name for node in model.graph.node for name in node.output} - outputs
    watched.graph.output.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(inner) if name in made)
    return ort.InferenceSession(watched.SerializeToString(), options, providers=["CPUExecutionProvider"])


_MASKED_SCORES = 2


def deviation(model: onnx.ModelProto) -> str | None:
    """Return the reason if onnxruntime computes an operator of the model differently from the standard, else None.

    Resize with align_corners and scales: the standard uses the scaled extent, which may be fractional, for the distance
    of the corners, onnxruntime the extent rounded down. Causal Attention that returns its masked scores: they are minus
    infinity in the standard, and the smallest finite number in onnxruntime.
    """
    arrays = {tensor.name: tensor for tensor in model.graph.initializer}
    arrays |= {node.output[0]: a.t for node in model.graph.node for a in node.attribute if a.name == "value"}
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        shows_scores = node.op_type == "Attention" and len(node.output) > 3 and attributes.get("is_causal", 0)
        if shows_scores and attributes.get("qk_matmul_output_mode", 0) == _MASKED_SCORES:
            return "returns finite numbers for scores of Attention that are minus infinity in the standard"
        by_scales = node.op_type == "Resize" and len(node.input) > 2 and bool(node.input[2])
        if not by_scales or attributes.get("coordinate_transformation_mode") != b"align_corners":
            continue
        scales = arrays.get(node.input[2])
        if scales is None or not np.array_equal(known := numpy_helper.to_array(scales), np.rint(known)):
            return "computes Resize with align_corners and fractional scales differently from the standard"
    return None
