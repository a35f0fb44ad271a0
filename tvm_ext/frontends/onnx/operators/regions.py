"""RoiAlign as the standard has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class RoiAlign(OnnxOpConverter):
    """The pixels' centres are shifted after scaling; TVM's importer shifts before."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _aligned(Emitter(bb), inputs, attr, b"output_half_pixel")

    @classmethod
    def _impl_v16(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _aligned(Emitter(bb), inputs, attr, b"half_pixel")


def _aligned(emit: Emitter, inputs: Inputs, attr: Attributes, default: bytes) -> relax.Expr:
    x, rois, batches = inputs[:3]
    if attr.get("mode", b"avg") != b"avg":
        raise Refused("the largest of weighted corners, which only the standard's own code computes")
    scale = float(attr.get("spatial_scale", 1.0))
    half_pixel = attr.get("coordinate_transformation_mode", default) == b"half_pixel"
    dtype = dtype_name(rois)
    if half_pixel:
        rois = emit.subtract(rois, relax.const(np.full(4, 0.5 / scale, dtype)))
    indices = emit.cast(emit.expand_dims(batches, axis=1), dtype)
    return emit.vision.roi_align(
        x, emit.concat([indices, rois], axis=1),
        pooled_size=(int(attr.get("output_height", 1)), int(attr.get("output_width", 1))),
        spatial_scale=scale, sample_ratio=int(attr.get("sampling_ratio", 0)),
        aligned=half_pixel, layout="NCHW", mode="avg",
    )  # fmt: skip


CONVERTERS = {("", "RoiAlign"): RoiAlign}
