"""Pools that TVM's importer lacks or converts wrongly, and RoiAlign."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.windows import Windows, averaged, count_of_windows, largest_of, places_of_largest, reduced

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


def windows(extents: Sequence[int], attr: Attributes) -> Windows:
    """Return the windows that an operator's attributes describe over axes of the given extents. Raises Refused."""
    rank = len(extents)
    kernel = tuple(int(k) for k in attr["kernel_shape"])
    strides = tuple(int(s) for s in attr.get("strides") or (1,) * rank)
    dilations = tuple(int(d) for d in attr.get("dilations") or (1,) * rank)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [int(p) for p in attr.get("pads") or (0,) * (2 * rank)]
    mode = attr.get("auto_pad", b"NOTSET")
    if mode in (b"SAME_UPPER", b"SAME_LOWER"):
        output = [-(-extent // stride) for extent, stride in zip(extents, strides, strict=True)]
        totals = [max(0, (o - 1) * s + r - e) for o, s, r, e in zip(output, strides, reach, extents, strict=True)]
        begins = [total // 2 if mode == b"SAME_UPPER" else total - total // 2 for total in totals]
        ends = [total - begin for total, begin in zip(totals, begins, strict=True)]
    elif mode in (b"NOTSET", b"VALID"):
        pads = [0] * (2 * rank) if mode == b"VALID" else pads
        begins, ends = pads[:rank], pads[rank:]
        output = [
            count_of_windows(
                extent, reach[axis], strides[axis], (begins[axis], ends[axis]), rounds_up=bool(attr.get("ceil_mode", 0))
            )
            for axis, extent in enumerate(extents)
        ]
    else:
        raise Refused(f"auto_pad {mode!r} is not known")
    return Windows(
        kernel=kernel, strides=strides, dilations=dilations, begins=tuple(begins), ends=tuple(ends),
        output=tuple(output),
    )  # fmt: skip


def _windows(extents: Sequence[int], attr: Attributes) -> Windows:
    """Return the windows of a pool. Raises Refused where onnxruntime and the standard disagree on their number."""
    how = windows(extents, attr)
    is_dilated = any(d != 1 and k != 1 for k, d in zip(how.kernel, how.dilations, strict=True))
    if is_dilated and attr.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        raise Refused(
            f"auto_pad {attr['auto_pad'].decode()} over dilated windows, whose padding onnxruntime computes without "
            "the dilations, so that it gives fewer elements than the standard; write the padding as pads"
        )
    return how


def with_pads(extents: Sequence[int], attr: Attributes) -> dict[str, Any]:
    """Return the attributes of windows with `auto_pad` written out as `pads`, which Relax's own operators have.

    Windows of SAME_UPPER and SAME_LOWER end at the last element or at the padding, so that `ceil_mode` means nothing.
    Raises Refused.
    """
    mode = attr.get("auto_pad", b"NOTSET")
    if mode == b"NOTSET":
        return dict(attr)
    left_out = ("auto_pad", "pads") if mode == b"VALID" else ("auto_pad", "pads", "ceil_mode")
    found = windows(extents, attr)
    return {**{key: attr[key] for key in attr if key not in left_out}, "pads": (*found.begins, *found.ends)}


class MaxPool(onnx_frontend.MaxPool):
    """Relax's own operator where it suffices. With indices, the first position of each window's maximum."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x = inputs[0]
        shape = static_shape(x)
        if attr["tvm_custom"]["num_outputs"] == 1 and dtype_name(x).startswith("float"):
            _windows(shape[2:], attr)
            return super()._impl_v1(bb, inputs, with_pads(shape[2:], attr), params)
        how = _windows(shape[2:], attr)
        emit = Emitter(bb)
        largest = emit.te(lambda source: largest_of(source, shape, how), x, name="max_pool")
        if attr["tvm_custom"]["num_outputs"] == 1:
            return largest
        column_major = bool(attr.get("storage_order", 0))
        indices = emit.te(
            lambda source, found: _places(source, found, shape, how, column_major), x, largest, name="max_pool_indices"
        )
        return relax.Tuple([largest, indices])


def _places(source: te.Tensor, found: te.Tensor, shape: Sequence[int], how: Windows, column_major: bool) -> te.Tensor:
    """Return flat indices into the whole tensor.

    column_major: whether the spatial axes count from the first.
    Among equal elements the first by rows counts in both orders, as in onnxruntime.
    """
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    by_rows = places_of_largest(source, found, shape, how, strides)
    return _by_columns(by_rows, shape) if column_major and len(shape) > 3 else by_rows


def _by_columns(by_rows: te.Tensor, shape: Sequence[int]) -> te.Tensor:
    """Convert flat indices that count the spatial axes from the last to indices that count from the first."""
    extents = [tirx.const(extent, "int64") for extent in shape[2:]]
    image = math.prod(shape[2:])

    def index(*at: tirx.Var) -> tirx.Expr:
        flat = by_rows(*at)
        rest = tirx.floormod(flat, tirx.const(image, "int64"))
        found, stride = flat - rest, image
        for extent in reversed(extents):
            stride //= int(extent.value)
            found = found + tirx.floormod(rest, extent) * tirx.const(stride, "int64")
            rest = tirx.floordiv(rest, extent)
        return found

    return te.compute(by_rows.shape, index, "by_columns")


class AveragePool(onnx_frontend.AveragePool):
    """Relax's own operator for plain windows.

    Rounded-up sizes and dilations count only elements of the padded input.
    """

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, shape = inputs[0], static_shape(inputs[0])
        how = _windows(shape[2:], attr)
        padded = with_pads(shape[2:], attr)
        is_dilated = any(int(d) != 1 for d in attr.get("dilations") or ())
        if not is_dilated and not (padded.get("ceil_mode", 0) and attr.get("count_include_pad", 0)):
            return super()._impl_v1(bb, inputs, padded, params)
        counts_padding = bool(attr.get("count_include_pad", 0))
        return Emitter(bb).te(
            lambda source: averaged(source, shape, how, counts_padding=counts_padding), x, name="average_pool"
        )


class LpPool(OnnxOpConverter):
    """(sum |x|^p)^(1/p) over each window."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        emit, x, power = Emitter(bb), inputs[0], float(attr.get("p", 2))
        shape = static_shape(x)
        how = _windows(shape[2:], attr)
        if power not in (1, 2):
            return emit.te(lambda source: _norms(source, shape, how, power), x, name="lp_pool")
        total = emit.te(lambda source: _sums(source, shape, how), emit.abs(x) if power == 1 else emit.multiply(x, x),
                        name="lp_pool")  # fmt: skip
        return total if power == 1 else emit.sqrt(total)


def _sums(source: te.Tensor, shape: Sequence[int], how: Windows) -> te.Tensor:
    zero = tirx.const(0, str(source.dtype))
    return reduced(shape, how, lambda at, place, inside: tirx.if_then_else(inside, source(*place), zero), te.sum)


def _norms(source: te.Tensor, shape: Sequence[int], how: Windows, power: float) -> te.Tensor:
    """Return sums of powers and their roots in a single function, which stays float when a model is quantized.

    Powers in 8 bits lose the small elements: (1/10)^3 of the largest element rounds to 0.
    """
    dtype = str(source.dtype)
    exponent, root = tirx.const(power, dtype), tirx.const(1 / power, dtype)
    raised = te.compute(source.shape, lambda *at: tirx.power(tirx.abs(source(*at)), exponent), "raised")
    total = _sums(raised, shape, how)
    return te.compute(total.shape, lambda *at: tirx.power(total(*at), root), "lp_norm")


class GlobalLpPool(OnnxOpConverter):
    @classmethod
    def _impl_v2(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        extents = static_shape(inputs[0])[2:]
        if not extents:
            raise Refused("there is nothing to pool over")
        return LpPool._impl_v1(bb, inputs, {**attr, "kernel_shape": extents}, params)


class RoiAlign(OnnxOpConverter):
    """The centres of pixels are shifted after scaling. TVM's importer shifts before scaling."""

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


CONVERTERS = {
    ("", "MaxPool"): MaxPool,
    ("", "AveragePool"): AveragePool,
    ("", "LpPool"): LpPool,
    ("", "GlobalLpPool"): GlobalLpPool,
    ("", "RoiAlign"): RoiAlign,
}
