"""Operators of onnxruntime (domain com.microsoft) that its optimizer writes for several operators of the standard.

Their definitions are in ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, onnx_input

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, number, padded
from tvm_ext.frontends.onnx.operators.matrices import Gemm
from tvm_ext.frontends.recurrent_layers import activations
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class FusedConv(OnnxOpConverter):
    """The activation of a convolution of X, W and B, to which Z is added first."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, w, b, z = padded(inputs, 4)
        emit = Emitter(bb)
        y = bb.normalize(onnx_frontend.Conv._impl_v11(bb, onnx_input([x, w, b]), attr, params))
        return _activated(emit, y if z is None else emit.add(y, z), attr)


class FusedGemm(OnnxOpConverter):
    """The activation of alpha * A B + beta * C."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        names = ("activation_alpha", "activation_beta")
        given = {**attr, "activation_params": [attr[name] for name in names if name in attr]}
        return _activated(Emitter(bb), bb.normalize(Gemm._impl_v13(bb, inputs, attr, params)), given)


class FusedMatMul(OnnxOpConverter):
    """alpha * A B, with the last two axes of A or B exchanged."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (a, b) = Emitter(bb), inputs[:2]
        if attr.get("transBatchA", 0) or attr.get("transBatchB", 0):
            raise Refused("a batch axis that moves (transBatchA, transBatchB); save the model before it is optimized")
        left, right = _exchanged(emit, a, attr.get("transA", 0)), _exchanged(emit, b, attr.get("transB", 0))
        y, alpha = emit.matmul(left, right), float(attr.get("alpha", 1.0))
        return y if alpha == 1.0 else emit.multiply(y, alpha)


class QuickGelu(OnnxOpConverter):
    """x * sigmoid(alpha * x)."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x = Emitter(bb), inputs[0]
        return emit.multiply(x, emit.sigmoid(emit.multiply(x, float(attr.get("alpha", 1.702)))))


class SkipLayerNormalization(OnnxOpConverter):
    """Input, skip, gamma, beta, bias: the normalized sum; fourth, the sum itself."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, skip, gamma, beta, bias) = Emitter(bb), padded(inputs, 5)
        total = _sum(emit, [x, skip, bias])
        shift = number(0, dtype_name(x)) if beta is None else beta
        shift = emit.broadcast_to(shift, static_shape(gamma)) if beta is None else shift
        normal = emit.nn.layer_norm(total, gamma, shift, axes=-1, epsilon=float(attr.get("epsilon", 1e-12)))
        return _with_sum(normal, total, attr)


class SkipSimplifiedLayerNormalization(OnnxOpConverter):
    """Input, skip, gamma, bias: the sum by the root of its mean square; fourth, the sum itself."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, skip, gamma, bias) = Emitter(bb), padded(inputs, 4)
        total = _sum(emit, [x, skip, bias])
        normal = emit.nn.rms_norm(total, gamma, axes=-1, epsilon=float(attr.get("epsilon", 1e-12)))
        return _with_sum(normal, total, attr)


class SimplifiedLayerNormalization(OnnxOpConverter):
    """X by the root of its mean square over the last axes, times the scale; second, the inverse of the root.

    onnxruntime writes it into the domain of the standard.
    """

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, scale) = Emitter(bb), inputs[:2]
        rank, epsilon = len(static_shape(x)), float(attr.get("epsilon", 1e-5))
        axes = list(range(int(attr.get("axis", -1)) % rank, rank))
        normal = emit.nn.rms_norm(x, scale, axes=axes, epsilon=epsilon)
        if attr["tvm_custom"]["num_outputs"] == 1:
            return normal
        square = emit.mean(emit.multiply(x, x), axis=axes, keepdims=True)
        return relax.Tuple([normal, emit.divide(1.0, emit.sqrt(emit.add(square, epsilon)))])


class CDist(OnnxOpConverter):
    """Distances of the rows of A float32[M, K] and B float32[N, K], as converters of scikit-learn write them."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (a, b) = Emitter(bb), inputs[:2]
        metric = attr.get("metric", b"sqeuclidean").decode()
        if metric not in ("sqeuclidean", "euclidean"):
            raise Refused(f"its metric is {metric!r}; 'sqeuclidean' and 'euclidean' are read")
        apart = emit.subtract(emit.expand_dims(a, axis=1), emit.expand_dims(b, axis=0))
        square = emit.sum(emit.multiply(apart, apart), axis=[2])
        return square if metric == "sqeuclidean" else emit.sqrt(square)


def _activated(emit: Emitter, y: relax.Expr, attr: Attributes) -> relax.Expr:
    """Apply the activation that the attributes name, if any, to y."""
    name, numbers = attr.get("activation", b"").decode(), [float(one) for one in attr.get("activation_params", ())]
    if not name:
        return y
    if name == "Clip" and len(numbers) == 2:
        return emit.clip(y, *numbers)
    return activations(emit, [name], numbers[:1], numbers[1:])[0](y)


def _exchanged(emit: Emitter, x: relax.Expr, wanted: int) -> relax.Expr:
    """Exchange the last two axes of x where requested."""
    axes = list(range(len(static_shape(x))))
    if wanted and len(axes) < 2:
        raise Refused("a vector, of which no two axes can be exchanged")
    return emit.transposed(x, [*axes[:-2], axes[-1], axes[-2]] if wanted else axes)


def _sum(emit: Emitter, terms: Inputs) -> relax.Expr:
    first, *others = [term for term in terms if term is not None]
    return reduce(emit.add, others, first)


def _with_sum(normal: relax.Expr, total: relax.Expr, attr: Attributes) -> relax.Expr:
    """Return the results in order, without statistics, which are for training. Raises Refused where these are used."""
    outputs = attr["tvm_custom"]["outputs"]
    if any(outputs[1:3]):
        raise Refused("its mean or deviation, which are for training; export the model for inference")
    return relax.Tuple([normal, normal, normal, total][: len(outputs)])


_DOMAIN = "com.microsoft"
CONVERTERS = {
    ("", "SimplifiedLayerNormalization"): SimplifiedLayerNormalization,
    (_DOMAIN, "CDist"): CDist,
    (_DOMAIN, "FusedConv"): FusedConv,
    (_DOMAIN, "FusedGemm"): FusedGemm,
    (_DOMAIN, "FusedMatMul"): FusedMatMul,
    (_DOMAIN, "TransposeMatMul"): FusedMatMul,
    (_DOMAIN, "QuickGelu"): QuickGelu,
    (_DOMAIN, "SkipLayerNormalization"): SkipLayerNormalization,
    (_DOMAIN, "SkipSimplifiedLayerNormalization"): SkipSimplifiedLayerNormalization,
}
