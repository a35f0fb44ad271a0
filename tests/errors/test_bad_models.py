"""Model files that cannot be read or compiled, each with an error that says what, where, and the way out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime import InferenceSession
from tvm import relax
from tvm.relax.frontend.onnx.onnx_frontend import OnnxOpConverter

from tests.models.onnx_models import model_of, relu_model, saved, write
from tvm_ext.core.errors import BadModel, BadOptions, UnsupportedModel
from tvm_ext.frontends.load import load
from tvm_ext.frontends.onnx import known_operators
from tvm_ext.verification.reference_runtimes.ask import run_module

NODE = helper.make_node
WEIGHTS = np.ones((1, 4), "float32")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="no such file"):
        load(tmp_path / "model.onnx")


def test_directory(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").mkdir()
    with pytest.raises(BadModel, match="is a folder"):
        load(tmp_path / "model.onnx")


def test_unknown_suffix(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"known by their suffix.*\.onnx"):
        load(write(tmp_path, b"x", "model.pb"))


def test_empty_file(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="is empty"):
        load(write(tmp_path, b""))


def test_file_over_two_gigabytes(tmp_path: Path) -> None:
    path = write(tmp_path, b"")
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(BadModel, match="2147483648 B is more than"):
        load(path)


@pytest.mark.parametrize("data", [b"not a model at all", b"\x00" * 100, b"\x7fELF" + bytes(60)])
def test_not_onnx(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(BadModel, match="not an ONNX"):
        load(write(tmp_path, data))


def test_protobuf_of_another_kind(tmp_path: Path) -> None:
    """It parses: every field is unknown, or means something else."""
    other = helper.make_tensor("t", TensorProto.FLOAT, [2], [1, 2]).SerializeToString()
    with pytest.raises(BadModel):
        load(write(tmp_path, other))
    with pytest.raises(BadModel, match="no graph"):
        load(write(tmp_path, onnx.ModelProto(producer_name="someone").SerializeToString()))


def test_truncated_anywhere(tmp_path: Path) -> None:
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], constants={"w": WEIGHTS})
    data = model.SerializeToString()
    for length in range(1, len(data)):
        with pytest.raises(BadModel):
            load(write(tmp_path, data[:length]))


def test_checker_refuses(tmp_path: Path) -> None:
    model = model_of([NODE("Relu", ["nowhere"], ["y"])], {"x": (1, 4)}, ["y"])
    with pytest.raises(BadModel, match=r"checker refuses it.*nowhere"):
        load(write(tmp_path, model.SerializeToString()))


def test_operator_that_onnx_does_not_have(tmp_path: Path) -> None:
    """Its node has no domain: it is named like nodes of other domains, not in the words of ONNX's checker."""
    model = model_of([NODE("RequantShift", ["x"], ["y"], div=2)], {"x": (1, 4)}, ["y"])
    with pytest.raises(UnsupportedModel, match=r"RequantShift, once .*CustomOperator.*'ai\.onnx\.RequantShift'"):
        load(saved(model, tmp_path))
    model.graph.node.append(NODE("Relu", ["nowhere"], ["z"]))
    with pytest.raises(BadModel, match=r"checker refuses it.*nowhere"):
        load(saved(model, tmp_path))


def test_operator_of_a_newer_opset(tmp_path: Path) -> None:
    """onnxruntime's optimizer writes LayerNormalization, which ONNX has from opset 17 on, beside opset 12."""
    scale = np.linspace(0.5, 2, 4, dtype="float32")
    model = model_of([NODE("LayerNormalization", ["x", "s"], ["y"])], {"x": (3, 4)}, ["y"], constants={"s": scale})
    model.opset_import[0].version = 12
    path = saved(model, tmp_path)
    mod, given = load(path), np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
    (found,) = run_module(mod, [{"x": given}])
    (wanted,) = InferenceSession(path).run(None, {"x": given})
    np.testing.assert_allclose(found["y"], wanted, atol=1e-6)


def test_open_shape_that_does_not_fit_as_one(tmp_path: Path) -> None:
    """The extents of the model's constants are tried, and the message gives the one that fits."""
    weights = np.ones((14, 3), "float32")
    model = model_of([NODE("MatMul", ["x", "w"], ["y"])], {"x": (14,)}, ["y"], constants={"w": weights})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch_size"
    with pytest.raises(BadModel, match=r"leaves the shape of 'x' open; it fits with --shape x=14\.") as error:
        load(saved(model, tmp_path))
    assert "types or shapes do not fit together at MatMul " in str(error.value)
    assert load(saved(model, tmp_path), shapes={"x": (14,)})


def test_weights_of_the_wrong_size(tmp_path: Path) -> None:
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], constants={"w": WEIGHTS})
    model.graph.initializer[0].raw_data = b"\0" * 12
    with pytest.raises(BadModel, match="w"):
        load(write(tmp_path, model.SerializeToString()))


def test_opset_too_old(tmp_path: Path) -> None:
    model = relu_model()
    model.opset_import[0].version = 5
    with pytest.raises(UnsupportedModel, match="opset 5; 6 and up"):
        load(saved(model, tmp_path))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"xx": [1, 4]}, r"no input 'xx'\. Did you mean 'x'\?"),
        ({"x": [1, 4, 1]}, "rank 3"),
        ({"x": [1, 5]}, r"contradicts the model's \[batch, 4\]"),
        ({"x": [0, 4]}, "whole numbers of at least 1"),
        ({"x": [1.0, 4]}, "whole numbers of at least 1"),
        ({"x": [2, 4], "z": [3, 4]}, "same value in all inputs"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path: Path, shapes: dict[str, list[int]], message: str) -> None:
    model = model_of([NODE("Add", ["x", "z"], ["y"])], {"x": ("batch", 4), "z": ("batch", 4)}, ["y"])
    with pytest.raises(BadOptions, match=message):
        load(saved(model, tmp_path), shapes=shapes)


def test_input_without_rank(tmp_path: Path) -> None:
    path = saved(relu_model(None), tmp_path)
    with pytest.raises(BadOptions, match="'x' has no rank"):
        load(path)
    load(path, shapes={"x": [2, 2]})


def test_every_unsupported_operator_is_listed(tmp_path: Path) -> None:
    """In one error: what no converter knows, what depends on data, strings, loops; also behind each other."""
    flag = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    count = helper.make_tensor_value_info("i", TensorProto.INT64, [])
    kept = helper.make_tensor_value_info("c2", TensorProto.BOOL, [])
    scan = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    body = helper.make_graph([NODE("Identity", ["c"], ["c2"])], "body", [count, flag], [kept, scan])
    nodes = [
        NODE("NonZero", ["x"], ["places"], name="find"),
        NODE("Cast", ["places"], ["real"], to=TensorProto.FLOAT),
        NODE("Warp", ["real"], ["w1"], domain="com.example"),
        NODE("Warp", ["w1"], ["w2"], domain="com.example", name="second"),
        NODE("StringNormalizer", ["words"], ["words2"]),
        NODE("SequenceConstruct", ["x"], ["list"]),
        NODE("Cast", ["x"], ["n"], to=TensorProto.INT64),
        NODE("Loop", ["n", "yes"], ["scanned"], body=body, name="loop"),
        NODE("RandomNormal", [], ["noise"], shape=[2]),
        NODE("Dropout", ["x", "", "yes"], ["dropped"]),
        NODE("SequenceAt", ["list", "n"], ["at"]),
    ]
    constants = {"words": np.array(["a"], object), "yes": np.array(True)}
    model = model_of(nodes, {"x": (1, 4)}, ["w2"], constants=constants, domains=["com.example"])
    with pytest.raises(UnsupportedModel) as raised:
        load(saved(model, tmp_path))
    message = str(raised.value)
    for line in [
        "ai.onnx.NonZero, once (find): the shape of its output depends on data",
        "com.example.Warp, 2 times (Warp_2, second): there is neither a converter",
        "ai.onnx.StringNormalizer, once (StringNormalizer_4): strings",
        "ai.onnx.SequenceAt, once (SequenceAt_10): the position or length that it takes depends on data",
        "ai.onnx.Loop, once (loop): control flow",
        "ai.onnx.RandomNormal, once (RandomNormal_8): its result is random",
        "ai.onnx.Dropout, once (Dropout_9): it is in training mode",
        "initializer, once (words)",
    ]:
        assert line in message


def test_condition_that_depends_on_data(tmp_path: Path) -> None:
    """No result can be chosen of two shapes; nor is there an input to bind: x is what the model is for."""
    result = helper.make_tensor_value_info("r", TensorProto.FLOAT, None)
    branch = helper.make_graph([NODE("Relu", ["x"], ["r"])], "branch", [], [result])
    other = helper.make_graph([NODE("ReduceSum", ["x"], ["r"], keepdims=0)], "other", [], [result])
    nodes = [
        NODE("ReduceMax", ["x"], ["m"], keepdims=0),
        NODE("Cast", ["m"], ["c"], to=TensorProto.BOOL),
        NODE("If", ["c"], ["y"], then_branch=branch, else_branch=other),
    ]
    said = r"ai\.onnx\.If, once \(If_2\): control flow that depends on data, which would give .* float32\[\]\n"
    with pytest.raises(UnsupportedModel, match=said):
        load(saved(model_of(nodes, {"x": (1, 4)}, ["y"]), tmp_path))


def test_shape_that_depends_on_data(tmp_path: Path) -> None:
    nodes = [NODE("Cast", ["x"], ["s"], to=TensorProto.INT64), NODE("Expand", ["w", "s"], ["y"], name="grow")]
    model = model_of(nodes, {"x": (2,)}, ["y"], constants={"w": np.ones((1, 1), "float32")})
    with pytest.raises(UnsupportedModel, match=r"ai\.onnx\.Expand, once \(grow\)"):
        load(saved(model, tmp_path))


def test_string_input(tmp_path: Path) -> None:
    model = relu_model()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    with pytest.raises(UnsupportedModel, match=r"graph input, once \(x\): its element type STRING"):
        load(saved(model, tmp_path))


def test_narrow_element_types(tmp_path: Path) -> None:
    model = model_of([NODE("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)], {"x": (1, 4)}, [], opset=19)
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT8E5M2, (1, 4)))
    with pytest.raises(UnsupportedModel, match=r"Cast_0\): its element type float8_e5m2"):
        load(saved(model, tmp_path))


def test_import_that_contradicts_the_standard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A converter that gives another shape than the standard says is found out before anything is computed."""

    class Halved(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb, inputs, attr, params):
            return relax.op.strided_slice(inputs[0], [0], [0], [1])

    monkeypatch.setattr(known_operators, "converters", lambda: {("", "Relu"): Halved})
    with pytest.raises(UnsupportedModel, match=r"\(Relu_0\): 'y' is .* here, float32\[2, 4\] in the file"):
        load(saved(relu_model((2, 4)), tmp_path))


def test_an_exception_of_a_converter_is_not_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says in its place what the operator was given."""

    class Failing(OnnxOpConverter):
        @classmethod
        def _impl_v1(cls, bb, inputs, attr, params):
            raise KeyError("secret")

    monkeypatch.setattr(known_operators, "converters", lambda: {("", "Gemm"): Failing})
    node = NODE("Gemm", ["x", "w", ""], ["y"], alpha=2.0)
    model = model_of([node], {"x": (2, 4)}, ["y"], constants={"w": np.ones((4, 3), "float32")})
    said = r"\(Gemm_0\): no converter takes it with float32\[2, 4\] not known before it runs, constant float32\[4, 3\]"
    with pytest.raises(UnsupportedModel, match=said + ", no input there, and alpha = 2.0\n") as raised:
        load(saved(model, tmp_path))
    assert "secret" not in str(raised.value) and "KeyError" not in str(raised.value)


def test_a_random_draw_is_no_constant(tmp_path: Path) -> None:
    """All that the operators take is known, and onnxruntime would give numbers: others at each time."""
    constants = {"c": np.ones((1, 4), "float32"), "half": np.array(0.5, "float32"), "yes": np.array(True)}
    for node in (NODE("Dropout", ["c", "half", "yes"], ["r"]), NODE("RandomUniformLike", ["c"], ["r"])):
        model = model_of([node, NODE("Add", ["x", "r"], ["y"])], {"x": (1, 4)}, ["y"], constants=constants)
        with pytest.raises(UnsupportedModel, match=r"it is in training mode|its result is random; draw it in the"):
            load(saved(model, tmp_path))
    constants["half"] = np.array(0.0, "float32")  # nothing is dropped
    nodes = [NODE("Dropout", ["c", "half", "yes"], ["r"]), NODE("Add", ["x", "r"], ["y"])]
    load(saved(model_of(nodes, {"x": (1, 4)}, ["y"], constants=constants), tmp_path))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (NODE("MaxUnpool", ["image", "at", "five"], ["y"], kernel_shape=[2, 2], strides=[2, 2]), "runtimes differ"),
        (NODE("MaxUnpool", ["image", "at", "n"], ["y"], kernel_shape=[2, 2], strides=[2, 2]), "shape of its output"),
        (NODE("AffineGrid", ["theta", "n"], ["y"]), r"shape of its output .*--bind s=VALUE"),
    ],
)
def test_grids_that_cannot_be_compiled(tmp_path: Path, node: onnx.NodeProto, message: str) -> None:
    shapes = {"image": (1, 1, 2, 2), "theta": (1, 2, 3)}
    constants = {"at": np.arange(4).reshape(1, 1, 2, 2), "five": np.array([1, 1, 5, 5])}
    model = model_of([NODE("Identity", ["s"], ["n"]), node], shapes, [], constants=constants, opset=20)
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, (4,)))
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedModel, match=message):
        load(saved(model, tmp_path))


def test_functions_that_multiply(tmp_path: Path) -> None:
    """Eight functions, each calling the next ten times, would be a hundred million nodes."""
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", "F8", ["a"], ["b"], [NODE("Relu", ["a"], ["b"])], opsets)]
    for level in range(8):
        steps = [NODE(f"F{level + 1}", ["a" if i == 0 else f"t{i}"], [f"t{i + 1}"], domain="own") for i in range(10)]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["t10"], steps, opsets))
    node = NODE("F0", ["x"], ["y"], domain="own")
    model = model_of([node], {"x": (1, 4)}, ["y"], functions=functions, domains=["own"])
    with pytest.raises(UnsupportedModel, match="more than"):
        load(saved(model, tmp_path))


def test_sequence_as_input(tmp_path: Path) -> None:
    model = relu_model()
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    model.graph.input.append(helper.make_value_info("list", helper.make_sequence_type_proto(tensor)))
    with pytest.raises(UnsupportedModel, match=r"graph input, once \(list\): it is a sequence"):
        load(saved(model, tmp_path))


def test_loop_that_never_ends(tmp_path: Path) -> None:
    index, goes_on, goes_on_too = (
        helper.make_tensor_value_info(name, dtype, [])
        for name, dtype in (("i", TensorProto.INT64), ("c", TensorProto.BOOL), ("c2", TensorProto.BOOL))
    )
    state, after = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("s", "s2"))
    nodes = [NODE("Identity", ["c"], ["c2"]), NODE("Relu", ["s"], ["s2"])]
    body = helper.make_graph(nodes, "body", [index, goes_on, state], [goes_on_too, after])
    node = NODE("Loop", ["", "yes", "x"], ["y"], body=body, name="loop")
    model = model_of([node], {"x": (1, 4)}, ["y"], constants={"yes": np.array(True)})
    with pytest.raises(UnsupportedModel, match=r"\(loop\): more than 1024 iterations are not unrolled"):
        load(saved(model, tmp_path))


def test_resize_to_no_size_at_all(tmp_path: Path) -> None:
    """A few bytes may ask for tables of any length."""
    node = NODE("Resize", ["x", "", "", "sizes"], ["y"], mode="nearest")
    model = model_of([node], {"x": (1, 1, 1, 4)}, ["y"], constants={"sizes": np.array([1, 1, 1, 1 << 40])})
    with pytest.raises(UnsupportedModel, match="can be resized to"):
        load(saved(model, tmp_path))
