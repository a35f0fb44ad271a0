"""TensorFlow Lite operators that move, cut, join and repeat elements, in floats and integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.pairing.operator_case import Choice
from benchmarks.pairing.tflite_form import ACTIVATIONS, TYPES, tflite_operator
from tests.support.tflite_file import Quantized
from tests.support.tflite_models import Network

_CUBE = (1, 4, 6, 5)


def _ints(numbers: Sequence[int] | Sequence[Sequence[int]]) -> np.ndarray:
    return np.array(numbers, np.int32)


def _same(net: Network, index: int) -> Quantized | None:
    return net.writer.tensors[index].quantized


def _moved(
    net: Network, name: str, x: int, shape: Sequence[int], rest: Sequence[int], options: str, **fields: object
) -> int:
    return net.writer.operator(name, [x, *rest], net.output("y", shape, _same(net, x)), options, **fields)


def _slice(net: Network, choice: Choice) -> int:
    shape, (begin, size) = choice["shape"], choice["part"]
    begin, size = begin[: len(shape)], size[: len(shape)]
    result = [extent - start if wide == -1 else wide for extent, start, wide in zip(shape, begin, size, strict=True)]
    rest = [net.writer.constant("begin", _ints(begin)), net.writer.constant("size", _ints(size))]
    return _moved(net, "SLICE", net.input(shape), result, rest, "SliceOptions")


def _strided(net: Network, choice: Choice) -> int:
    shape, strides = choice["shape"], list(choice["strides"][: len(choice["shape"])])
    begin = [0 if step > 0 else extent - 1 for extent, step in zip(shape, strides, strict=True)]
    end = [extent if step > 0 else -extent - 1 for extent, step in zip(shape, strides, strict=True)]
    if choice["inside"]:
        begin[1], end[1] = (1, shape[1] - 1) if strides[1] > 0 else (-2, 0)
    cut: list[slice | int] = []
    shrink = choice["shrink"]
    for axis, step in enumerate(strides):
        first = None if choice["begin_mask"] >> axis & 1 else begin[axis]
        last = None if choice["end_mask"] >> axis & 1 or (step < 0 and end[axis] == -shape[axis] - 1) else end[axis]
        cut.append(begin[axis] if shrink >> axis & 1 else slice(first, last, step))
    result = np.empty(shape)[tuple(cut)].shape
    rest = [net.writer.constant(name, _ints(values)) for name, values in
            (("begin", begin), ("end", end), ("strides", strides))]  # fmt: skip
    masks = {"BeginMask": choice["begin_mask"], "EndMask": choice["end_mask"], "ShrinkAxisMask": shrink}
    return _moved(net, "STRIDED_SLICE", net.input(shape), result, rest, "StridedSliceOptions", **masks)


def _concat(net: Network, choice: Choice) -> int:
    shapes = [list(choice["shape"]) for _ in range(choice["inputs"])]
    axis = choice["axis"]
    for index, shape in enumerate(shapes):
        shape[axis] += index if choice["uneven"] else 0
    places = [net.input(shape, f"x{index}") for index, shape in enumerate(shapes)]
    for place in places:
        net.writer.tensors[place].quantized = _same(net, places[0])
    result = list(shapes[0])
    result[axis] = sum(shape[axis] for shape in shapes)
    y = net.output("y", result, _same(net, places[0]))
    activation = ACTIVATIONS[choice["activation"]]
    return net.writer.operator("CONCATENATION", places, y, "ConcatenationOptions", Axis=axis,
                               FusedActivationFunction=activation)  # fmt: skip


def _split(net: Network, choice: Choice) -> list[int]:
    shape, axis, count = choice["shape"], choice["axis"], choice["count"]
    part = list(shape)
    part[axis] //= count
    x, place = net.input(shape), net.writer.constant("axis", np.array(axis, np.int32))
    made = [net.output(f"y{index}", part, _same(net, x)) for index in range(count)]
    net.writer.operator("SPLIT", [place, x], made, "SplitOptions", NumSplits=count)
    return made


def _split_v(net: Network, choice: Choice) -> list[int]:
    shape, axis, sizes = choice["shape"], choice["axis"], choice["sizes"]
    extent = shape[axis]
    first = extent - 1 if sizes == "end" else 1
    x = net.input(shape)
    rest = [net.writer.constant("sizes", _ints([first, extent - first])),
            net.writer.constant("axis", np.array(axis, np.int32))]  # fmt: skip
    made = [net.output(f"y{index}", [*shape[:axis], wide, *shape[axis:][1:]] if axis >= 0 else [*shape[:-1], wide],
                       _same(net, x)) for index, wide in enumerate((first, extent - first))]  # fmt: skip
    net.writer.operator("SPLIT_V", [x, *rest], made, "SplitVOptions", NumSplits=2)
    return made


def _pack(net: Network, choice: Choice) -> int:
    shape, axis, count = choice["shape"], choice["axis"], choice["count"]
    places = [net.input(shape, f"x{index}") for index in range(count)]
    for place in places:
        net.writer.tensors[place].quantized = _same(net, places[0])
    result = list(shape)
    result.insert(axis if axis >= 0 else len(shape) + 1 + axis, count)
    y = net.output("y", result, _same(net, places[0]))
    return net.writer.operator("PACK", places, y, "PackOptions", ValuesCount=count, Axis=axis)


def _unpack(net: Network, choice: Choice) -> list[int]:
    shape, axis = choice["shape"], choice["axis"]
    x, part = net.input(shape), [extent for at, extent in enumerate(shape) if at != axis % len(shape)]
    made = [net.output(f"y{index}", part, _same(net, x)) for index in range(shape[axis])]
    net.writer.operator("UNPACK", [x], made, "UnpackOptions", Num=shape[axis], Axis=axis)
    return made


def _gather(net: Network, choice: Choice) -> int:
    shape, axis, batch = (4, 6, 5), choice["axis"], choice["batch_dims"]
    places = np.resize(np.array([1, 0, 3, 2, 0, 3], np.int32), choice["indices"] if not batch else (4, 2))
    rest = [net.writer.constant("places", places)]
    result = [*shape[:axis], *places.shape[batch:], *shape[axis + 1 :]]
    return _moved(net, "GATHER", net.input(shape), result, rest, "GatherOptions", Axis=axis, BatchDims=batch)


def _pad(net: Network, choice: Choice) -> int:
    shape = choice["shape"]
    widths = choice["widths"][: len(shape)]
    result = [extent + sum(both) for extent, both in zip(shape, widths, strict=True)]
    x, rest = net.input(shape), [net.writer.constant("widths", _ints(widths))]
    if choice["kind"] == "PADV2":
        rest.append(net.writer.constant("number", np.array([-7], net.dtype), _same(net, x)))
    options = {"PAD": "PadOptions", "PADV2": "PadV2Options"}.get(choice["kind"], "MirrorPadOptions")
    fields = {"reflect": {"Mode": 0}, "symmetric": {"Mode": 1}}.get(choice["kind"], {})
    name = "MIRROR_PAD" if fields else choice["kind"]
    return _moved(net, name, x, result, rest, options, **fields)


def _transpose(net: Network, choice: Choice) -> int:
    shape, order = choice["shape"], choice["order"]
    rest = [net.writer.constant("order", _ints(order))]
    return _moved(net, "TRANSPOSE", net.input(shape), [shape[at] for at in order], rest, "TransposeOptions")


def _blocks(net: Network, choice: Choice) -> int:
    (n, height, width, depth), size, kind = choice["shape"], choice["block"], choice["kind"]
    x = net.input(choice["shape"])
    if kind == "SPACE_TO_DEPTH":
        result = (n, height // size, width // size, depth * size * size)
        return _moved(net, kind, x, result, [], "SpaceToDepthOptions", BlockSize=size)
    if kind == "DEPTH_TO_SPACE":
        result = (n, height * size, width * size, depth // (size * size))
        return _moved(net, kind, x, result, [], "DepthToSpaceOptions", BlockSize=size)
    rest = [net.writer.constant("block", _ints((size, size))), net.writer.constant("none", np.zeros((2, 2), np.int32))]
    if kind == "SPACE_TO_BATCH_ND":
        result = (n * size * size, height // size, width // size, depth)
        return _moved(net, kind, x, result, rest, "SpaceToBatchNDOptions")
    result = (n // (size * size), height * size, width * size, depth)
    return _moved(net, kind, x, result, rest, "BatchToSpaceNDOptions")


def _blocks_fit(choice: Choice) -> bool:
    (n, height, width, depth), size = choice["shape"], choice["block"]
    whole = {
        "SPACE_TO_DEPTH": not height % size and not width % size, "DEPTH_TO_SPACE": not depth % (size * size),
        "SPACE_TO_BATCH_ND": not height % size and not width % size, "BATCH_TO_SPACE_ND": not n % (size * size),
    }  # fmt: skip
    return whole[choice["kind"]]


def _tile(net: Network, choice: Choice) -> int:
    shape, times = choice["shape"], choice["times"][: len(choice["shape"])]
    rest = [net.writer.constant("times", _ints(times))]
    return _moved(
        net, "TILE", net.input(shape), [e * t for e, t in zip(shape, times, strict=True)], rest, "TileOptions"
    )


def _reverse(net: Network, choice: Choice) -> int:
    shape = choice["shape"]
    rest = [net.writer.constant("axis", _ints([choice["axis"]]))]
    return _moved(net, "REVERSE_V2", net.input(shape), shape, rest, "ReverseV2Options")


OPERATORS = [
    tflite_operator(
        "SLICE", _slice, shape=[_CUBE, (4, 6, 5), (7, 3)],
        part=[((0, 1, 2, 0), (1, 2, 3, -1)), ((0, 0, 1, 1), (-1, -1, -1, -1)), ((0, 2, 0, 4), (1, 1, 2, 1))],
        dtype=TYPES, is_valid=lambda choice: choice["shape"] != (7, 3) or choice["part"][0][1] < 3,
    ),
    tflite_operator(
        "STRIDED_SLICE", _strided, shape=[_CUBE, (4, 6, 5)],
        strides=[(1, 1, 1, 1), (1, 2, 2, 1), (1, -1, 1, 2), (1, 3, -2, -1)],
        begin_mask=[0, 2, 6], end_mask=[0, 2, 7], shrink=[0, 1, 2], inside=[False, True], dtype=["float32", "int8"],
        is_valid=lambda choice: not choice["shrink"] & 2 or choice["strides"][1] > 0,
    ),
    tflite_operator(
        "CONCATENATION", _concat, shape=[_CUBE, (3, 4), (2, 3, 4)], axis=[-1, 1, 0], inputs=[2, 3, 5],
        uneven=[False, True], activation=["none"], dtype=TYPES,
    ),
    tflite_operator(
        "SPLIT", _split, shape=[(2, 4, 6, 8), (4, 6)], axis=[-1, 1, 0], count=[2, 1], dtype=TYPES,
    ),
    tflite_operator("SPLIT_V", _split_v, shape=[_CUBE[1:], (2, 4, 6, 5)], axis=[1, 0, -1], sizes=["begin", "end"],
                    dtype=TYPES),
    tflite_operator("PACK", _pack, shape=[(4, 6), (3,), (2, 3, 4)], axis=[0, -1, 1], count=[1, 2, 4],
                    dtype=["float32", "int8"]),
    tflite_operator("UNPACK", _unpack, shape=[(4, 6), (3, 2, 5)], axis=[0, -1, 1], dtype=["float32", "int8"]),
    tflite_operator(
        "GATHER", _gather, axis=[0, 1, 2], batch_dims=[0, 1], indices=[(3,), (2, 2), (1,), ()],
        dtype=["float32", "int8"], is_valid=lambda choice: not choice["batch_dims"] or choice["axis"] > 0,
    ),
    tflite_operator(
        "PAD", _pad, kind=["PAD", "PADV2", "reflect", "symmetric"], shape=[_CUBE, (4, 6, 5), (7, 3)],
        widths=[((0, 0), (1, 2), (0, 1), (2, 0)), ((0, 0), (1, 1), (2, 2), (0, 0)), ((0, 0), (0, 0), (0, 0), (1, 3))],
        dtype=TYPES,
    ),
    tflite_operator("TRANSPOSE", _transpose, shape=[_CUBE, (2, 3, 4, 5)],
                    order=[(0, 3, 1, 2), (0, 2, 3, 1), (3, 2, 1, 0), (1, 0, 2, 3), (0, 1, 3, 2)], dtype=TYPES),
    tflite_operator(
        "blocks", _blocks, kind=["SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND"],
        shape=[(1, 4, 6, 4), (8, 2, 4, 8), (4, 6, 6, 9), (9, 3, 3, 1)], block=[2, 3], dtype=["float32", "int8"],
        is_valid=_blocks_fit,
    ),
    tflite_operator("TILE", _tile, shape=[_CUBE, (3, 4), (5,)], times=[(2, 1, 1, 3), (1, 2, 1, 1), (3, 2, 2, 1)],
                    dtype=["float32", "int8"]),
    tflite_operator("REVERSE_V2", _reverse, shape=[_CUBE, (3, 4)], axis=[0, 1, -1], dtype=["float32", "int8"]),
]  # fmt: skip
