"""Small files that ask for any size, and the limits that their refusals name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from tests.support.onnx_models import INT64, model_of
from tests.support.tflite_file import TfliteWriter

NODE = helper.make_node
HUGE, INT32_MAX = 1 << 32, (1 << 31) - 1


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, "int64")


def one(operator: str, shape: Sequence[int | str], *constants: np.ndarray, opset: int = 17, **attributes: Any) -> bytes:
    """A model of one node: the input x, then constants."""
    names = [f"c{index}" for index in range(len(constants))]
    node = NODE(operator, ["x", *names], ["y"], **attributes)
    return model_of(
        [node], {"x": shape}, ["y"], dict(zip(names, constants, strict=True)), opset=opset
    ).SerializeToString()


def known(operator: str, *constants: np.ndarray, opset: int = 17, **attributes: Any) -> bytes:
    """A node on constants alone, whose result is added to the input."""
    names = [f"c{index}" for index in range(len(constants))]
    nodes = [
        NODE(operator, names, ["k"], **attributes),
        NODE("Cast", ["k"], ["f"], to=1),
        NODE("Add", ["f", "x"], ["y"]),
    ]
    return model_of(
        nodes, {"x": (1,)}, ["y"], dict(zip(names, constants, strict=True)), opset=opset
    ).SerializeToString()


def functions(levels: int, width: int) -> bytes:
    """Each function calls the next one `width` times."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = []
    for level in range(levels):
        inner, domain = ("Relu", "") if level == levels - 1 else (f"F{level + 1}", "own")
        names = ["a", *(f"t{index}" for index in range(1, width)), "b"]
        nodes = [NODE(inner, [before], [after], domain=domain) for before, after in pairwise(names)]
        made.append(helper.make_function("own", f"F{level}", ["a"], ["b"], nodes, opsets))
    model = model_of([NODE("F0", ["x"], ["y"], domain="own")], {"x": (4,)}, ["y"])
    model.functions.extend(made)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model.SerializeToString()


def loops(depth: int, passes: int) -> bytes:
    """Loops within loops, each of as many passes."""
    info = helper.make_tensor_value_info
    body: Any = None
    for level in range(depth):
        inner = (
            NODE("Relu", ["s0"], ["r0"])
            if body is None
            else NODE("Loop", ["m", "t", f"s{level}"], [f"r{level}"], body=body)
        )
        nodes = [NODE("Identity", [f"c{level}"], [f"d{level}"]), inner]
        taken = [info(f"i{level}", INT64, []), info(f"c{level}", TensorProto.BOOL, []), info(f"s{level}", 1, [4])]
        given = [info(f"d{level}", TensorProto.BOOL, []), info(f"r{level}", 1, [4])]
        body = helper.make_graph(nodes, f"body{level}", taken, given)
    node = NODE("Loop", ["m", "t", "x"], ["y"], body=body)
    return model_of([node], {"x": (4,)}, ["y"], {"m": np.int64(passes), "t": np.array(True)}).SerializeToString()


def many_constants() -> bytes:
    """Sixty-four times 128 MiB, none of them too large alone."""
    nodes = []
    for index in range(64):
        nodes += [
            NODE("ConstantOfShape", ["s"], [f"c{index}"]),
            NODE("Add", [f"y{index}", f"c{index}"], [f"y{index + 1}"]),
        ]
    return model_of(nodes, {"y0": (1,)}, ["y64"], {"s": ints(1 << 25)}).SerializeToString()


def external(folder: Path, name: str, count: int, file_bytes: int, num_tensors: int = 1) -> Path:
    """Weights in a file without contents beside the model: a hole."""
    tensors = []
    for index in range(num_tensors):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.FLOAT, dims=[count], data_location=1)
        tensor.external_data.add(key="location", value=f"{name}.bin")
        tensors.append(tensor)
    nodes = [NODE("Add", [f"w{i - 1}.y" if i else "x", f"w{i}"], [f"w{i}.y"]) for i in range(num_tensors)]
    model = model_of(nodes, {"x": (1,)}, [f"w{num_tensors - 1}.y"])
    model.graph.initializer.extend(tensors)
    with (folder / f"{name}.bin").open("wb") as file:
        file.truncate(file_bytes)
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def written(*parts: bytes) -> bytes:
    """A graph of these bytes, as protobuf has it."""
    graph = b"".join(parts)
    return b"\x08\x09" + b"\x42\x02\x10\x11" + b"\x3a" + _varint(len(graph)) + graph


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _varint(number >> 7) if number > 127 else bytes([number])


def tflite_of(make: Callable[[TfliteWriter], int]) -> bytes:
    writer = TfliteWriter()
    return writer.finish([make(writer)])


def tflite_tile(w: TfliteWriter) -> int:
    x, repeats = w.input("x", [4]), w.constant("m", np.array([INT32_MAX // 4], "int32"))
    return w.operator("TILE", [x, repeats], w.tensor("y", [INT32_MAX // 4 * 4]))


def tflite_chain(w: TfliteWriter) -> int:
    last = w.input("x", [4])
    for index in range(20_000):
        last = w.operator("RELU", [last], w.tensor(f"t{index}", [4]))
    return last


def tflite_shared_buffer(w: TfliteWriter) -> int:
    """A hundred tensors of 16 MiB that all lie in one buffer."""
    buffer = w.tensors[w.constant("c", np.zeros(1 << 22, "float32"))].buffer
    last = w.input("x", [1])
    for index in range(100):
        weight = w.tensor(f"c{index}", [1 << 22])
        w.tensors[weight].buffer = buffer
        last = w.operator("ADD", [last, weight], w.tensor(f"t{index}", [1 << 22]), "AddOptions")
    return last


def many_outputs() -> bytes:
    node = NODE("Split", ["x"], [f"y{index}" for index in range(9999)])
    return model_of([node], {"x": (9999,)}, ["y0"]).SerializeToString()


def frames() -> bytes:
    """A signal of 2^20 numbers, a frame of it from each of them on."""
    node = NODE("STFT", ["x", "step", "", "length"], ["y"])
    constants = {"step": np.int64(1), "length": np.int64(16)}
    return model_of([node], {"x": (1, 1 << 20, 1)}, ["y"], constants).SerializeToString()


def tflite_relu(*shape: int) -> bytes:
    return tflite_of(lambda w: w.operator("RELU", [w.input("x", shape)], w.tensor("y", shape)))


IMAGE, KERNEL = (1, 1, 8, 8), np.ones((1, 1, 3, 3), "float32")
TENSOR, NODES = "tensor_bytes", "nodes"
# Contents of a file, and the limit that its refusal names.
ONNX: dict[str, tuple[Callable[[], bytes], str]] = {
    "relu of 2^31": (lambda: one("Relu", (1 << 31,)), TENSOR),
    "relu of 2^64": (lambda: one("Relu", (HUGE, HUGE)), TENSOR),
    "softmax": (lambda: one("Softmax", (HUGE, HUGE)), TENSOR),
    "slice": (lambda: one("Slice", (HUGE, HUGE), ints(0), ints(4)), TENSOR),
    "conv": (lambda: one("Conv", (1, 1, HUGE, HUGE), KERNEL), TENSOR),
    "sum": (lambda: one("ReduceMean", (1 << 40,)), TENSOR),
    "tile": (lambda: one("Tile", (4,), ints(1 << 40)), TENSOR),
    "tile of a constant": (lambda: known("Tile", np.ones(1, "float32"), ints(1 << 34)), TENSOR),
    "pad": (lambda: one("Pad", (1, 1, 4, 4), ints(0, 0, 1 << 31, 0, 0, 0, 0, 0)), TENSOR),
    "pad by reflection": (lambda: one("Pad", (4,), ints(1 << 40, 0), mode="reflect"), TENSOR),
    "expand": (lambda: one("Expand", (1, 1), ints(HUGE, HUGE)), TENSOR),
    "expand of a constant": (lambda: known("Expand", np.ones(1, "float32"), ints(1 << 33)), TENSOR),
    "constant of shape": (lambda: known("ConstantOfShape", ints(1 << 34)), TENSOR),
    "many constants": (many_constants, "folded_bytes"),
    "range": (lambda: known("Range", np.float32(0), np.float32(1 << 40), np.float32(1)), TENSOR),
    "window": (lambda: known("HannWindow", np.int64(1 << 40)), TENSOR),
    "rank": (lambda: one("Relu", (1,) * 1000), "rank"),
    "rank by reshape": (lambda: one("Reshape", (1,), np.ones(1000, "int64")), "rank"),
    "functions": (lambda: functions(30, 4), NODES),
    "functions of a million nodes": (lambda: functions(6, 10), NODES),
    "empty nodes": (lambda: written(b"\x0a\x00" * 2_000_000), "fields"),
    "a long text": (lambda: written(b"\x52" + _varint(1 << 27) + bytes(1 << 27)), "text_bytes"),
    "many outputs": (many_outputs, "operands"),
    "frames of a signal": (frames, "4096 frames"),
    "windows of a pool": (
        lambda: one(
            "AveragePool", IMAGE, kernel_shape=[1 << 12] * 2, dilations=[2, 2], pads=[(1 << 12) - 1] * 4, opset=19
        ),
        "are written out",
    ),
    "resize": (lambda: one("Resize", IMAGE, np.empty(0, "f4"), np.float32([1, 1, 1e6, 1e6])), "can be resized"),
}  # fmt: skip


TFLITE: dict[str, tuple[Callable[[], bytes], str]] = {
    "relu": (lambda: tflite_relu(INT32_MAX, INT32_MAX), TENSOR),
    "tile": (lambda: tflite_of(tflite_tile), TENSOR),
    "rank": (lambda: tflite_relu(*[1] * 1000), "rank"),
    "chain": (lambda: tflite_of(tflite_chain), NODES),
    "one buffer for all": (lambda: tflite_of(tflite_shared_buffer), "weights_bytes"),
}  # fmt: skip
