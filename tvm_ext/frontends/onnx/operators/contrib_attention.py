"""Attention of onnxruntime (domain com.microsoft): its masks, its cache of keys and values, and its rotary embedding.

Each becomes products and a softmax, the form in which kernels and passes know the heads of a transformer. The
definitions are in ContribOperators.md of onnxruntime.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import constant, static_shape
from tvm_ext.frontends.emitter import Emitter, number, padded
from tvm_ext.frontends.onnx.operators.quantized import product_of_integers
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
Heads = tuple[relax.Expr, relax.Expr, relax.Expr]
"""Queries float32[B, heads, S, depth], keys [B, heads, T, depth] and values [B, heads, T, depth of values]."""

# What onnxruntime adds to the scores of hidden elements where the node gives no number.
_FILTER = -10000.0


class Attention(OnnxOpConverter):
    """Input, weights, bias, mask_index, past, attention_bias: one projection has queries, keys and values."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        x, weights, bias, mask, past, scores, length = padded(inputs, 7)
        if length is not None or attr.get("past_present_share_buffer", 0):
            raise Refused("a past in a buffer of its own (past_present_share_buffer); export it with past and present")
        return _of_projection(emit, emit.matmul(x, weights), bias, mask, past, scores, attr)


class QAttention(OnnxOpConverter):
    """Attention whose input and weights are integers, as onnxruntime's quantization writes it."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit = Emitter(bb)
        x, weights, bias, x_scale, scale, mask, x_zero, zero, past = padded(inputs, 9)
        projected = product_of_integers(bb, (x, x_scale, x_zero), (weights, scale, zero))
        return _of_projection(emit, projected, bias, mask, past, None, attr)


class MultiHeadAttention(OnnxOpConverter):
    """Query, key, value, bias, key_padding_mask, attention_bias, past_key, past_value.

    Queries are float32[B, S, heads * depth]. Keys and values have that form too, or they are float32[B, heads, T,
    depth], as in attention to the results of an encoder, and then have no bias.
    """

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, heads = Emitter(bb), int(attr["num_heads"])
        query, key, value, bias, mask, scores, past_key, past_value, length, indirection = padded(inputs, 10)
        if length is not None or indirection is not None:
            raise Refused(
                "a past in a buffer of its own (past_sequence_length); export it with past_key and past_value"
            )
        if key is None or value is None:
            raise Refused("queries, keys and values in one tensor, which onnxruntime reads on GPUs only")
        if any(attr["tvm_custom"]["outputs"][3:]):
            raise Refused("the scores as a result (qk)")
        q, k, v = (_in_heads(emit, x, heads) for x in _with_biases(emit, query, key, value, bias))
        k, v = _with_past(emit, k, past_key), _with_past(emit, v, past_value)
        result = _attended(emit, (q, k, v), mask, scores, attr)
        return relax.Tuple([result, k, v][: attr["tvm_custom"]["num_outputs"]])


class RotaryEmbedding(OnnxOpConverter):
    """Input, position_ids, cos_cache, sin_cache: turn pairs of elements by the angles of their positions.

    The input is float32[B, S, heads * depth] or float32[B, heads, S, depth], the caches are float32[positions, depth /
    2]. A single position is that of the first row.
    """

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, (x, positions, cosines, sines) = Emitter(bb), inputs[:4]
        if attr.get("is_packed_batching", 0) or float(attr.get("scale", 1.0)) != 1.0:
            raise Refused("packed batches, or a scale, which onnxruntime reads on GPUs only")
        shape, half = static_shape(x), static_shape(cosines)[1]
        width = int(attr.get("rotary_embedding_dim", 0)) or 2 * half
        heads = int(attr.get("num_heads", 0)) or (shape[-1] // width if len(shape) == 3 else shape[1])
        by_head = _in_heads(emit, x, heads)
        batch, _, rows, depth = static_shape(by_head)
        if static_shape(positions) in ((), (1,)):
            first = emit.cast(emit.reshaped(positions, (1, 1)), "int64")
            positions = emit.add(first, constant(np.arange(rows, dtype=np.int64).reshape(1, -1)))
        turned = emit.slice(by_head, 3, 0, width)
        is_interleaved = bool(attr.get("interleaved", 0))
        pairs = (batch, heads, rows, half, 2) if is_interleaved else (batch, heads, rows, 2, half)
        axis = 4 if is_interleaved else 3
        parted = emit.reshaped(turned, pairs)
        real, imaginary = (emit.squeeze(emit.slice(parted, axis, part, part + 1), axis=[axis]) for part in (0, 1))
        cosine, sine = (_of_positions(emit, table, positions) for table in (cosines, sines))
        new_real = emit.subtract(emit.multiply(real, cosine), emit.multiply(imaginary, sine))
        new_imaginary = emit.add(emit.multiply(real, sine), emit.multiply(imaginary, cosine))
        joined = emit.reshaped(emit.stack([new_real, new_imaginary], axis=axis), static_shape(turned))
        whole = joined if width == depth else emit.concat([joined, emit.slice(by_head, 3, width, depth)], axis=3)
        return emit.reshaped(emit.transposed(whole, [0, 2, 1, 3]), shape) if len(shape) == 3 else whole


def _of_positions(emit: Emitter, table: relax.Expr, positions: relax.Expr) -> relax.Expr:
    """Return the table's rows of positions int64[B or 1, S] as float32[B or 1, 1, S, depth / 2]."""
    rows = emit.take(table, emit.cast(positions, "int64"), axis=0)
    return emit.expand_dims(rows, axis=1)


def _of_projection(
    emit: Emitter,
    projected: relax.Expr,
    bias: relax.Expr | None,
    mask: relax.Expr | None,
    past: relax.Expr | None,
    scores: relax.Expr | None,
    attr: Attributes,
) -> relax.Expr:
    """Return attention of a projection float32[B, S, widths of queries, keys and values], and the cache if it is used.

    past: float32[2, B, heads, P, depth], keys and values of earlier rows.
    """
    if attr.get("do_rotary", 0):
        raise Refused("a rotary embedding inside (do_rotary); save the model before it is optimized")
    heads, width = int(attr["num_heads"]), static_shape(projected)[2]
    widths = [int(one) for one in attr.get("qkv_hidden_sizes") or [width // 3] * 3]
    total = projected if bias is None else emit.add(projected, bias)
    ends = np.cumsum([0, *widths]).tolist()
    q, k, v = (_in_heads(emit, emit.slice(total, 2, begin, end), heads) for begin, end in itertools.pairwise(ends))
    if past is not None:
        k, v = (
            _with_past(emit, x, emit.squeeze(emit.slice(past, 0, index, index + 1), axis=[0]))
            for index, x in enumerate((k, v))
        )
    result = _attended(emit, (q, k, v), mask, scores, attr)
    if attr["tvm_custom"]["num_outputs"] == 1:
        return result
    return relax.Tuple([result, emit.stack([k, v], axis=0)])


def _attended(
    emit: Emitter, parts: Heads, mask: relax.Expr | None, scores: relax.Expr | None, attr: Attributes
) -> relax.Expr:
    """Return float32[B, S, heads * depth of values]. scores: added to those of queries and keys."""
    q, k, v = parts
    (batch, heads, rows, depth), known = static_shape(q), static_shape(k)[2]
    scale = float(attr.get("scale", 0.0)) or 1.0 / math.sqrt(depth)
    found = emit.multiply(emit.matmul(q, emit.transposed(k, [0, 1, 3, 2])), scale)
    terms = [] if scores is None else [scores]
    if mask is not None:
        terms.append(_hiding(emit, mask, (batch, rows, known), float(attr.get("mask_filter_value", _FILTER))))
    if attr.get("unidirectional", 0):
        later = np.triu(np.ones((rows, known), bool), known - rows + 1)
        terms.append(constant(np.where(later, np.finfo(np.float32).min, 0).astype(np.float32)))
    shares = emit.nn.softmax(reduce(emit.add, terms, found), axis=-1)
    sums = emit.transposed(emit.matmul(shares, v), [0, 2, 1, 3])
    return emit.reshaped(sums, (batch, rows, heads * static_shape(v)[3]))


def _hiding(emit: Emitter, mask: relax.Expr, extents: tuple[int, int, int], filter_value: float) -> relax.Expr:
    """Return what is added to the scores so that hidden elements have no share.

    mask: [B, T] or [B, S, T], 0 for hidden elements; or int32[B], the number of visible elements, or int32[2 * B],
    these numbers and then the first visible elements.
    """
    batch, rows, known = extents
    shape = static_shape(mask)
    if len(shape) == 1 and shape[0] in (batch, 2 * batch):
        places = constant(np.arange(known, dtype=np.int32).reshape(1, -1))
        limits = emit.reshaped(emit.cast(mask, "int32"), (shape[0] // batch, batch, 1))
        ends = emit.squeeze(emit.slice(limits, 0, 0, 1), axis=[0])
        visible = emit.less(places, ends)
        if shape[0] == 2 * batch:
            begins = emit.squeeze(emit.slice(limits, 0, 1, 2), axis=[0])
            visible = emit.logical_and(visible, emit.greater_equal(places, begins))
        visible = emit.reshaped(visible, (batch, 1, 1, known))
    elif shape in ((batch, known), (batch, rows, known)):
        full = (batch, 1, shape[1] if len(shape) == 3 else 1, known)
        visible = emit.reshaped(emit.greater(emit.cast(mask, "int32"), number(0, "int32")), full)
    else:
        raise Refused(f"a mask of shape {list(shape)}; [B], [2 B], [B, T] and [B, S, T] are read")
    return emit.where(visible, number(0, "float32"), number(filter_value, "float32"))


def _with_biases(
    emit: Emitter, query: relax.Expr, key: relax.Expr, value: relax.Expr, bias: relax.Expr | None
) -> Sequence[relax.Expr]:
    """Add to each of the three its part of the bias float32[all widths]. Keys and values in heads have none."""
    if bias is None:
        return query, key, value
    widths = [static_shape(query)[2]] * 2
    ends = [0, *np.cumsum(widths).tolist(), static_shape(bias)[0]]
    return [
        emit.add(x, emit.slice(bias, 0, begin, end)) if len(static_shape(x)) == 3 else x
        for x, begin, end in zip((query, key, value), ends[:-1], ends[1:], strict=True)
    ]


def _in_heads(emit: Emitter, x: relax.Expr, heads: int) -> relax.Expr:
    """Return float32[B, heads, S, depth] of float32[B, S, heads * depth], or x itself where it has this form."""
    shape = static_shape(x)
    if len(shape) == 4:
        return x
    if len(shape) != 3 or shape[2] % heads:
        raise Refused(f"a tensor of shape {list(shape)} in {heads} heads")
    return emit.transposed(emit.reshaped(x, (*shape[:2], heads, shape[2] // heads)), [0, 2, 1, 3])


def _with_past(emit: Emitter, x: relax.Expr, past: relax.Expr | None) -> relax.Expr:
    """Return keys or values of earlier rows, if any, and then x."""
    return x if past is None or not static_shape(past)[2] else emit.concat([past, x], axis=2)


_DOMAIN = "com.microsoft"
CONVERTERS = {
    (_DOMAIN, "Attention"): Attention,
    (_DOMAIN, "MultiHeadAttention"): MultiHeadAttention,
    (_DOMAIN, "QAttention"): QAttention,
    (_DOMAIN, "RotaryEmbedding"): RotaryEmbedding,
}
