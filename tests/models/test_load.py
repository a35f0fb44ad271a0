"""Loaded models: what they compute, against onnxruntime in TVM's VM, and whose names they carry."""

from __future__ import annotations

import hashlib
import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper
from tests.models.onnx_models import model_of, relu_model, saved
from tvm import relax

from relay_passes.dataflow import bindings, outputs
from relay_passes.duplicate_dequantize import DuplicateDequantize
from relay_passes.fold_constants import FoldConstants
from tvm_ext.frontends.model_name import model_name
from tvm_ext.load import ModelNotice, load

NODE = helper.make_node


def run(mod: tvm.IRModule, inputs: list[np.ndarray]) -> list[np.ndarray]:
    relax.analysis.well_formed(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(array) for array in inputs))
    return [result.numpy()] if hasattr(result, "numpy") else [field.numpy() for field in result]


def agree(path: Path, inputs: dict[str, np.ndarray], **options: object) -> tvm.IRModule:
    """Load and compare, as loaded and after the front passes, with onnxruntime; the module as loaded."""
    mod = load(path, **options)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
    order = [inputs[name] for name in json.loads(mod.attrs["tvm_ext.input_names"])]
    for version in (mod, FoldConstants()(DuplicateDequantize()(mod))):
        found = run(version, order)
        assert [a.shape for a in found] == [a.shape for a in expected]
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return mod


def names(mod: tvm.IRModule) -> list[str]:
    return [binding.var.name for binding in bindings(mod["main"])]


def spans(mod: tvm.IRModule) -> list[str]:
    return [binding.value.span.source_name.name for binding in bindings(mod["main"])]


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 4)).astype("float32")


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype("float32")


@pytest.mark.parametrize("name", ["kws_fp32", "kws_int8", "resnet_fp32", "resnet_int8"])
def test_shared_models(shared_models: Path, name: str) -> None:
    """QDQ models give the reference's very bytes, before and after the front passes; float ones its numbers."""
    path = shared_models / f"{name}.onnx"
    reference = np.load(shared_models / f"{name}.npz")
    mod = load(path)
    assert mod.attrs["tvm_ext.source_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert mod.attrs["tvm_ext.model_name"] == name
    for version in (mod, FoldConstants()(DuplicateDequantize()(mod))):
        (found,) = run(version, [reference["in0"]])
        if name.endswith("int8"):
            np.testing.assert_array_equal(found, reference["out0"])
        else:
            np.testing.assert_allclose(found, reference["out0"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["kws_int8", "resnet_int8"])
def test_quantized_constants_are_plain_dequantizes(shared_models: Path, name: str) -> None:
    mod = FoldConstants()(DuplicateDequantize()(load(shared_models / f"{name}.onnx")))
    calls = [binding.value for binding in bindings(mod["main"])]
    weights = [c for c in calls if c.op.name == "relax.dequantize" and isinstance(c.args[0], tvm.ir.GenericConst)]
    assert len(weights) >= 10
    assert all(isinstance(arg, tvm.ir.GenericConst) for call in weights for arg in call.args)
    reshaped = [c for c in calls if c.op.name == "relax.reshape" and isinstance(c.args[0], tvm.ir.GenericConst)]
    assert not reshaped


def test_shared_model_keeps_tensor_and_node_names(shared_models: Path) -> None:
    path = shared_models / "resnet_int8.onnx"
    graph = onnx.load(path).graph
    mod = load(path)
    tensors = {name for node in graph.node for name in node.output}
    main = mod["main"]
    assert tensors - {"output"} <= {*names(mod)}
    assert [param.name for param in main.params] == [value.name for value in graph.input]
    assert [result.name for result in outputs(main)] == [value.name for value in graph.output]
    assert {*spans(mod)} <= {node.name for node in graph.node}


def test_nasty_names_survive_exactly(tmp_path: Path, x: np.ndarray) -> None:
    nodes = [
        NODE("Relu", ["a/b:0"], ["1x"], name="rélu/☃"),
        NODE("Abs", ["1x"], ["while"]),
        NODE("Identity", ["while"], ["out.1"]),
        NODE("Neg", ["1x"], ["日本 語"]),
    ]
    mod = agree(saved(model_of(nodes, {"a/b:0": (1, 4)}, ["out.1", "日本 語"]), tmp_path), {"a/b:0": x})
    assert names(mod) == ["1x", "out.1", "日本 語"]
    assert spans(mod) == ["rélu/☃", "Abs_1", "Neg_3"]
    assert json.loads(mod.attrs["tvm_ext.input_names"]) == ["a/b:0"]
    assert json.loads(mod.attrs["tvm_ext.output_names"]) == ["out.1", "日本 語"]
    passed = relax.transform.Normalize()(FoldConstants()(mod))
    assert names(passed) == names(mod) and spans(passed) == spans(mod)


def test_variables_inside_a_node_are_called_after_it(tmp_path: Path, image: np.ndarray) -> None:
    nodes = [NODE("Conv", ["x", "w", "b"], ["c"], name="conv"), NODE("Relu", ["c"], ["c.1"])]
    constants = {"w": np.ones((2, 3, 3, 3), "float32"), "b": np.ones(2, "float32")}
    mod = agree(saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["c.1"], constants=constants), tmp_path), {"x": image})
    assert names(mod) == ["c.2", "c", "c.1"]
    assert spans(mod) == ["conv", "conv", "Relu_1"]


def test_outputs_that_are_inputs_constants_and_doubles(tmp_path: Path, x: np.ndarray) -> None:
    nodes = [NODE("Relu", ["x"], ["y"]), NODE("Identity", ["y"], ["z"])]
    model = model_of(nodes, {"x": (1, 4)}, ["c", "y", "x", "z"], constants={"c": x})
    mod = agree(saved(model, tmp_path), {"x": x})
    assert json.loads(mod.attrs["tvm_ext.output_names"]) == ["c", "y", "x", "z"]
    constant, y, given, z = outputs(mod["main"])
    assert isinstance(constant, tvm.ir.GenericConst) and given.same_as(mod["main"].params[0])
    assert y.same_as(z) and y.name == "y"


def test_symbolic_dimensions_become_one_with_a_notice(tmp_path: Path) -> None:
    path = saved(relu_model(("batch", 4)), tmp_path)
    with pytest.warns(ModelNotice, match=r"x \[batch, 4\] -> \[1, 4\]"):
        mod = load(path)
    assert [int(dim) for dim in mod["main"].ret_ty.shape.values] == [1, 4]


def test_shapes_fix_symbolic_dimensions_everywhere(tmp_path: Path) -> None:
    nodes = [NODE("Add", ["a", "b"], ["y"])]
    path = saved(model_of(nodes, {"a": ("n", 4), "b": ("n", 1)}, ["y"]), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mod = load(path, shapes={"a": [3, 4]})
    assert [int(dim) for dim in mod["main"].params[1].ty.shape.values] == [3, 1]


def test_initializer_listed_as_input_is_a_constant(tmp_path: Path, x: np.ndarray) -> None:
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4), "w": (1, 4)}, ["y"], constants={"w": x})
    mod = agree(saved(model, tmp_path), {"x": x})
    assert [param.name for param in mod["main"].params] == ["x"]


def test_shape_arithmetic_folds_away(tmp_path: Path, image: np.ndarray) -> None:
    nodes = [
        NODE("Shape", ["x"], ["s"]),
        NODE("Gather", ["s", "zero"], ["n"]),
        NODE("Mul", ["n", "one"], ["n1"]),
        NODE("Unsqueeze", ["n1", "axes"], ["n2"]),
        NODE("Concat", ["n2", "rest"], ["target"], axis=0),
        NODE("Reshape", ["x", "target"], ["y"]),
    ]
    constants = {"zero": np.array(0), "one": np.array(1), "axes": np.array([0]), "rest": np.array([-1])}
    path = saved(model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], constants=constants), tmp_path)
    assert names(agree(path, {"x": image})) == ["y"]


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


def test_external_data_beside_the_model(tmp_path: Path, x: np.ndarray) -> None:
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], constants={"w": x})
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = agree(path, {"x": x}).attrs["tvm_ext.source_sha256"]
    (tmp_path / "weights.bin").write_bytes((x + 1).tobytes())
    assert load(path).attrs["tvm_ext.source_sha256"] != first


def test_nothing_is_written_to_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str], x: np.ndarray) -> None:
    load(saved(model_of([NODE("Gather", ["x", "i"], ["y"])], {"x": (1, 4)}, ["y"], constants={"i": np.array([0])}), tmp_path))
    assert capfd.readouterr().out == ""


def test_relax_module_passes_through(tmp_path: Path, x: np.ndarray) -> None:
    first = load(saved(relu_model(), tmp_path, "Über-Net 2.onnx"))
    again = load(first)
    assert again.attrs["tvm_ext.source_format"] == "onnx" and again.attrs["tvm_ext.model_name"] == "uber_net_2"
    own = tvm.IRModule({"main": first["main"]})
    loaded = load(own)
    assert loaded.attrs["tvm_ext.source_format"] == "relax" and loaded.attrs["tvm_ext.source_path"] == ""
    assert len(loaded.attrs["tvm_ext.source_sha256"]) == 64
    np.testing.assert_array_equal(run(loaded, [x])[0], np.maximum(x, 0))


def test_relax_module_with_symbols_tuple_and_no_dataflow() -> None:
    n = tvm.tirx.Var("n", "int64")
    given = relax.Var("given", relax.TensorType((n, 4), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [given]):
        first = builder.emit(relax.op.abs(given), name_hint="first")
        second = builder.emit(relax.op.negative(first), name_hint="second")
        builder.emit_func_output(builder.emit(relax.Tuple([first, second])))
    mod = load(builder.get(), shapes={"given": [2, 4]})
    assert json.loads(mod.attrs["tvm_ext.output_names"]) == ["first", "second"]
    value = np.full((2, 4), -3, "float32")
    first_result, second_result = run(mod, [value])
    np.testing.assert_array_equal(first_result, -value)
    np.testing.assert_array_equal(second_result, value)


@pytest.mark.parametrize(
    ("stem", "expected"),
    [("MobileNet-V2 (1.0)", "mobilenet_v2_1_0"), ("1x", "model_1x"), ("while", "model_while"), ("日本", "model")]
    + [("Größe", "grosse"), ("_", "model"), ("a" * 60, "a" * 48), ("new", "model_new")],
)
def test_model_name(stem: str, expected: str) -> None:
    assert model_name(stem) == expected
