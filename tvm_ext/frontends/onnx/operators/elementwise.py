"""Element-wise operators: those TVM imports as PrimFuncs where Relax has an operator, and Dropout, which is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant
from tvm_ext.frontends.onnx.refusals import Refused

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
        training = inputs[2]
        if training is not None and (array_of(training) is None or array_of(training).any()):
            raise Refused("it is in training mode; export the model for inference")
        return _kept(inputs[0], "bool")


def _kept(x: relax.Expr, mask_dtype: str) -> relax.Expr:
    return relax.Tuple([x, relax.op.ones(x.ty.shape, mask_dtype)])


def _clip(bb: relax.BlockBuilder, x: relax.Expr, low: relax.Expr | None, high: relax.Expr | None) -> relax.Expr:
    known = [array_of(bound) for bound in (low, high) if bound is not None]
    if len(known) == 2 and all(_is_number(bound) for bound in known):
        return relax.op.clip(x, known[0].item(), known[1].item())
    if low is not None:
        x = bb.normalize(relax.op.maximum(x, low))
    return x if high is None else relax.op.minimum(x, high)


def _is_number(bound: np.ndarray | None) -> bool:
    return bound is not None and bound.size == 1 and bool(np.isfinite(bound).all())


CONVERTERS = {("", "Clip"): Clip, ("", "Dropout"): Dropout}
