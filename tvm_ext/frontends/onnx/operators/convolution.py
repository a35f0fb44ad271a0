"""Conv with auto_pad, ConvTranspose to a requested shape, Col2Im and DeformConv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax, te, tirx
from tvm.relax.frontend.onnx import onnx_frontend
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter, onnx_input

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.emitter import Emitter, dtype_name, ints_of
from tvm_ext.frontends.onnx.operators.pooling import with_pads
from tvm_ext.frontends.refusals import Refused

Inputs = Sequence["relax.Expr | None"]
Attributes = Mapping[str, Any]


class Conv(onnx_frontend.Conv):
    """`auto_pad` becomes padding of the convolution. TVM's importer stores a padded tensor ahead of it."""

    @classmethod
    def _impl_v11(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        extents, kernel = static_shape(inputs[0])[2:], static_shape(inputs[1])[2:]
        return super()._impl_v11(bb, inputs, with_pads(extents, {**attr, "kernel_shape": kernel}), params)


class ConvTranspose(onnx_frontend.ConvTranspose):
    """The requested output shape decides the padding. Elements after the last window are zero, plus the bias."""

    @classmethod
    def _impl_v1(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        wanted = attr.get("output_shape")
        if not wanted:
            return super()._impl_v1(bb, inputs, dict(attr), params)
        extents, kernel = static_shape(inputs[0])[2:], static_shape(inputs[1])[2:]
        rank = len(extents)
        strides = attr.get("strides") or [1] * rank
        dilations = attr.get("dilations") or [1] * rank
        extra = attr.get("output_padding") or [0] * rank
        full = [
            s * (e - 1) + o + (k - 1) * d + 1
            for s, e, o, k, d in zip(strides, extents, extra, kernel, dilations, strict=True)
        ]
        totals = [have - want for have, want in zip(full, wanted[-rank:], strict=True)]
        upper = attr.get("auto_pad", b"NOTSET") == b"SAME_UPPER"
        begins = [max(t, 0) // 2 if upper else max(t, 0) - max(t, 0) // 2 for t in totals]
        ends = [max(t, 0) - begin for t, begin in zip(totals, begins, strict=True)]
        rest = {key: value for key, value in attr.items() if key not in ("output_shape", "auto_pad")}
        emit = Emitter(bb)
        without_bias = onnx_input([inputs[0], inputs[1], None])
        y = bb.normalize(super()._impl_v1(bb, without_bias, {**rest, "pads": [*begins, *ends]}, params))
        missing = [0, 0, *(max(-t, 0) for t in totals)]
        if any(missing):
            y = emit.nn.pad(y, [width for end in missing for width in (0, end)])
        return y if inputs[2] is None else emit.add(y, emit.reshape(inputs[2], [1, -1] + [1] * rank))


class Col2Im(OnnxOpConverter):
    """Add columns back into the image they were taken from. Overlapping columns add up."""

    @classmethod
    def _impl_v18(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        image, block = ints_of(inputs[1]), ints_of(inputs[2])
        if image is None or block is None:
            raise Refused("the shape of its output depends on data")
        rank = len(image)
        strides = attr.get("strides") or (1,) * rank
        dilations = attr.get("dilations") or (1,) * rank
        pads = attr.get("pads") or (0,) * (2 * rank)
        counts = [
            (image[i] + pads[i] + pads[rank + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1
            for i in range(rank)
        ]
        n, columns, _ = static_shape(inputs[0])
        channels = columns
        for extent in block:
            channels //= extent
        emit = Emitter(bb)
        opened = emit.reshaped(inputs[0], [n, channels, *block, *counts])

        def compute(source: te.Tensor) -> te.Tensor:
            taps = [te.reduce_axis((0, extent), f"k{i}") for i, extent in enumerate(block)]

            def element(b: tirx.Var, c: tirx.Var, *at: tirx.Var) -> tirx.Expr:
                moved = [at[i] + pads[i] - taps[i] * dilations[i] for i in range(rank)]
                steps = [tirx.floordiv(place, stride) for place, stride in zip(moved, strides, strict=True)]
                hits = [tirx.floormod(place, stride) == 0 for place, stride in zip(moved, strides, strict=True)]
                inside = [tirx.And(step >= 0, step < count) for step, count in zip(steps, counts, strict=True)]
                found = tirx.if_then_else(
                    tirx.all(*hits, *inside), source(b, c, *taps, *steps), tirx.const(0, str(source.dtype))
                )
                return te.sum(found, axis=taps)

            return te.compute([n, channels, *image], element, "col2im")

        return emit.te(compute, opened, name="col2im")


class DeformConv(OnnxOpConverter):
    """Each tap reads bilinearly at its offset. Outside the image there are zeros."""

    @classmethod
    def _impl_v19(cls, bb: relax.BlockBuilder, inputs: Inputs, attr: Attributes, params: object) -> relax.Expr:
        x, w, offset, bias, mask = (*inputs[:5], *[None] * (5 - len(inputs[:5])))
        if len(static_shape(x)) != 4:
            raise Refused("deformable convolutions of other than two spatial axes")
        emit = Emitter(bb)
        n, c, height, width = static_shape(x)
        k, group_c, kh, kw = static_shape(w)
        rows, columns = static_shape(offset)[2:]
        strides, dilations = attr.get("strides") or (1, 1), attr.get("dilations") or (1, 1)
        pads, groups = attr.get("pads") or (0, 0, 0, 0), int(attr.get("offset_group", 1))
        offsets = emit.reshaped(offset, (n, groups, kh, kw, 2, rows, columns))
        masks = None if mask is None else emit.reshaped(mask, (n, groups, kh, kw, rows, columns))
        dtype = dtype_name(x)

        def sample(source: te.Tensor, places: te.Tensor, *weight: te.Tensor) -> te.Tensor:
            zero, one = tirx.const(0, dtype), tirx.const(1, dtype)

            def element(b: tirx.Var, ch: tirx.Var, r: tirx.Var, s: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Expr:
                g = tirx.floordiv(ch, c // groups)
                y = tirx.Cast(dtype, i * strides[0] - pads[0] + r * dilations[0]) + places(b, g, r, s, 0, i, j)
                z = tirx.Cast(dtype, j * strides[1] - pads[1] + s * dilations[1]) + places(b, g, r, s, 1, i, j)
                top, left = tirx.floor(y), tirx.floor(z)
                total = zero
                for down in (0, 1):
                    for right in (0, 1):
                        # The comparison is in floats, because a position far outside must not be cast to an integer.
                        p, q = top + tirx.const(down, dtype), left + tirx.const(right, dtype)
                        inside = tirx.all(
                            p >= zero, p < tirx.const(height, dtype), q >= zero, q < tirx.const(width, dtype)
                        )
                        share = (y - top if down else one - (y - top)) * (z - left if right else one - (z - left))
                        found = source(b, ch, tirx.Cast("int32", p), tirx.Cast("int32", q))
                        total = total + tirx.if_then_else(inside, found * share, zero)
                return total * weight[0](b, g, r, s, i, j) if weight else total

            return te.compute((n, c, kh, kw, rows, columns), element, "sample")

        given = [x, offsets] if masks is None else [x, offsets, masks]
        samples = emit.te(sample, *given, name="deform_sample")

        def convolve(values: te.Tensor, weights: te.Tensor) -> te.Tensor:
            taps = [te.reduce_axis((0, e), name) for e, name in ((group_c, "c"), (kh, "r"), (kw, "s"))]
            per_group = k // (c // group_c)

            def element(b: tirx.Var, o: tirx.Var, i: tirx.Var, j: tirx.Var) -> tirx.Expr:
                channel = tirx.floordiv(o, per_group) * group_c + taps[0]
                return te.sum(values(b, channel, taps[1], taps[2], i, j) * weights(o, *taps), axis=taps)

            return te.compute((n, k, rows, columns), element, "deform_conv")

        y = emit.te(convolve, samples, w, name="deform_conv")
        return y if bias is None else emit.add(y, emit.reshape(bias, [1, -1, 1, 1]))


CONVERTERS = {
    ("", "Conv"): Conv,
    ("", "ConvTranspose"): ConvTranspose,
    ("", "Col2Im"): Col2Im,
    ("", "DeformConv"): DeformConv,
}
