"""Loaded models: what they compute, against onnxruntime in TVM's VM, and whose names they carry."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper
from tvm import relax

from relay_passes.dataflow import bindings, outputs
from relay_passes.simplify.duplicate_dequantize import DuplicateDequantize
from relay_passes.simplify.fold_constants import FoldConstants
from tests.models.agree import agree, names, run, spans
from tests.models.onnx_models import model_of, relu_model, saved
from tests.support.sweeps import some_of
from tvm_ext.core.decisions.models import ModelOrigin, PortNames
from tvm_ext.frontends.load import ModelNotice, load, model_name

NODE = helper.make_node


@pytest.mark.parametrize("name", some_of(["kws_fp32", "kws_int8"], sweep=["resnet_fp32", "resnet_int8"]))
def test_shared_models(shared_models: Path, name: str) -> None:
    """QDQ models give the reference's very bytes, before and after the front passes; float ones its numbers."""
    path = shared_models / f"{name}.onnx"
    reference = np.load(shared_models / f"{name}.npz")
    mod = load(path)
    assert ModelOrigin.read(mod).sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert ModelOrigin.read(mod).name == name
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
    assert list(PortNames.read(mod).inputs) == ["a/b:0"]
    assert list(PortNames.read(mod).outputs) == ["out.1", "日本 語"]
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
    assert list(PortNames.read(mod).outputs) == ["c", "y", "x", "z"]
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


def test_question_marks_name_no_dimension(tmp_path: Path) -> None:
    path = saved(relu_model((1, "?", "?")), tmp_path)
    assert [int(dim) for dim in load(path, shapes={"x": [1, 8, 16]})["main"].ret_ty.shape.values] == [1, 8, 16]


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


def test_external_data_beside_the_model(tmp_path: Path, x: np.ndarray) -> None:
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], constants={"w": x})
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    first = ModelOrigin.read(agree(path, {"x": x})).sha256
    (tmp_path / "weights.bin").write_bytes((x + 1).tobytes())
    assert ModelOrigin.read(load(path)).sha256 != first


def test_nothing_is_written_to_stdout(tmp_path: Path, capfd: pytest.CaptureFixture[str], x: np.ndarray) -> None:
    load(
        saved(
            model_of([NODE("Gather", ["x", "i"], ["y"])], {"x": (1, 4)}, ["y"], constants={"i": np.array([0])}),
            tmp_path,
        )
    )
    assert capfd.readouterr().out == ""


def test_relax_module_passes_through(tmp_path: Path, x: np.ndarray) -> None:
    first = load(saved(relu_model(), tmp_path, "Über-Net 2.onnx"))
    again = load(first)
    assert ModelOrigin.read(again).source_format == "onnx" and ModelOrigin.read(again).name == "uber_net_2"
    own = tvm.IRModule({"main": first["main"]})
    loaded = load(own)
    assert ModelOrigin.read(loaded).source_format == "relax" and ModelOrigin.read(loaded).path == ""
    assert len(ModelOrigin.read(loaded).sha256) == 64
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
    assert list(PortNames.read(mod).outputs) == ["first", "second"]
    value = np.full((2, 4), -3, "float32")
    first_result, second_result = run(mod, [value])
    np.testing.assert_array_equal(first_result, -value)
    np.testing.assert_array_equal(second_result, value)


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        ("MobileNet-V2 (1.0)", "mobilenet_v2_1_0"),
        ("1x", "model_1x"),
        ("while", "model_while"),
        ("new", "model_new"),
        ("日本", "model"),
        ("Größe", "grosse"),
        ("_", "model"),
        ("a" * 60, "a" * 48),
    ],
)
def test_model_name(stem: str, expected: str) -> None:
    assert model_name(stem) == expected
