"""ONNX files that parse and that the standard, or onnxruntime, does not allow: refused with what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models.onnx_models import model_of, write
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends.load import load

NODE = helper.make_node
RANDOM = np.random.default_rng(0)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def conv(**attributes: object) -> onnx.ModelProto:
    given = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "group": 2} | attributes
    node = NODE("Conv", ["x", "w"], ["y"], **given)
    return model_of([node], {"x": (1, 4, 8, 8)}, ["y"], constants={"w": weights(6, 2, 3, 3)})


def pool(kind: str = "MaxPool", **attributes: object) -> onnx.ModelProto:
    given = {"kernel_shape": [2, 2], "pads": [0, 0, 1, 1]} | attributes
    return model_of([NODE(kind, ["x"], ["y"], **given)], {"x": (1, 4, 8, 8)}, ["y"])


def unary(kind: str, *constants: np.ndarray, opset: int = 13, **attributes: object) -> onnx.ModelProto:
    named = {f"c{index}": array for index, array in enumerate(constants)}
    return model_of(
        [NODE(kind, ["x", *named], ["y"], **attributes)], {"x": (2, 3, 4)}, ["y"], constants=named, opset=opset
    )


def recurrent(kind: str, **attributes: object) -> onnx.ModelProto:
    gates = {"LSTM": 4, "GRU": 3}[kind]
    constants = {"w": weights(1, gates * 3, 2), "r": weights(1, gates * 3, 3)}
    given = {name: value for name, value in ({"hidden_size": 3} | attributes).items() if value is not None}
    node = NODE(kind, ["x", "w", "r"], ["y"], **given)
    return model_of([node], {"x": (4, 1, 2)}, ["y"], constants=constants, opset=14)


def dequantized(scale: np.ndarray, zero_point: np.ndarray | None = None, axis: int = 1) -> onnx.ModelProto:
    constants = {"w": np.ones((2, 3), np.int8), "s": scale} | ({} if zero_point is None else {"z": zero_point})
    nodes = [NODE("DequantizeLinear", list(constants), ["d"], axis=axis), NODE("Add", ["x", "d"], ["y"])]
    return model_of(nodes, {"x": (2, 3)}, ["y"], constants=constants)


def renamed_bytes() -> onnx.ModelProto:
    model = recurrent("LSTM", direction="forward")
    next(a for a in model.graph.node[0].attribute if a.name == "direction").s = b"\xff\xfe"
    return model


def wrong_output_type() -> onnx.ModelProto:
    return model_of([NODE("Relu", ["x"], ["y"])], {"x": (2, 3)}, [("y", TensorProto.INT64)])


def diagonal_beside_what_is_inferred_wrong(dtype: type[np.generic] = np.uint64) -> onnx.ModelProto:
    """ONNX's own inference is not asked about types of a model with such a node."""
    nodes = [
        NODE("MeanVarianceNormalization", ["x"], ["m"]),
        NODE("Trilu", ["m", "k"], ["t"]),
        NODE("Add", ["t", "a"], ["y"]),
    ]
    constants = {"k": np.array(1, dtype), "a": np.ones(4, np.float64)}
    return model_of(nodes, {"x": (2, 3, 4, 4)}, ["y"], constants=constants, opset=14)


def einsum(equation: str) -> onnx.ModelProto:
    return model_of([NODE("Einsum", ["x", "x"], ["y"], equation=equation)], {"x": (3, 3)}, ["y"])


INT64 = np.int64
MUTANTS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "kernel of 0": (lambda: conv(kernel_shape=[3, 0]), "kernel_shape"),
    "kernel below 0": (lambda: conv(kernel_shape=[-1, 3]), "kernel_shape"),
    "kernel of one number": (lambda: conv(kernel_shape=[3]), "kernel_shape"),
    "kernel that is not its weights'": (lambda: conv(kernel_shape=[5, 3]), "kernel_shape"),
    "strides of 0": (lambda: conv(strides=[0, 1]), "strides"),
    "strides below 0": (lambda: conv(strides=[-1, 1]), "strides"),
    "dilations of 0": (lambda: conv(dilations=[1, 0]), "dilations"),
    "three pads": (lambda: conv(pads=[1, 1, 1]), "pads"),
    "pads below 0": (lambda: conv(pads=[-2, 0, 0, 0]), "pads"),
    "group of 0": (lambda: conv(group=0), "group"),
    "group that does not divide": (lambda: conv(group=3), "channels|group"),
    "input channels": (lambda: conv(group=1), "channels"),
    "auto_pad": (lambda: conv(auto_pad="SOME"), "auto_pad"),
    "pool pads past its kernel": (lambda: pool(pads=[2, 0, 0, 0]), "pads"),
    "average pool strides": (lambda: pool("AveragePool", strides=[0, 0]), "strides"),
    "softmax axis": (lambda: unary("Softmax", axis=3), "axis"),
    "transpose order": (lambda: unary("Transpose", perm=[0, 0, 1]), "perm|Transpose"),
    "transpose axis": (lambda: unary("Transpose", perm=[0, 1, 3]), "perm|Transpose"),
    "gather axis": (lambda: unary("Gather", np.array([0], INT64), axis=5), "axis"),
    "gather index": (lambda: unary("Gather", np.array([7], INT64), axis=1), "index 7 lies outside"),
    "concat axis": (lambda: unary("Concat", weights(2, 3, 4), axis=4), "axis|Concat"),
    "unsqueeze axis": (lambda: unary("Unsqueeze", np.array([7], INT64)), "axis"),
    "sum axis": (lambda: unary("ReduceSum", np.array([-9], INT64)), "axis"),
    "cumsum axis": (lambda: unary("CumSum", np.array(7, INT64), opset=14), "axis 7 lies outside"),
    "split axis": (lambda: unary("Split", np.array([2], INT64), axis=-5), "axis"),
    "topk of rank 0": (lambda: unary("TopK", np.array(1, INT64)), "one-dimensional|TopK|K input"),
    "expand to uint8": (lambda: unary("Expand", np.array([2, 3, 4], np.uint8)), "(?i)type"),
    "matmul sizes": (lambda: unary("MatMul", weights(5, 2)), "(?i)dimensions"),
    "add of two types": (lambda: unary("Add", np.ones(4, np.float64)), "(?i)type"),
    "bool weights": (lambda: unary("MatMul", np.ones((4, 2), bool)), "(?i)type"),
    "mod": (lambda: unary("Mod", weights(4), fmod=5), "fmod is 5"),
    "lrn": (lambda: pool("LRN", kernel_shape=None, pads=None, size=0), "size is 0"),
    "blocks of 0": (lambda: pool("SpaceToDepth", kernel_shape=None, pads=None, blocksize=0), "(?i)block"),
    "hidden size missing": (lambda: recurrent("GRU", hidden_size=None), "hidden_size is None"),
    "hidden size below 0": (lambda: recurrent("LSTM", hidden_size=-2), "hidden_size"),
    "hidden size of other weights": (lambda: recurrent("LSTM", hidden_size=5), "W has shape"),
    "linear before reset": (lambda: recurrent("GRU", linear_before_reset=-(2**63) + 1), "linear_before_reset"),
    "text that is no text": (renamed_bytes, "UTF-8"),
    "direction": (lambda: recurrent("LSTM", direction="up"), "direction is 'up'"),
    "scale of 0": (lambda: dequantized(np.float32(0)), "scale of 0"),
    "scale below 0": (lambda: dequantized(np.float32(-1)), "scale of -1"),
    "scale that is no number": (lambda: dequantized(np.array([1, np.nan, 1], np.float32)), "scale of nan"),
    "infinite scale": (lambda: dequantized(np.float32(np.inf)), "scale of inf"),
    "scales that do not fit": (lambda: dequantized(np.ones(4, np.float32)), "4 scales for axis 1"),
    "axis of scales": (lambda: dequantized(np.ones(3, np.float32), axis=5), "axis 5"),
    "zero points": (lambda: dequantized(np.ones(3, np.float32), np.zeros(2, np.int8)), "3 scales and 2 zero points"),
    "zero point of another type": (lambda: dequantized(np.float32(1), np.uint8(3)), "(?i)type"),
    "norm of order 3": (lambda: unary("LpNormalization", p=3), "p is 3"),
    "axes to reverse along": (
        lambda: unary("ReverseSequence", np.array([1, 2], INT64), batch_axis=2, time_axis=0),
        "batch_axis and time_axis",
    ),
    "diagonal of another type": (diagonal_beside_what_is_inferred_wrong, "'k' is tensor.uint64., which its k"),
    "two types beside it": (lambda: diagonal_beside_what_is_inferred_wrong(np.int64), "both have one type"),
    **{
        f"equation {text!r}": (
            lambda text=text: einsum(text),
            "one '...' in a",
        )
        for text in ("ij,jk\t", "..ij,jk", "ij,jk-", "ij,jk. ", "ij,jk\0")
    },
    # ONNX's inference crashes on these.
    "axis beyond any tensor": (
        lambda: unary("LayerNormalization", weights(4), opset=17, axis=2**63 - 1),
        "axis = 9223372036854775807: no tensor has so many axes",
    ),
    "batches below 0": (lambda: unary("GatherND", np.zeros((2, 3, 1), INT64), batch_dims=-1000), "batch_dims = -1000"),
    "type of the output": (wrong_output_type, "(?i)type"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_refused(name: str, tmp_path: Path) -> None:
    make, words = MUTANTS[name]
    model = make()
    for node in model.graph.node:  # attributes given as None are left out
        kept = [a for a in node.attribute if a.type != onnx.AttributeProto.UNDEFINED]
        del node.attribute[:]
        node.attribute.extend(kept)
    with pytest.raises(BadModel, match=words):
        load(write(tmp_path, model.SerializeToString()))


@pytest.mark.parametrize(
    "make",
    [
        conv,
        lambda: conv(kernel_shape=[3, 3], strides=[3, 2], dilations=[2, 1]),
        pool,
        lambda: einsum(" ij, jk -> ki "),
        lambda: einsum("...ij,...jk"),
        lambda: unary("Softmax", axis=-3),
        lambda: unary("Gather", np.array([-3, 2], INT64), axis=1),
        lambda: recurrent("LSTM"),
        lambda: recurrent("GRU", linear_before_reset=1),
        lambda: dequantized(np.ones(3, np.float32), np.zeros(3, np.int8)),
        lambda: dequantized(np.float32(0.5), np.int8(3)),
    ],
)
def test_their_neighbours_load(make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    """Models that the mutants above were made from, and unusual ones that are right."""
    load(write(tmp_path, make().SerializeToString()))


def test_stale_shapes_do_not_matter(tmp_path: Path) -> None:
    """onnxruntime warns of shapes in the file that are not those of the graph, and goes on."""
    model = pool()
    model.graph.output[0].type.tensor_type.shape.CopyFrom(
        onnx.TensorShapeProto(dim=[onnx.TensorShapeProto.Dimension(dim_value=77)])
    )
    model.graph.value_info.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, (5, 5)))
    load(write(tmp_path, model.SerializeToString()))


def test_data_of_another_length(tmp_path: Path) -> None:
    model = conv()
    tensor = model.graph.initializer[0]
    tensor.CopyFrom(numpy_helper.from_array(weights(6, 2, 3, 3), "w"))
    tensor.raw_data += b"\0"
    with pytest.raises(BadModel, match="w"):
        load(write(tmp_path, model.SerializeToString()))


def test_attributes_refer_to_others_in_functions_only(tmp_path: Path) -> None:
    model = model_of([NODE("Softmax", ["x"], ["y"], axis=1)], {"x": (1, 4)}, ["y"])
    model.graph.node[0].attribute[0].ref_attr_name = "axis"
    with pytest.raises(BadModel, match="attribute 'axis' refers to another"):
        load(write(tmp_path, model.SerializeToString()))


def test_an_equation_is_written_where_it_stands(tmp_path: Path) -> None:
    """ONNX's inference does not end for odd ones, and a call of a function may bring anything."""
    node = NODE("Einsum", ["a", "a"], ["b"], name="product")
    node.attribute.append(onnx.AttributeProto(name="equation", ref_attr_name="how", type=onnx.AttributeProto.STRING))
    product = helper.make_function("own", "Product", ["a"], ["b"], [node], [helper.make_opsetid("", 18)], ["how"])
    model = model_of([NODE("Product", ["x"], ["y"], domain="own", how="ij,jk\t")], {"x": (3, 3)}, ["y"], opset=18)
    model.functions.append(product)
    model.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(UnsupportedModel, match=r"node product \(Einsum\): equation is an attribute"):
        load(write(tmp_path, model.SerializeToString()))


def test_names_are_text(tmp_path: Path) -> None:
    """One letter of a name is made a byte that no text has."""
    model = model_of([NODE("Relu", ["x"], ["y"], name="relu_name")], {"x": (1, 4)}, ["y"])
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString().replace(b"relu_name", b"relu_\xffame"))
    with pytest.raises(BadModel, match="no UTF-8 text"):
        load(path)
