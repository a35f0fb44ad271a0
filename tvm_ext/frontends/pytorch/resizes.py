"""Resize images and tensors of one to three spatial axes, by tables that are computed at compile time.

Source: aten/src/ATen/native/UpSample.h of PyTorch. TVM's own converters compute the source of each element at run time,
ignore antialiasing, and take the nearest element by other coordinates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax

from relay_passes.dataflow import static_shape
from tvm_ext.frontends.pytorch.operators import arguments_of
from tvm_ext.frontends.refusals import Refused
from tvm_ext.frontends.sampling import Axis, Interpolation, Taps, gathered, interpolated, is_identity, taps

Converter = Callable[[Any, Any], relax.Expr]

_FIRST_AXIS = 2
"""First spatial axis of a tensor [N, C, ...]."""


def _resizes(mode: str, *, antialias: bool = False) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a resize to the tensor in its new size."""
        given = arguments_of(node)
        x = importer.env[given["input"] if "input" in given else given["self"]]
        if str(x.ty.dtype) not in ("float32", "float64"):
            raise Refused(f"interpolation of {x.ty.dtype}")
        aligned = bool(given["align_corners"])
        axes = {
            axis: Axis(source=source, target=target, scale=_aligned(source, target) if aligned and antialias else scale)
            for axis, (source, target, factor) in _sizes(node, given, x).items()
            for scale in [float(factor or target / source)]
        }
        # With antialiasing torch takes the scale from the corners, but coordinates from the centres of elements.
        coordinates = "half_pixel" if antialias else "torch_align_corners" if aligned else "torch_half_pixel"
        how = Interpolation(
            mode=mode, coordinates=coordinates, cubic_coeff_a=-0.5 if antialias else -0.75, antialias=antialias,
            exclude_outside=antialias,
        )  # fmt: skip
        tables = {index: taps(axis, how) for index, axis in axes.items()}
        changed = {index: table for index, table in tables.items() if not is_identity(table, axes[index])}
        return importer.block_builder.emit(interpolated(importer.block_builder, x, axes, changed))

    return convert


def _aligned(source: int, target: int) -> float:
    """Return the scale with which the first and the last elements coincide."""
    if source == 1 or target == 1:
        raise Refused(f"antialiasing with align_corners from {source} elements to {target}")
    return (target - 1) / (source - 1)


def _nearest(*, exact: bool = False) -> Converter:
    def convert(node: Any, importer: Any) -> relax.Expr:
        """Convert a resize that takes the element at or ahead of each coordinate."""
        given = arguments_of(node)
        x = importer.env[given["input"] if "input" in given else given["self"]]
        tables = {}
        for axis, (source, target, factor) in _sizes(node, given, x).items():
            # torch computes coordinates in float32; in float64 some would fall on the other side of an integer.
            scale = np.float32(1 / factor if factor else np.float32(source) / np.float32(target))
            places = (np.arange(target, dtype=np.float32) + np.float32(0.5 * exact)) * scale
            if source == target or target == 2 * source:
                places = np.arange(target) // (target // source)
            indices = np.minimum(np.floor(places).astype("int32"), source - 1)[:, np.newaxis]
            tables[axis] = Taps(
                indices=indices, weights=np.ones_like(indices, "float32"), outside=np.zeros(target, bool)
            )
        changed = {
            axis: t for axis, t in tables.items() if not np.array_equal(t.indices[:, 0], range(static_shape(x)[axis]))
        }
        return importer.block_builder.emit(gathered(importer.block_builder, x, changed)) if changed else x

    return convert


def _sizes(node: Any, given: dict[str, Any], x: relax.Expr) -> dict[int, tuple[int, int, float | None]]:
    """Return the extents before and after, and the factor if given, of each spatial axis."""
    shape, wanted = static_shape(x), node.meta["val"].shape
    rank = len(shape) - _FIRST_AXIS
    factors = given.get("scale_factors") or [given.get(name) for name in ("scales_d", "scales_h", "scales_w")[-rank:]]
    if rank == 1 and "scales" in given:
        factors = [given["scales"]]
    return {axis: (shape[axis], int(wanted[axis]), factor) for axis, factor in enumerate(factors, _FIRST_AXIS)}


_METHODS, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _grid_sample(node: Any, importer: Any) -> relax.Expr:
    """Convert the elements at the coordinates of a grid, whose last axis TVM has as its second."""
    given, emit = arguments_of(node), importer.block_builder.emit
    grid = emit(relax.op.permute_dims(importer.env[given["grid"]], [0, 3, 1, 2]))
    return emit(
        relax.op.image.grid_sample(
            importer.env[given["input"]], grid, method=_METHODS[given["interpolation_mode"]], layout="NCHW",
            padding_mode=_PADDINGS[given["padding_mode"]], align_corners=bool(given["align_corners"]),
        )
    )  # fmt: skip


_RESIZES: dict[str, Converter] = {
    **{
        f"upsample_{name}.{overload}": _resizes(mode)
        for name, mode in (
            ("linear1d", "linear"), ("bilinear2d", "linear"), ("trilinear3d", "linear"), ("bicubic2d", "cubic"),
        )
        for overload in ("vec", "default")
    },
    **{
        f"{prefix}{rank}d.{overload}": _nearest(exact=exact)
        for prefix, exact in (("upsample_nearest", False), ("_upsample_nearest_exact", True))
        for rank in (1, 2, 3)
        for overload in ("vec", "default")
    },
    "_upsample_bilinear2d_aa.default": _resizes("linear", antialias=True),
    "_upsample_bicubic2d_aa.default": _resizes("cubic", antialias=True),
}  # fmt: skip

KEPT = frozenset(_RESIZES)
"""Operators that torch must not decompose: the result would look for the place of each element as it runs."""

CONVERTERS: dict[str, Converter] = {"grid_sampler_2d.default": _grid_sample, **_RESIZES}
"""Converters for TVM's importer, by operator. Each raises Refused for element types that it cannot interpolate."""
