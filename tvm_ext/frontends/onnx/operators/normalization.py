"""Normalizations whose statistics are outputs too, or which TVM imports for some axes only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, number

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class LayerNormalization(onnx_frontend.LayerNormalization):
    """Relax's operator returns no statistics, so with statistics the normalization is written out."""

    @classmethod
    def _impl_v17(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        if attr["tvm_custom"]["num_outputs"] == 1:
            return super()._impl_v17(bb, inputs, attr, params)
        emit, x, scale, bias = Emitter(bb), inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None
        rank = len(static_shape(x))
        axes = list(range(int(attr.get("axis", -1)) % rank, rank))
        mean = emit.mean(x, axis=axes, keepdims=True)
        centred = emit.subtract(x, mean)
        variance = emit.mean(emit.multiply(centred, centred), axis=axes, keepdims=True)
        inverse = emit.divide(1.0, emit.sqrt(emit.add(variance, float(attr.get("epsilon", 1e-5)))))
        result = emit.multiply(emit.multiply(centred, inverse), scale)
        return relax.Tuple([result if bias is None else emit.add(result, bias), mean, inverse])


class RMSNormalization(OnnxOpConverter):
    @classmethod
    def _impl_v23(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x, scale = Emitter(bb), inputs[0], inputs[1]
        rank = len(static_shape(x))
        axes = list(range(int(attr.get("axis", -1)) % rank, rank))
        square = emit.mean(emit.multiply(x, x), axis=axes, keepdims=True)
        root = emit.sqrt(emit.add(square, float(attr.get("epsilon", 1e-5))))
        return emit.multiply(emit.divide(x, root), scale)


class MeanVarianceNormalization(OnnxOpConverter):
    """Divide distances from the mean by their root mean square. TVM would subtract two large means instead.

    No epsilon is added to the root, as in onnxruntime; the standard adds 1e-9.
    """

    @classmethod
    def _impl_v9(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        axes = [int(axis) for axis in attr.get("axes", (0, 2, 3))]
        centred = emit.subtract(x, emit.mean(x, axis=axes, keepdims=True))
        variance = emit.mean(emit.multiply(centred, centred), axis=axes, keepdims=True)
        return emit.divide(centred, emit.sqrt(variance))


class LpNormalization(OnnxOpConverter):
    """x /

    x

    along an axis. A norm of zero gives zeros.
    """

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        axes = [int(attr.get("axis", -1))]
        if int(attr.get("p", 2)) == 1:
            norm = emit.sum(emit.abs(x), axis=axes, keepdims=True)
        else:
            norm = emit.sqrt(emit.sum(emit.multiply(x, x), axis=axes, keepdims=True))
        zero = number(0, dtype_name(x))
        return emit.where(emit.equal(norm, zero), zero, emit.divide(x, norm))


class PRelu(OnnxOpConverter):
    @classmethod
    def _impl_v6(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        """Apply a slope of one element, or of one element for each channel on axis 1."""
        emit, (x, slope) = Emitter(bb), inputs[:2]
        count, rank = static_shape(slope)[0] if static_shape(slope) else 1, len(static_shape(x))
        aligned = emit.reshaped(slope, [count] + [1] * (rank - 2)) if count > 1 and rank > 2 else slope
        return _leaky(emit, x, aligned)

    @classmethod
    def _impl_v7(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        return _leaky(Emitter(bb), inputs[0], inputs[1])


def _leaky(emit: Emitter, x: relax.Expr, slope: relax.Expr) -> relax.Expr:
    known = array_of(slope)
    if known is not None and known.size == 1 and dtype_name(x).startswith("float"):
        return emit.nn.leakyrelu(x, alpha=float(known.reshape(-1)[0]))
    return emit.where(emit.less(x, number(0, dtype_name(x))), emit.multiply(x, slope), x)


CONVERTERS = {
    ("", "LayerNormalization"): LayerNormalization,
    ("", "RMSNormalization"): RMSNormalization,
    ("", "LpNormalization"): LpNormalization,
    ("", "MeanVarianceNormalization"): MeanVarianceNormalization,
    ("", "PRelu"): PRelu,
}
