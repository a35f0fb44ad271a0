"""Bilinear and bicubic resizing of images, by tables made at compile time.

Source: aten/src/ATen/native/UpSample.h of PyTorch. TVM's own converters compute each element's place as it runs, and
leave antialiasing out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.interpolate import interpolated, is_identity
from tvm_ext.frontends.pytorch.node_arguments import arguments_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.sampling import Axis, Interpolation, taps

Converter = Callable[[Any, Any], relax.Expr]

_ROWS = 2
"""Axis of rows of an image [N, C, H, W], before that of columns."""


def _resizes(mode: str, *, antialias: bool = False) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """torch's node, TVM's importer -> the image in its new size."""
        given = arguments_of(node)
        x = importer.env[given["input"] if "input" in given else given["self"]]
        if str(x.ty.dtype) not in ("float32", "float64"):
            raise Refused(f"interpolation of {x.ty.dtype}")
        factors = given.get("scale_factors") or (given.get("scales_h"), given.get("scales_w"))
        axes = {}
        for axis, factor in enumerate(factors, _ROWS):
            source, target = static_shape(x)[axis], int(node.meta["val"].shape[axis])
            axes[axis] = Axis(source=source, target=target, scale=float(factor or target / source))
        coordinates = "align_corners" if given["align_corners"] else "half_pixel"
        how = Interpolation(
            mode=mode, coordinates=coordinates, cubic_coeff_a=-0.5 if antialias else -0.75, antialias=antialias,
            exclude_outside=antialias,
        )  # fmt: skip
        tables = {index: taps(axis, how) for index, axis in axes.items()}
        changed = {index: table for index, table in tables.items() if not is_identity(table, axes[index])}
        return importer.block_builder.emit(interpolated(importer.block_builder, x, axes, changed))

    return convert


CONVERTERS: dict[str, Converter] = {
    "upsample_bilinear2d.vec": _resizes("linear"),
    "upsample_bicubic2d.vec": _resizes("cubic"),
    "_upsample_bilinear2d_aa.default": _resizes("linear", antialias=True),
    "_upsample_bicubic2d_aa.default": _resizes("cubic", antialias=True),
}
"""Converters for TVM's importer by operator; each raises Refused for element types that it cannot interpolate."""
