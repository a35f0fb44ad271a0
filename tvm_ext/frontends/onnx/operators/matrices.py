"""Matrix products: Gemm, Einsum, and DFT and STFT of static length."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, onnx_input

from relay_passes.dataflow import array_of, constant, static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of
from tvm_ext.frontends.refusals import Refused


class Gemm(onnx_frontend.Gemm):
    """alpha * A B + beta * C. A beta of zero drops C, as in BLAS, so that an infinity in C has no effect.

    A non-finite alpha scales the product instead of A, because scaled sums would have no defined value.
    """

    @classmethod
    def _impl_v13(
        cls, bb: relax.BlockBuilder, inputs: Sequence[relax.Expr | None], attr: Mapping[str, Any], params: object
    ) -> relax.Expr:
        alpha, beta = attr.get("alpha", 1.0), attr.get("beta", 1.0)
        a, b, c = (*inputs, None)[:3]
        if beta == 0:
            c = None
        if math.isfinite(alpha):
            return super()._impl_v13(bb, onnx_input([a, b, c]), attr, params)
        emit = Emitter(bb)
        product = super()._impl_v13(bb, onnx_input([a, b]), {**attr, "alpha": 1.0}, params)
        scaled = emit.multiply(bb.normalize(product), alpha)
        return scaled if c is None else emit.add(scaled, emit.multiply(c, beta))


class Einsum(onnx_frontend.Einsum):
    """An einsum. Of two tensors it stays an operator of Relax, which passes turn into a matrix product."""

    @classmethod
    def _impl_v12(
        cls, bb: relax.BlockBuilder, inputs: Sequence[relax.Expr], attr: Mapping[str, Any], params: object
    ) -> relax.Expr:
        if len(inputs) != 2:
            return super()._impl_v12(bb, inputs, attr, params)
        return relax.op.einsum(tuple(inputs), attr["equation"].decode().replace(" ", ""))


Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]

# 64 MiB of float32, which is more than a microcontroller has, and far less than a development machine.
_MAX_ELEMENTS = 1 << 24
_MAX_FRAMES = 4096


class DFT(OnnxOpConverter):
    @classmethod
    def _impl_v17(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        length = inputs[1] if len(inputs) > 1 else None
        return _along(Emitter(bb), inputs[0], length, int(attr.get("axis", 1)), attr)

    @classmethod
    def _impl_v20(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, length, axis = (*inputs[:3], *[None] * (3 - len(inputs[:3])))
        place = (-2,) if axis is None else ints_of(axis)
        if place is None:
            raise Refused("its axis depends on data")
        return _along(Emitter(bb), x, length, place[0], attr)


def _along(emit: Emitter, x: relax.Expr, length: relax.Expr | None, axis: int, attr: Attributes) -> relax.Expr:
    """Transform x[..., n, ..., parts], where parts is 1 (real) or 2 (real and imaginary)."""
    inverse, onesided = bool(attr.get("inverse", 0)), bool(attr.get("onesided", 0))
    shape, rank = static_shape(x), len(static_shape(x))
    axis %= rank
    given = (shape[axis],) if length is None else ints_of(length)
    if given is None:
        raise Refused("its length depends on data")
    num = 2 * (shape[axis] - 1) if length is None and inverse and onesided else given[0]
    table = _matrix(shape[axis], num, shape[-1], inverse, onesided).astype(dtype_name(x))
    order = [index for index in range(rank - 1) if index != axis] + [axis, rank - 1]
    moved = emit.transposed(x, order)
    leading = [shape[index] for index in order[:-2]]
    parts = 1 if inverse and onesided else 2
    flat = emit.reshaped(moved, [*leading, shape[axis] * shape[-1]])
    result = emit.reshaped(emit.matmul(flat, constant(table)), [*leading, table.shape[1] // parts, parts])
    return emit.transposed(result, [order.index(index) for index in range(rank)])


def _matrix(extent: int, length: int, parts: int, inverse: bool, onesided: bool) -> np.ndarray:
    """Return the transform of every unit signal: float64[extent * parts, results * parts of a result]."""
    if extent * parts * length * 2 > _MAX_ELEMENTS:
        raise Refused(f"a transform of length {length} as a matrix")
    units = np.eye(extent * parts).reshape(-1, extent, parts)
    signals = units[..., 0] + (1j * units[..., 1] if parts == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(signals, n=length)
    transformed = (np.fft.ifft if inverse else np.fft.fft)(signals, n=length)
    if onesided:
        transformed = transformed[:, : length // 2 + 1]
    return np.stack([transformed.real, transformed.imag], -1).reshape(extent * parts, -1)


class STFT(OnnxOpConverter):
    """Frames of the signal, times the window, times the matrix.

    With a real signal and a constant window it is a convolution, for which no frame has to be copied. A signal of rank
    2, as exporters of PyTorch write it, is real.
    """

    @classmethod
    def _impl_v17(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        signal, step, window, length = (*inputs[:4], *[None] * (4 - len(inputs[:4])))
        emit, steps = Emitter(bb), ints_of(step)
        sizes = ints_of(length) if length is not None else (static_shape(window)[0],) if window is not None else None
        if steps is None or sizes is None:
            raise Refused("the shape of its output depends on data")
        size = sizes[0]
        if len(static_shape(signal)) == 2:
            signal = emit.reshaped(signal, (*static_shape(signal), 1))
        batch, extent, parts = static_shape(signal)
        if steps[0] < 1 or (extent - size) // steps[0] >= _MAX_FRAMES:
            raise Refused(f"{extent} elements in frames {steps[0]} apart; {_MAX_FRAMES} frames can be compiled")
        factors = np.ones(size) if window is None else array_of(window)
        if parts == 1 and factors is not None and dtype_name(signal) == "float32":
            table = _matrix(size, size, 1, False, bool(attr.get("onesided", 1)))
            return _convolved(emit, signal, table * factors.reshape(-1, 1), steps[0])
        begins = range(0, extent - size + 1, steps[0])
        frames = emit.stack([emit.slice(signal, 1, begin, begin + size) for begin in begins], axis=1)
        if window is not None:
            frames = emit.multiply(frames, emit.reshaped(window, (size, 1)))
        table = _matrix(size, size, parts, False, bool(attr.get("onesided", 1))).astype(dtype_name(signal))
        flat = emit.reshaped(frames, (batch, len(begins), size * parts))
        return emit.reshaped(emit.matmul(flat, constant(table)), (batch, len(begins), table.shape[1] // 2, 2))


def _convolved(emit: Emitter, signal: relax.Expr, table: np.ndarray, stride: int) -> relax.Expr:
    """Return the products of all frames of a signal [batch, samples, 1] with a table [samples of a frame, results]."""
    (batch, extent, _), weight = static_shape(signal), np.ascontiguousarray(table.T[:, np.newaxis])
    row = emit.reshaped(signal, (batch, 1, extent))
    found = emit.nn.conv1d(row, constant(weight.astype(np.float32)), strides=stride)
    frames = static_shape(found)[2]
    return emit.reshaped(emit.transposed(found, [0, 2, 1]), (batch, frames, table.shape[1] // 2, 2))


CONVERTERS = {
    ("", "Gemm"): Gemm,
    ("", "Einsum"): Einsum,
    ("", "DFT"): DFT,
    ("", "STFT"): STFT,
}
