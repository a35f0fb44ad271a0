"""One convolution of each kind and corner of the Helium kernel of four pixels side by side, and planes of an image."""

from __future__ import annotations

from dataclasses import replace

from codegen_c.kernels.contract import Kernel
from codegen_c.operators.kinds import Extreme, Operator, Permute, QConv2d, Window
from codegen_c.targets.helium.kernels import elementwise as elementwise_helium
from codegen_c.targets.helium.kernels import side as side_helium
from tests.kernels.helium_samples import POINT, SAME, STRIDED, conv, tensor

SIDE = side_helium.KERNEL
CLAMPED = -128  # the zero point of a layer with a fused ReLU, whose sums below zero are clamped


def twice(sample: QConv2d) -> QConv2d:
    """The convolution with TensorFlow Lite's roundings."""
    return replace(sample, rounding="tflite")


ROW_BYTES, ROWS_BYTES = tensor(3, 1, dtype="uint8"), tensor(3, 32, dtype="uint8")
SAMPLES: dict[str, tuple[Kernel, Operator]] = {
    "side_pixels": (SIDE, conv(tensor(1, 5, 5, 64), tensor(1, 5, 5, 12, scale=0.3), POINT)),
    "side_pixels_16": (SIDE, conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 8, scale=0.3), POINT)),
    "side_pixels_beyond": (SIDE, conv(tensor(1, 3, 7, 24), tensor(1, 3, 7, 8, scale=0.3, dtype="uint8"), POINT)),
    "side_pixels_deep": (SIDE, conv(tensor(1, 2, 5, 120), tensor(1, 2, 5, 8, scale=0.4), POINT)),
    "side_pixels_deepest": (SIDE, conv(tensor(1, 2, 5, 208), tensor(1, 2, 5, 8, scale=0.5), POINT)),
    "side_pixels_in_place": (SIDE, conv(tensor(1, 5, 5, 64), tensor(1, 5, 5, 64, scale=0.3), POINT)),
    "side_pixels_in_place_16": (SIDE, conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 16, scale=0.3), POINT)),
    "side_pixels_in_place_beyond": (SIDE, conv(tensor(1, 3, 7, 24), tensor(1, 3, 7, 24, scale=0.3), POINT)),
    "side_pixels_apart": (
        SIDE,
        conv(tensor(1, 9, 15, 32), tensor(1, 5, 8, 4, scale=0.3), Window(kernel=(1, 1), strides=(2, 2))),
    ),
    "side_pixels_apart_beyond": (
        SIDE,
        conv(tensor(1, 9, 15, 12), tensor(1, 5, 5, 4, scale=0.3), Window(kernel=(1, 1), strides=(2, 3))),
    ),
    "side_pixels_in_padding": (
        SIDE,
        conv(tensor(1, 4, 5, 16), tensor(1, 6, 7, 4, scale=0.3), Window(kernel=(1, 1), padding=(1, 1, 1, 1))),
    ),
    "side_pixels_one": (SIDE, conv(tensor(1, 3, 3, 128), tensor(1, 3, 3, 12, scale=0.4), POINT)),
    "side_pixels_one_beyond": (SIDE, conv(tensor(1, 3, 3, 72), tensor(1, 3, 3, 8, scale=0.4, dtype="uint8"), POINT)),
    "side_pixels_one_deepest": (SIDE, conv(tensor(1, 3, 3, 480), tensor(1, 3, 3, 12, scale=0.9), POINT)),
    "side_pixels_one_in_place": (SIDE, conv(tensor(1, 3, 3, 40), tensor(1, 3, 3, 40, scale=0.3), POINT)),
    "side_pixels_short": (SIDE, conv(tensor(1, 2, 3, 48), tensor(1, 2, 3, 8, scale=0.3), POINT)),
    "side_strip": (SIDE, conv(tensor(1, 5, 13, 16), tensor(1, 5, 13, 8, scale=0.5), SAME)),
    "side_strip_inside": (SIDE, conv(tensor(1, 4, 9, 32), tensor(1, 2, 7, 4, scale=0.5), Window(kernel=(3, 3)))),
    "side_strip_deep": (SIDE, conv(tensor(1, 4, 9, 32), tensor(1, 4, 9, 4, scale=0.5), SAME)),
    "side_strip_strided": (SIDE, conv(tensor(1, 5, 21, 32), tensor(1, 3, 11, 4, scale=0.5), STRIDED)),
    "side_flipped": (SIDE, conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 8, scale=0.3, zero_point=-128), POINT)),
    "side_flipped_bytes": (
        SIDE,
        conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 8, scale=0.3, zero_point=128, dtype="uint8"), POINT),
    ),
    "side_unshifted": (SIDE, conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 8, scale=0.3, zero_point=0), POINT)),
    "side_twice": (SIDE, twice(conv(tensor(1, 5, 5, 64), tensor(1, 5, 5, 12, scale=0.3), POINT))),
    "side_twice_clamped": (
        SIDE,
        twice(conv(tensor(1, 3, 7, 16), tensor(1, 3, 7, 8, scale=0.3, zero_point=CLAMPED), POINT)),
    ),
    "side_twice_deep": (SIDE, twice(conv(tensor(1, 2, 5, 208), tensor(1, 2, 5, 8, scale=0.5), POINT))),
    "side_twice_one": (SIDE, twice(conv(tensor(1, 3, 3, 128), tensor(1, 3, 3, 12, scale=0.4), POINT))),
    "side_twice_one_in_place": (
        SIDE,
        twice(conv(tensor(1, 3, 3, 40), tensor(1, 3, 3, 40, scale=0.3, zero_point=CLAMPED), POINT)),
    ),
    "side_twice_strip": (SIDE, twice(conv(tensor(1, 4, 9, 64), tensor(1, 4, 9, 4, scale=0.5), SAME))),
    "side_twice_strided": (
        SIDE,
        twice(conv(tensor(1, 5, 21, 32), tensor(1, 3, 11, 4, scale=0.5, zero_point=CLAMPED), STRIDED)),
    ),
    "side_twice_copied": (SIDE, twice(conv(tensor(1, 9, 13, 3), tensor(1, 9, 13, 8, scale=0.25), SAME))),
    "side_copied": (SIDE, conv(tensor(1, 9, 13, 3), tensor(1, 9, 13, 8, scale=0.25), SAME)),
    "side_copied_bytes": (
        SIDE,
        conv(tensor(1, 5, 7, 12, zero_point=130, dtype="uint8"), tensor(1, 5, 7, 4, scale=0.25), SAME),
    ),
    "larger_by_channel": (
        elementwise_helium.EXTREME,
        Extreme(inputs=(tensor(1, 5, 3, 20), tensor(1, 1, 1, 20)), outputs=(tensor(1, 5, 3, 20),), is_larger=True),
    ),
    "smaller_bytes": (
        elementwise_helium.EXTREME,
        Extreme(inputs=(ROW_BYTES, ROWS_BYTES), outputs=(ROWS_BYTES,), is_larger=False),
    ),
    "planes": (
        elementwise_helium.PERMUTE,
        Permute(inputs=(tensor(1, 3, 5, 37),), outputs=(tensor(1, 5, 37, 3),), axes=(0, 2, 3, 1)),
    ),
    "planes_many": (
        elementwise_helium.PERMUTE,
        Permute(inputs=(tensor(1, 19, 3, 21),), outputs=(tensor(1, 3, 21, 19),), axes=(0, 2, 3, 1)),
    ),
    "to_planes": (
        elementwise_helium.PERMUTE,
        Permute(inputs=(tensor(1, 5, 7, 3),), outputs=(tensor(1, 3, 5, 7),), axes=(0, 3, 1, 2)),
    ),
    "tokens": (
        elementwise_helium.PERMUTE,
        Permute(inputs=(tensor(3, 21, 34),), outputs=(tensor(3, 34, 21),), axes=(0, 2, 1)),
    ),
    "planes_cut": (
        elementwise_helium.PERMUTE,
        Permute(inputs=(tensor(1, 4, 5, 20),), outputs=(tensor(1, 3, 17, 3),), axes=(0, 2, 3, 1), first=(0, 1, 2, 1)),
    ),
}
