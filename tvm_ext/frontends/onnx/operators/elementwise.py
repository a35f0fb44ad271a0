"""Element-wise operators: those TVM imports as PrimFuncs where Relax has an operator, and Dropout, which is none.

Some that TVM imports mean something else at the edges than onnxruntime has it (docs/edges.md): casts of floats that do
not fit, extremes and signs of NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, get_type

from relay_passes.dataflow import array_of, constant
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name, number
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class Clip(OnnxOpConverter):
    """minimum(maximum(x, low), high); with constant bounds one `relax.clip`, which kernels fuse (ReLU6)."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        bounds = [attr.get("min"), attr.get("max")]
        dtype = str(inputs[0].ty.dtype)
        low, high = (None if bound is None else constant(np.array(bound, dtype)) for bound in bounds)
        return _clip(bb, inputs[0], low, high)

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _clip(bb, inputs[0], inputs[1], inputs[2])


class Cast(onnx_frontend.Cast):
    """Floats become integers in one step: generated code knows what becomes of those that do not fit."""

    @classmethod
    def _impl_v13(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, target = inputs[0], str(get_type(attr["to"]))
        is_tensor = isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType)
        if is_tensor and dtype_name(x) in ("float32", "float64") and target.lstrip("u").startswith("int"):
            return relax.op.astype(x, target)
        return super()._impl_v13(bb, inputs, attr, params)


def _extreme(name: str, operator: str) -> type[OnnxOpConverter]:
    """Pairwise extremes, so that NaN comes through; TVM stacks the operands."""

    def convert(cls: type, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return reduce(getattr(Emitter(bb), operator), inputs)

    return type(name, (OnnxOpConverter,), {"_impl_v1": classmethod(convert)})


class Sign(OnnxOpConverter):
    """-1, 0 or 1; NaN stays."""

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        sign = emit.sign(x)
        return emit.where(emit.isnan(x), x, sign) if dtype_name(x).startswith("float") else sign


class ThresholdedRelu(OnnxOpConverter):
    """x where it lies above alpha, else 0, also for infinities and NaN."""

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        return emit.where(emit.greater(x, float(attr.get("alpha", 1.0))), x, number(0, dtype_name(x)))


class Dropout(OnnxOpConverter):
    """At inference the identity; the mask, where it is asked for, keeps everything."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _kept(inputs[0], str(inputs[0].ty.dtype))

    @classmethod
    def _impl_v10(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _kept(inputs[0], "bool")

    @classmethod
    def _impl_v12(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        training, ratio = inputs[2], None if inputs[1] is None else array_of(inputs[1])
        drops = training is not None and (array_of(training) is None or array_of(training).any())
        if drops and (ratio is None or ratio.any()):
            raise Refused("it is in training mode; export the model for inference")
        return _kept(inputs[0], "bool")


def _kept(x: relax.Expr, mask_dtype: str) -> relax.Expr:
    return relax.Tuple([x, relax.op.ones(x.ty.shape, mask_dtype)])


def _clip(bb: relax.BlockBuilder, x: relax.Expr, low: relax.Expr | None, high: relax.Expr | None) -> relax.Expr:
    known = [array_of(bound) for bound in (low, high) if bound is not None]
    if len(known) == 2 and all(_is_number(bound) for bound in known):
        low_number, high_number = (bound.item() for bound in known)
        return relax.op.clip(x, min(low_number, high_number), high_number)  # where they cross, the upper one counts
    if low is not None:
        x = bb.normalize(relax.op.maximum(x, low))
    return x if high is None else relax.op.minimum(x, high)


def _is_number(bound: np.ndarray | None) -> bool:
    return bound is not None and bound.size == 1 and bool(np.isfinite(bound).all())


CONVERTERS = {
    ("", "Cast"): Cast,
    ("", "Clip"): Clip,
    ("", "Dropout"): Dropout,
    ("", "Max"): _extreme("Max", "maximum"),
    ("", "Min"): _extreme("Min", "minimum"),
    ("", "Sign"): Sign,
    ("", "ThresholdedRelu"): ThresholdedRelu,
}
