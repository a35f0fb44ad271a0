"""onnxruntime's product with weights of few bits (MatMulNBits, domain com.microsoft): as float weights.

Weights have a scale, and a zero point, for each block of input channels. Definition: ContribOperators.md of
onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import array_of, constant
from tvm_ext.frontends.onnx.operators.emitter import Emitter, dtype_name
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]
Array = np.ndarray


class MatMulNBits(OnnxOpConverter):
    """A float32[..., K], B uint8[N, blocks, block_size * bits / 8], lowest bits first -> float32[..., N]."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        a, b, scales, zero_points, order, bias = (*inputs, *[None] * (6 - len(inputs)))
        if a is None or dtype_name(a) != "float32":
            raise Refused("its activations are not float32")
        if order is not None:
            raise Refused("an order of its own for input channels (g_idx)")
        bits, block = int(attr.get("bits", 4)), int(attr["block_size"])
        if bits not in (2, 4, 8):
            raise Refused(f"weights of {bits} bits; 2, 4 and 8 are read")
        depth, channels = int(attr["K"]), int(attr["N"])
        blocks = -(-depth // block)
        integers = _unpacked(_known(b).reshape(channels, -1), bits, blocks * block)
        weight = integers.reshape(channels, blocks, block) - _zero_points(zero_points, bits, channels, blocks)
        weight = weight * _known(scales).reshape(channels, blocks, 1)
        emit = Emitter(bb)
        whole = weight.reshape(channels, -1)[:, :depth].T.astype("float32")
        product = emit.matmul(a, constant(np.ascontiguousarray(whole)))
        return product if bias is None else emit.add(product, bias)


def _known(value: relax.Expr | None) -> Array:
    array = None if value is None else array_of(value)
    if array is None:
        raise Refused("its weights, scales or zero points depend on data")
    return array


def _zero_points(value: relax.Expr | None, bits: int, channels: int, blocks: int) -> Array:
    """Zero points as [N, blocks, 1]: packed as weights are, or numbers; without them the middle of the range."""
    if value is None:
        return np.full((1, 1, 1), 1 << (bits - 1), "float32")
    given = _known(value)
    if given.dtype == np.uint8:
        given = _unpacked(given.reshape(channels, -1), bits, blocks)
    return given.reshape(channels, blocks, 1).astype("float32")


def _unpacked(rows: Array, bits: int, count: int) -> Array:
    """The first `count` numbers of each row of bytes, float32[N, count]."""
    parts = [(rows >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(len(rows), -1)[:, :count].astype("float32")


CONVERTERS = {("com.microsoft", "MatMulNBits"): MatMulNBits}
