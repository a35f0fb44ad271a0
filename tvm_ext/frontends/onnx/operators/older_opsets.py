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


CONVERTERS = {("", "Slice"): Slice}
