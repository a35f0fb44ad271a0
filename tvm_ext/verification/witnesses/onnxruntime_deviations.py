"""Operators that onnxruntime computes otherwise than the standard: there it is no witness of what a model means."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

_MASKED_SCORES = 2


def deviation(model: onnx.ModelProto) -> str | None:
    """Reason not to ask onnxruntime; None without.

    Resize between aligned corners by scales: the standard takes the extent as scaled for the distance of the corners,
    onnxruntime the one that is left when it is rounded down. Causal Attention that gives its masked scores: minus
    infinity in the standard, the least finite number in onnxruntime.
    """
    arrays = {tensor.name: tensor for tensor in model.graph.initializer}
    arrays |= {node.output[0]: a.t for node in model.graph.node for a in node.attribute if a.name == "value"}
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        shows_scores = node.op_type == "Attention" and len(node.output) > 3 and attributes.get("is_causal", 0)
        if shows_scores and attributes.get("qk_matmul_output_mode", 0) == _MASKED_SCORES:
            return "gives finite numbers for scores of Attention that the standard masks by minus infinity"
        by_scales = node.op_type == "Resize" and len(node.input) > 2 and bool(node.input[2])
        if not by_scales or attributes.get("coordinate_transformation_mode") != b"align_corners":
            continue
        scales = arrays.get(node.input[2])
        if scales is None or not np.array_equal(known := numpy_helper.to_array(scales), np.rint(known)):
            return "resizes between aligned corners by fractional scales otherwise than the standard"
    return None
