"""Older forms of operators that TVM reads in their newest form only: brought into it, then handed to TVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import onnx_input

from relay_passes.dataflow import constant

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, object]


class Slice(onnx_frontend.Slice):
    """Before opset 10, starts, ends and axes were attributes."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        starts, ends = attr["starts"], attr["ends"]
        axes = attr.get("axes", tuple(range(len(starts))))
        indices = [constant(np.array(values, "int64")) for values in (starts, ends, axes)]
        return cls._impl_v13(bb, onnx_input([inputs[0], *indices]), {}, params)

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return cls._impl_v13(bb, inputs, attr, params)


class Resize(onnx_frontend.Resize):
    """Opset 10 had inputs x, scales and sampled at asymmetric coordinates, rounding down."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        meaning = {**attr, "coordinate_transformation_mode": b"asymmetric", "nearest_mode": b"floor"}
        return cls._impl_v18(bb, onnx_input([inputs[0], None, inputs[1]]), meaning, params)

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return cls._impl_v18(bb, inputs, attr, params)


class Upsample(Resize):
    """Resize of opset 10 under its older name; opset 7 has the scales as an attribute."""

    @classmethod
    def _impl_v7(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        scales = constant(np.array(attr["scales"], "float32"))
        return cls._impl_v10(bb, onnx_input([inputs[0], scales]), attr, params)

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return cls._impl_v10(bb, inputs, attr, params)


CONVERTERS = {("", "Slice"): Slice, ("", "Resize"): Resize, ("", "Upsample"): Upsample}
