"""Operators that loading itself brings into shape: older opsets, function bodies, constant conditions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relay_passes.dataflow import bindings, op_name
from tests.models.agree import agree, names, run, spans
from tests.models.onnx_models import model_of, saved
from tvm_ext.frontends.load import ModelNotice, load
from tvm_ext.frontends.onnx.control_flow import CONTROL_FLOW
from tvm_ext.frontends.onnx.operators import converters
from tvm_ext.frontends.onnx.refusals import refusal
from tvm_ext.frontends.onnx.sequences import SEQUENCE_OPERATORS
from tvm_ext.verification.reference_runtimes.onnxruntime_runtime import onnx_outputs

NODE = helper.make_node


@pytest.mark.parametrize("opset", [7, 8, 9])
def test_oldest_opsets(tmp_path: Path, image: np.ndarray, opset: int) -> None:
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        NODE("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["bn"]),
        NODE("MaxPool", ["bn"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Slice", ["p"], ["sl"], starts=[1], ends=[3], axes=[2]),
        NODE("Dropout", ["sl"], ["d"], ratio=0.5),
        NODE("Pad", ["d"], ["pad"], pads=[0, 0, 1, 1, 0, 0, 0, 1], value=0.5),
        NODE("Clip", ["pad"], ["clip"], min=0.0, max=6.0),
        NODE("Unsqueeze", ["clip"], ["u"], axes=[0]),
        NODE("Squeeze", ["u"], ["q"], axes=[0]),
        NODE("ReduceMean", ["q"], ["m"], axes=[2], keepdims=1),
        NODE("Add", ["q", "m"], ["s"]),
        NODE("Flatten", ["s"], ["f"]),
        NODE("Softmax", ["f"], ["y"]),
        NODE("TopK", ["f"], ["top", "index"], k=3),
        NODE("Split", ["f"], ["s1", "s2"], axis=1, split=[10, 62]),
    ]
    random = np.random.default_rng(1)
    constants = {
        "w": random.normal(size=(4, 3, 3, 3)).astype("float32"),
        **{name: random.uniform(0.5, 2, 4).astype("float32") for name in ("scale", "bias", "mean", "var")},
    }
    results = ["y", "top", ("index", TensorProto.INT64), "s1", "s2"]
    model = model_of(nodes, {"x": (1, 3, 8, 8)}, results, constants=constants, opset=opset)
    agree(saved(model, tmp_path), {"x": image})


@pytest.mark.parametrize("opset", [7, 9, 10])
def test_older_forms_of_resize(tmp_path: Path, image: np.ndarray, opset: int) -> None:
    scales = np.array([1, 1, 2, 3], "float32")
    node = {
        7: NODE("Upsample", ["x"], ["y"], scales=scales.tolist(), mode="nearest"),
        9: NODE("Upsample", ["x", "s"], ["y"], mode="linear"),
        10: NODE("Resize", ["x", "s"], ["y"], mode="nearest"),
    }[opset]
    constants = {} if opset == 7 else {"s": scales}
    model = model_of([node], {"x": (1, 3, 8, 8)}, ["y"], constants=constants, opset=opset)
    agree(saved(model, tmp_path), {"x": image})


def test_standard_function_bodies_are_expanded(tmp_path: Path, image: np.ndarray) -> None:
    nodes = [NODE("Celu", ["x"], ["y"], alpha=1.5, name="celu"), NODE("Swish", ["y"], ["z"], name="swish")]
    mod = agree(saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["y", "z"], opset=24), tmp_path), {"x": image})
    assert {*spans(mod)} == {"celu", "swish"}
    assert {"y", "z"} <= {*names(mod)}


def test_attention_of_the_standard_is_not_microsofts(tmp_path: Path) -> None:
    """Its body depends on the types of its inputs."""
    query = np.random.default_rng(0).normal(size=(1, 2, 4, 8)).astype("float32")
    inputs = {name: query.shape for name in "qkv"}
    model = model_of([NODE("Attention", ["q", "k", "v"], ["y"])], inputs, ["y"], opset=23)
    agree(saved(model, tmp_path), dict.fromkeys("qkv", query))


def test_functions_of_the_model_are_inlined(tmp_path: Path, x: np.ndarray) -> None:
    leaky = NODE("LeakyRelu", ["t"], ["o"], name="leaky")
    reference = leaky.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    body = [NODE("Mul", ["a", "b"], ["t"]), leaky]
    function = helper.make_function("own", "Scaled", ["a", "b"], ["o"], body, [helper.make_opsetid("", 13)], ["slope"])
    nodes = [
        NODE("Scaled", ["x", "x"], ["y"], domain="own", slope=0.3, name="first"),
        NODE("Scaled", ["y", "x"], ["z"], domain="own", slope=-0.3),
    ]
    model = model_of(nodes, {"x": (1, 4)}, ["z"], functions=[function], domains=["own"])
    mod = agree(saved(model, tmp_path), {"x": x})
    assert names(mod) == ["y.1", "y", "z.1", "z"]
    assert spans(mod) == ["first/Mul_0", "first/leaky", "Scaled_1/Mul_0", "Scaled_1/leaky"]


def test_deformed_windows_read_nothing_outside(tmp_path: Path) -> None:
    """Bilinear shares of rows and columns just outside of the image count as zeros, on every side."""
    offsets = np.array([-1.5, -0.5, 0.25, 0.75, 1.5, 2.25], "float32")
    places = np.stack(np.meshgrid(offsets, offsets, indexing="ij")).reshape(1, 2, 6, 6)
    x = np.random.default_rng(0).uniform(1, 2, (1, 1, 6, 6)).astype("float32")
    constants = {"w": np.ones((1, 1, 1, 1), "float32")}
    model = model_of(
        [NODE("DeformConv", ["x", "w", "o"], ["y"])], {"x": x.shape, "o": places.shape}, ["y"],
        constants=constants, opset=19,
    )  # fmt: skip
    agree(saved(model, tmp_path), {"x": x, "o": places})


@pytest.mark.parametrize("taken", [True, False])
def test_if_with_a_constant_condition(tmp_path: Path, x: np.ndarray, taken: bool) -> None:
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, (1, 4))
    branches = {
        "then_branch": helper.make_graph([NODE("Relu", ["x"], ["r"])], "then", [], [result]),
        "else_branch": helper.make_graph([NODE("Neg", ["x"], ["r"])], "else", [], [result]),
    }
    model = model_of([NODE("If", ["c"], ["y"], **branches)], {"x": (1, 4)}, ["y"], constants={"c": np.array(taken)})
    mod = agree(saved(model, tmp_path), {"x": x})
    assert bindings(mod["main"])[0].value.op.name == ("relax.nn.relu" if taken else "relax.negative")


def test_relu6_is_one_clip(tmp_path: Path, x: np.ndarray) -> None:
    constants = {"low": np.array(0, "float32"), "high": np.array(0.5, "float32")}
    model = model_of([NODE("Clip", ["x", "low", "high"], ["y"])], {"x": (1, 4)}, ["y"], constants=constants)
    mod = agree(saved(model, tmp_path), {"x": x})
    assert [binding.value.op.name for binding in bindings(mod["main"])] == ["relax.clip"]


def test_inputs_without_elements_are_left_out(tmp_path: Path, x: np.ndarray) -> None:
    """Opset 18's way to say `all axes` at run time: an operand of no numbers."""
    node = NODE("ReduceSum", ["x", "axes"], ["y"], keepdims=1)
    model = model_of([node], {"x": (1, 4)}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [0]))
    path = saved(model, tmp_path)
    with pytest.warns(ModelNotice, match="left out: axes"):
        mod = load(path)
    assert [param.name for param in mod["main"].params] == ["x"]
    (expected,) = onnx_outputs(model, [{"x": x}])
    np.testing.assert_allclose(run(mod, [x])[0], expected["y"], rtol=1e-6)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 3, 2, 3, 4)])
def test_grids_of_an_affine_map(tmp_path: Path, size: tuple[int, ...], align_corners: int) -> None:
    rank = len(size) - 2
    theta = np.random.default_rng(0).normal(size=(2, rank, rank + 1)).astype("float32")
    node = NODE("AffineGrid", ["theta", "size"], ["y"], align_corners=align_corners)
    model = model_of([node], {"theta": theta.shape}, ["y"], constants={"size": np.array(size)}, opset=20)
    agree(saved(model, tmp_path), {"theta": theta})


def test_diagonals_and_unpooled_places(tmp_path: Path, image: np.ndarray) -> None:
    nodes = [
        NODE("EyeLike", ["m"], ["eye"], k=1), NODE("EyeLike", ["m"], ["whole"], k=-1, dtype=TensorProto.INT32),
        NODE("MaxPool", ["x"], ["p", "at"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
        NODE("MaxUnpool", ["p", "at"], ["y"], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 0, 0]),
    ]  # fmt: skip
    outputs = ["eye", ("whole", TensorProto.INT32), "y"]
    model = model_of(nodes, {"x": image.shape, "m": (3, 5)}, outputs, opset=13)
    agree(saved(model, tmp_path), {"x": image, "m": np.zeros((3, 5), "float32")})


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad_becomes_padding_of_the_operators(tmp_path: Path, mode: str) -> None:
    """No padded tensor is stored, and pools stay pools, which have integer kernels."""
    windows = {"auto_pad": mode, "strides": [2, 2]}
    nodes = [
        NODE("Conv", ["x", "w"], ["c"], auto_pad=mode, strides=[1, 2]),
        NODE("MaxPool", ["c"], ["m"], kernel_shape=[3, 3], ceil_mode=1, **windows),
        NODE("AveragePool", ["c"], ["a"], kernel_shape=[3, 4], **windows),
        NODE("AveragePool", ["c"], ["counted"], kernel_shape=[2, 4], count_include_pad=1, **windows),
    ]
    random = np.random.default_rng(2)
    weights = {"w": random.normal(size=(4, 3, 3, 2)).astype("float32")}
    model = model_of(nodes, {"x": (1, 3, 13, 16)}, ["m", "a", "counted"], constants=weights)
    mod = agree(saved(model, tmp_path), {"x": random.normal(size=(1, 3, 13, 16)).astype("float32")})
    assert [op_name(binding.value) for binding in bindings(mod["main"])] == [
        "relax.nn.conv2d", "relax.nn.max_pool2d", "relax.nn.avg_pool2d", "relax.nn.avg_pool2d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("equation", "first", "second"),
    [
        ("bihd,bjhd->bhij", (1, 5, 2, 3), (1, 6, 2, 3)),
        (" ...ij, ...jk ", (2, 5, 4), (2, 4, 3)),
        ("ii,ij->ij", (4, 4), (4, 3)),
        ("ij,ij->", (4, 3), (4, 3)),
        ("bij,jk->bik", (1, 5, 1), (4, 3)),
    ],
    ids=["heads", "result that is not written", "diagonal", "number", "broadcast"],
)
def test_einsums(tmp_path: Path, equation: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    model = model_of([NODE("Einsum", ["a", "b"], ["y"], equation=equation)], {"a": first, "b": second}, ["y"])
    random = np.random.default_rng(9)
    agree(saved(model, tmp_path), {n: random.normal(size=s).astype("f4") for n, s in {"a": first, "b": second}.items()})


# Data decide what these return: an image file, and a matrix of five numbers, which is folded where they are constants.
UNDEFINED = {"ImageDecoder", "MelWeightMatrix"}


def test_every_operator_of_the_standard_is_computed_or_refused_with_a_reason() -> None:
    """All operator sets that the installed ONNX knows, the newest versions of all operators."""
    own = {name for domain, name in converters() if domain == ""} | {*CONTROL_FLOW} | SEQUENCE_OPERATORS
    unknown = set()
    for schema in onnx.defs.get_all_schemas():
        by_definition = schema.has_function or schema.has_context_dependent_function
        is_refused = refusal(onnx.NodeProto(op_type=schema.name)) is not None
        if schema.domain == "" and not (schema.name in own or by_definition or is_refused):
            unknown.add(schema.name)
    assert unknown == UNDEFINED
