"""Operators that move elements, or repeat them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.tflite_cases.case import SHAPE, Case, ints, one_result, same_scales
from tests.support.tflite_models import Network

_FLOAT = ("float32",)


def _move(
    operator: str, result: Sequence[int], *constants: np.ndarray, options: str = "", label: str = "", **named: object
) -> Case:
    """A case of an operator whose result has the scale of its input."""
    make = one_result(operator, options, result=result, constants=constants, scales="same", **named)  # type: ignore[arg-type]
    return Case(name=f"{operator} {label}".strip(), make=make)


def _parts(
    operator: str, result: Sequence[int], count: int, *constants: np.ndarray, options: str, first: bool = False,
    source: Sequence[int] = SHAPE, **fields: object,
) -> Case:  # fmt: skip
    """A case of an operator of several results."""

    def make(net: Network) -> list[int]:
        x = net.input(source)
        rest = [net.writer.constant(f"c{index}", array) for index, array in enumerate(constants)]
        made = [net.output(f"y{index}", result, same_scales(net, x)) for index in range(count)]
        net.writer.operator(operator, [*rest, x] if first else [x, *rest], made, options, **fields)
        return made

    return Case(name=operator, make=make)


def _padv2(net: Network) -> list[int]:
    x = net.input(SHAPE)
    widths = net.writer.constant("widths", np.array([[0, 0], [1, 2], [0, 1], [3, 0]], np.int32))
    number = net.writer.constant("number", np.array([-7], net.dtype), same_scales(net, x))
    output = net.output("y", (1, 7, 7, 8), same_scales(net, x))
    return [net.writer.operator("PADV2", [x, widths, number], output, "PadV2Options")]


def _fill(net: Network) -> list[int]:
    """FILL with a number that is computed: its shape is constant."""
    shape = net.writer.constant("shape", ints(2, 3, 4))
    number = net.input((), "number")
    return [net.writer.operator("FILL", [shape, number], net.output("y", (2, 3, 4), same_scales(net, number)),
                                "FillOptions")]  # fmt: skip


def _update(is_constant: bool) -> Callable[[Network], list[int]]:
    def make(net: Network) -> list[int]:
        x, part = net.input((4, 6, 5), "x"), net.input((2, 3, 5), "part")
        net.writer.tensors[part].quantized = same_scales(net, x)
        begin = net.writer.constant("begin", ints(1, 5, 0)) if is_constant else net.writer.input("begin", (3,), "int32")
        output = net.output("y", (4, 6, 5), same_scales(net, x))
        return [net.writer.operator("DYNAMIC_UPDATE_SLICE", [x, part, begin], output, "DynamicUpdateSliceOptions")]

    return make


def _gather(source: Sequence[int], indices: Sequence[int], result: Sequence[int], **fields: int) -> Case:
    """GATHER by indices that are an input."""

    def make(net: Network) -> list[int]:
        x, places = net.input(source), net.writer.input("places", indices, "int32")
        output = net.output("y", result, same_scales(net, x))
        return [net.writer.operator("GATHER", [x, places], output, "GatherOptions", **fields)]

    return Case(name=f"GATHER by an input {fields}", make=make, below=4)


def _gather_nd(net: Network) -> list[int]:
    x, places = net.input((4, 6, 5)), net.writer.input("places", (3, 2), "int32")
    output = net.output("y", (3, 5), same_scales(net, x))
    return [net.writer.operator("GATHER_ND", [x, places], output, "GatherNdOptions")]


def _shape(net: Network) -> list[int]:
    x = net.input(SHAPE)
    return [net.writer.operator("SHAPE", [x], net.writer.tensor("y", (4,), "int32"), "ShapeOptions", OutType=2)]


def _broadcast_args(net: Network) -> list[int]:
    a, b = net.writer.constant("a", ints(4, 1, 3)), net.writer.constant("b", ints(2, 1))
    return [net.writer.operator("BROADCAST_ARGS", [a, b], net.writer.tensor("y", (3,), "int32"))]


# TensorFlow Lite Micro's SPACE_TO_BATCH_ND pads with what its memory happens to hold, so that none is padded here.
_CROPS = np.array([[0, 1], [1, 0]], np.int32)
_WIDTHS = np.array([[0, 0], [1, 1], [2, 1], [0, 3]], np.int32)
_MIRROR = {"REFLECT": 0, "SYMMETRIC": 1}

CASES: dict[str, list[Case]] = {
    "BATCH_TO_SPACE_ND": [
        _move("BATCH_TO_SPACE_ND", (2, 7, 11, 5), ints(2, 2), _CROPS, options="BatchToSpaceNDOptions",
              source=(8, 4, 6, 5)),
        _move("BATCH_TO_SPACE_ND", (1, 12, 5), ints(2), np.zeros((1, 2), np.int32), options="BatchToSpaceNDOptions",
              source=(2, 6, 5), label="rank 3"),
    ],
    "SPACE_TO_BATCH_ND": [
        _move("SPACE_TO_BATCH_ND", (4, 2, 3, 5), ints(2, 2), np.zeros((2, 2), np.int32),
              options="SpaceToBatchNDOptions"),
        _move("SPACE_TO_BATCH_ND", (2, 3, 5), ints(2), np.zeros((1, 2), np.int32), options="SpaceToBatchNDOptions",
              source=(1, 6, 5), label="rank 3"),
    ],
    "BROADCAST_TO": [_move("BROADCAST_TO", (3, 4, 6, 5), ints(3, 4, 6, 5), options="BroadcastToOptions")],
    "BROADCAST_ARGS": [Case(name="BROADCAST_ARGS", make=_broadcast_args, types=_FLOAT)],
    "CONCATENATION": [
        _move("CONCATENATION", (1, 4, 12, 5), options="ConcatenationOptions", Axis=2, inputs=2),
        _move("CONCATENATION", (1, 4, 6, 15), options="ConcatenationOptions", Axis=-1, inputs=3, label="channels"),
    ],
    "DEPTH_TO_SPACE": [_move("DEPTH_TO_SPACE", (1, 8, 12, 2), source=(1, 4, 6, 8), options="DepthToSpaceOptions",
                             BlockSize=2)],
    "SPACE_TO_DEPTH": [_move("SPACE_TO_DEPTH", (1, 2, 3, 20), options="SpaceToDepthOptions", BlockSize=2)],
    "DYNAMIC_UPDATE_SLICE": [
        Case(name="DYNAMIC_UPDATE_SLICE constant", make=_update(True)),
        Case(name="DYNAMIC_UPDATE_SLICE by an input", make=_update(False)),
    ],
    "EXPAND_DIMS": [
        _move("EXPAND_DIMS", (1, 4, 1, 6, 5), ints(2), options="ExpandDimsOptions"),
        _move("EXPAND_DIMS", (1, 4, 6, 5, 1), ints(-1), options="ExpandDimsOptions", label="last"),
    ],
    "FILL": [Case(name="FILL", make=_fill)],
    "GATHER": [
        _move("GATHER", (1, 4, 3, 5), ints(5, 0, 2), options="GatherOptions", Axis=2),
        _move("GATHER", (4, 2, 5), np.array([[1, 0], [2, 2], [5, 3], [0, 1]], np.int32), source=(4, 6, 5),
              options="GatherOptions", Axis=1, BatchDims=1, label="batch"),
        _gather((4, 6, 5), (3,), (3, 6, 5)),
        _gather((4, 6, 5), (4, 2), (4, 2, 5), Axis=1, BatchDims=1),
    ],
    "GATHER_ND": [
        _move("GATHER_ND", (2, 5), np.array([[3, 1], [0, 5]], np.int32), source=(4, 6, 5), options="GatherNdOptions"),
        Case(name="GATHER_ND by an input", make=_gather_nd, below=4),
    ],
    "MIRROR_PAD": [
        _move("MIRROR_PAD", (1, 6, 9, 8), _WIDTHS, options="MirrorPadOptions", Mode=mode, label=label)
        for label, mode in _MIRROR.items()
    ],
    "PACK": [
        _move("PACK", (2, 1, 4, 6, 5), options="PackOptions", ValuesCount=2, Axis=0, inputs=2),
        _move("PACK", (4, 6, 2), source=(4, 6), options="PackOptions", ValuesCount=2, Axis=-1, inputs=2, label="last"),
    ],
    "PAD": [_move("PAD", (1, 6, 9, 8), _WIDTHS, options="PadOptions")],
    "PADV2": [Case(name="PADV2", make=_padv2)],
    "RESHAPE": [_move("RESHAPE", (8, 15), ints(8, 15), options="ReshapeOptions", NewShape=[8, 15])],
    "RESIZE_BILINEAR": [
        _move("RESIZE_BILINEAR", (1, *size, 5), ints(*size), options="ResizeBilinearOptions", label=f"{size} {more}",
              **more)
        for size in ((8, 12), (3, 7))
        for more in ({}, {"AlignCorners": True}, {"HalfPixelCenters": True})
    ],
    "RESIZE_NEAREST_NEIGHBOR": [
        _move("RESIZE_NEAREST_NEIGHBOR", (1, *size, 5), ints(*size), options="ResizeNearestNeighborOptions",
              label=f"{size} {more}", **more)
        for size in ((8, 12), (3, 7))
        for more in ({}, {"AlignCorners": True}, {"HalfPixelCenters": True})
    ],
    "REVERSE_V2": [_move("REVERSE_V2", SHAPE, ints(2), options="ReverseV2Options")],
    "SHAPE": [Case(name="SHAPE", make=_shape)],
    "SLICE": [_move("SLICE", (1, 2, 3, 5), ints(0, 1, 2, 0), ints(1, 2, 3, -1), options="SliceOptions")],
    "SPLIT": [_parts("SPLIT", (1, 4, 3, 5), 2, np.array(2, np.int32), options="SplitOptions", first=True, NumSplits=2)],
    "SPLIT_V": [_parts("SPLIT_V", (1, 4, 3, 5), 2, ints(3, 3), np.array(2, np.int32), options="SplitVOptions",
                       NumSplits=2)],
    "SQUEEZE": [
        _move("SQUEEZE", (4, 6, 5), options="SqueezeOptions", SqueezeDims=[0]),
        _move("SQUEEZE", (4, 5), source=(1, 4, 1, 5), options="SqueezeOptions", label="all"),
        _move("SQUEEZE", (4, 5), source=(4, 5, 1), options="SqueezeOptions", SqueezeDims=[-1], label="last"),
    ],
    "STRIDED_SLICE": [
        _move("STRIDED_SLICE", (1, 2, 3, 5), ints(0, 0, 1, 0), ints(1, 4, 6, 5), ints(1, 2, 2, 1),
              options="StridedSliceOptions"),
        _move("STRIDED_SLICE", (4, 6, 5), ints(0, 0, 5, 0), ints(1, 4, 0, 5), ints(1, 1, -1, 1),
              options="StridedSliceOptions", BeginMask=2, EndMask=6, ShrinkAxisMask=1, label="masks"),
        _move("STRIDED_SLICE", (3, 5), ints(1, 2, 0), ints(4, 6, 5), ints(1, 1, 1), source=(4, 6, 5),
              options="StridedSliceOptions", BeginMask=2, ShrinkAxisMask=2, label="masked twice"),
        _move("STRIDED_SLICE", (2, 4), ints(3, 2, 4), ints(0, 6, 0), ints(-2, 1, -1), source=(4, 6, 5),
              options="StridedSliceOptions", BeginMask=2, EndMask=1, ShrinkAxisMask=2, label="masked twice, backward"),
    ],
    "TRANSPOSE": [_move("TRANSPOSE", (1, 5, 4, 6), ints(0, 3, 1, 2), options="TransposeOptions")],
    "UNPACK": [_parts("UNPACK", (1, 4, 6), 5, options="UnpackOptions", Num=5, Axis=-1)],
}  # fmt: skip
