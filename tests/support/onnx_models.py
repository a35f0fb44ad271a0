"""Small ONNX models for end-to-end tests, one function each, and the table of all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
NODE = helper.make_node
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape | tuple[Shape, int]],
    outputs: Sequence[str | tuple[str, int]],
    constants: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir_version: int = 9,
) -> onnx.ModelProto:
    """inputs and outputs are float32 unless given with a type: `{"i": ((2,), INT64)}`, `[("i", INT64)]`."""
    typed_inputs = {name: spec if _has_type(spec) else (spec, FLOAT) for name, spec in inputs.items()}
    typed_outputs = [(output, FLOAT) if isinstance(output, str) else output for output in outputs]
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, (shape, dtype) in typed_inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name, dtype in typed_outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


def typed_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, tuple[int, Shape]],
    outputs: Mapping[str, int],
    *,
    opset: int = 22,
    ir_version: int = 10,
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A model each of whose inputs and outputs has a type of its own; inputs with their shapes."""
    typed = {name: (shape, kind) for name, (kind, shape) in inputs.items()}
    return model_of(nodes, typed, [*outputs.items()], constants, opset=opset, ir_version=ir_version)


def saved(model: onnx.ModelProto, folder: Path, name: str = "small") -> Path:
    """Path of the model's file, written to the folder."""
    path = folder / f"{name}.onnx"
    onnx.save(model, path)
    return path


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 of a normal distribution, small enough that chains of layers stay near 1."""
    fan_in = max(int(np.prod(shape[1:])), 1)
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32)


def image_in_and_out() -> onnx.ModelProto:
    """NCHW in and out with several channels: transposes at both borders."""
    nodes = [
        NODE("Conv", ["x", "w1", "b1"], ["c1"], name="stem", pads=[1, 1, 1, 1], strides=[2, 1]),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("MaxPool", ["r1"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Conv", ["p1", "w2"], ["y"], name="head", kernel_shape=[1, 1]),
    ]
    constants = {"w1": weights(8, 3, 3, 3), "b1": weights(8), "w2": weights(5, 8, 1, 1)}
    return model_of(nodes, {"x": (1, 3, 12, 10)}, ["y"], constants)


def two_inputs_two_outputs() -> onnx.ModelProto:
    nodes = [
        NODE("Add", ["left", "right"], ["sum"]),
        NODE("MatMul", ["sum", "w"], ["product"]),
        NODE("Sigmoid", ["left"], ["gate"]),
    ]
    return model_of(nodes, {"left": (2, 6), "right": (2, 6)}, ["product", "gate"], {"w": weights(6, 4)})


def nasty_names() -> onnx.ModelProto:
    """Names that are no C identifiers, that are C keywords, that end a comment, and that collide once made legal."""
    nodes = [
        NODE("Relu", ["in:0 */ ??/"], ["a.b"], name="while"),
        NODE("Abs", ["in 0"], ["a_b"], name='"; #error'),
        NODE("Add", ["a.b", "a_b"], ["run"], name="日本 語"),
        NODE("Neg", ["run"], ["out/1"], name="bytes"),
    ]
    return model_of(nodes, {"in:0 */ ??/": (1, 5), "in 0": (1, 5)}, ["run", "out/1"])


def unused_input() -> onnx.ModelProto:
    nodes = [NODE("Relu", ["x"], ["y"])]
    return model_of(nodes, {"ignored": (3,), "x": (1, 4)}, ["y"])


def output_that_is_an_input() -> onnx.ModelProto:
    return model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["x", "y"])


def output_that_is_constant() -> onnx.ModelProto:
    return model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["table", "y"], {"table": weights(2)})


def nothing_to_compute() -> onnx.ModelProto:
    return model_of([NODE("Identity", ["x"], ["y"])], {"x": (1, 4)}, ["y"])


def one_value_under_two_names() -> onnx.ModelProto:
    nodes = [NODE("Relu", ["x"], ["y"]), NODE("Identity", ["y"], ["z"])]
    return model_of(nodes, {"x": (1, 4)}, ["y", "z"])


def reshape_only() -> onnx.ModelProto:
    nodes = [NODE("Reshape", ["x", "shape"], ["y"])]
    return model_of(nodes, {"x": (2, 3, 4)}, ["y"], {"shape": np.array([6, 4])})


def value_that_is_output_and_read_on() -> onnx.ModelProto:
    nodes = [
        NODE("Conv", ["x", "w"], ["middle"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["middle"], ["r"]),
        NODE("GlobalAveragePool", ["r"], ["p"]),
        NODE("Flatten", ["p"], ["y"]),
    ]
    return model_of(nodes, {"x": (1, 2, 6, 6)}, ["middle", "y"], {"w": weights(4, 2, 3, 3)})


def moves_data() -> onnx.ModelProto:
    """Operators without a kernel of their own that only move elements."""
    nodes = [
        NODE("Split", ["x", "parts"], ["s0", "s1"], axis=1),
        NODE("Concat", ["s1", "s0"], ["c"], axis=1),
        NODE("Pad", ["c", "pads", "fill"], ["p"]),
        NODE("Slice", ["p", "starts", "ends", "axes", "steps"], ["sl"]),
        NODE("Transpose", ["sl"], ["t"], perm=[0, 2, 3, 1]),
        NODE("Resize", ["c", "", "scales"], ["big"], mode="nearest", nearest_mode="floor",
             coordinate_transformation_mode="asymmetric"),
    ]  # fmt: skip
    constants = {
        "parts": np.array([1, 3]),
        "pads": np.array([0, 0, 1, 2, 0, 0, 0, 1]),
        "fill": np.float32(0.5),
        "starts": np.array([0, 1]),
        "ends": np.array([100, 100]),
        "axes": np.array([2, 3]),
        "steps": np.array([1, 2]),
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    return model_of(nodes, {"x": (1, 4, 5, 6)}, ["t", "big"], constants)


def reduces_and_normalises() -> onnx.ModelProto:
    nodes = [
        NODE("ReduceMean", ["x"], ["m"], axes=[2], keepdims=1),
        NODE("Sub", ["x", "m"], ["d"]),
        NODE("Pow", ["d", "two"], ["q"]),
        NODE("ReduceSum", ["q", "axis"], ["s"], keepdims=1),
        NODE("Sqrt", ["s"], ["root"]),
        NODE("Div", ["d", "root"], ["n"]),
        NODE("LayerNormalization", ["n", "gamma", "beta"], ["l"], axis=-1),
        NODE("Softmax", ["l"], ["y"], axis=1),
    ]
    constants = {"two": np.float32(2), "axis": np.array([2]), "gamma": weights(8, seed=1), "beta": weights(8, seed=2)}
    return model_of(nodes, {"x": (1, 5, 8)}, ["y"], constants)


def gathers() -> onnx.ModelProto:
    """int64 input: rows of a table, then a dense layer."""
    nodes = [
        NODE("Gather", ["table", "rows"], ["g"]),
        NODE("Gemm", ["g", "w", "b"], ["y"], transB=1),
    ]
    constants = {"table": weights(4, 6), "w": weights(3, 6, seed=1), "b": weights(3, seed=2)}
    return model_of(nodes, {"rows": ((5,), INT64)}, ["y"], constants)


def branches() -> onnx.ModelProto:
    """Residual block, depthwise convolution, concatenated branches, a dense head."""
    nodes = [
        NODE("Conv", ["x", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["c0"], ["r0"]),
        NODE("Conv", ["r0", "w1"], ["c1"], pads=[1, 1, 1, 1], group=6),
        NODE("Add", ["c1", "r0"], ["a"]),
        NODE("Relu", ["a"], ["r1"]),
        NODE("Conv", ["r1", "w2"], ["left"]),
        NODE("AveragePool", ["r1"], ["pool"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        NODE("Concat", ["left", "pool"], ["cat"], axis=1),
        NODE("GlobalAveragePool", ["cat"], ["gap"]),
        NODE("Flatten", ["gap"], ["flat"]),
        NODE("Gemm", ["flat", "w3", "b3"], ["logits"], transB=1),
        NODE("Softmax", ["logits"], ["probabilities"]),
    ]
    constants = {
        "w0": weights(6, 2, 3, 3), "b0": weights(6), "w1": weights(6, 1, 3, 3, seed=1),
        "w2": weights(4, 6, 1, 1, seed=2), "w3": weights(3, 10, seed=3), "b3": weights(3, seed=4),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 2, 8, 8)}, ["probabilities"], constants)


def pads_apart() -> onnx.ModelProto:
    """Zeros around an image in a Pad of its own, as converters write it; another one that pads with ones."""
    nodes = [
        NODE("Pad", ["x", "zeros"], ["p"]),
        NODE("Conv", ["p", "w0"], ["c"], strides=[2, 2]),
        NODE("Pad", ["c", "ones", "one"], ["q"]),
        NODE("Conv", ["q", "w1"], ["y"]),
    ]
    constants = {
        "zeros": np.array([0, 0, 0, 1, 0, 0, 1, 1]), "ones": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "one": np.float32(1), "w0": weights(6, 2, 3, 3), "w1": weights(3, 6, 3, 3, seed=1),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 2, 8, 8)}, ["y"], constants)


def transposed_convolutions() -> onnx.ModelProto:
    """Upsampling as decoders do it: twice as large, with a row more; one with groups, one with holes in its window."""
    nodes = [
        NODE("ConvTranspose", ["x", "w0", "b0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
        NODE("Relu", ["c0"], ["r0"]),
        NODE("ConvTranspose", ["r0", "w1"], ["c1"], group=2),
        NODE("ConvTranspose", ["c1", "w2"], ["y"], dilations=[2, 2]),
    ]
    constants = {
        "w0": weights(4, 6, 3, 3), "b0": weights(6), "w1": weights(6, 2, 2, 2, seed=1),
        "w2": weights(4, 3, 2, 2, seed=2),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 4, 5, 4)}, ["y"], constants)


def symbolic_batch() -> onnx.ModelProto:
    nodes = [NODE("MatMul", ["x", "w"], ["p"]), NODE("Relu", ["p"], ["y"])]
    return model_of(nodes, {"x": ("batch", 6)}, ["y"], {"w": weights(6, 4)})


def pixel_and_vector() -> onnx.ModelProto:
    """A 1x1 convolution of 25 pixels, of which groups of three leave one over, and a dense layer of 64 channels."""
    nodes = [
        NODE("Conv", ["x", "w0", "b0"], ["c0"]),
        NODE("Relu", ["c0"], ["r0"]),
        NODE("GlobalAveragePool", ["r0"], ["gap"]),
        NODE("Flatten", ["gap"], ["flat"]),
        NODE("Gemm", ["flat", "w1", "b1"], ["logits"], transB=1),
    ]
    constants = {
        "w0": weights(64, 64, 1, 1), "b0": weights(64, seed=1), "w1": weights(64, 64, seed=2), "b1": weights(64, seed=3)
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 64, 5, 5)}, ["logits"], constants)


SMALL_MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    function.__name__: function
    for function in (
        branches, gathers, image_in_and_out, moves_data, nasty_names, nothing_to_compute, one_value_under_two_names,
        output_that_is_an_input, output_that_is_constant, pads_apart, reduces_and_normalises, reshape_only,
        transposed_convolutions, two_inputs_two_outputs, unused_input, value_that_is_output_and_read_on,
    )
}  # fmt: skip


def _has_type(spec: Shape | tuple[Shape, int]) -> bool:
    return len(spec) == 2 and isinstance(spec[0], tuple | list)
