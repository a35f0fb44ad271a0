"""Names of inputs and outputs: those of a TensorFlow Lite signature, those that users choose, and plain accessors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, image_in_and_out, model_of, saved, two_inputs_two_outputs
from tests.support.packages import HOST_ONLY
from tests.support.tflite_file import Signature, TfliteWriter
from tests.support.tflite_runners import litert, saved_tflite
from tvm_ext import BuildOptions, load
from tvm_ext.core.decisions.models import PortNames
from tvm_ext.core.errors import BadModel, BadOptions

X, Y = "serving_default_x:0", "StatefulPartitionedCall:0"


NAMED = BuildOptions(verify=(), name="net")
"""Of packages whose names are looked at; others are verified, too."""


def signed(inputs: Mapping[str, int], outputs: Mapping[str, int], *, graph: int = 0) -> bytes:
    """|x|, then its square root, which a converter named its way; tensors 0, 1, 2."""
    writer = TfliteWriter()
    x = writer.input(X, (1, 4))
    inner = writer.operator("ABS", [x], writer.tensor("scores", (1, 4)), "AbsOptions")
    y = writer.operator("SQRT", [inner], writer.tensor(Y, (1, 4)))
    writer.signature = Signature(inputs=inputs, outputs=outputs, graph=graph)
    return writer.finish([y])


def port_names(data: bytes, folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = PortNames.read(load(saved_tflite(data, folder)))
    return names.inputs, names.outputs


def test_a_signature_names_inputs_and_outputs(tmp_path: Path) -> None:
    """The package has them in C and in Python, and the runtimes of the file take part as before."""
    data = signed({"image": 0}, {"scores": 2})
    package = tvm_ext.build(load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", HOST_ONLY)
    assert (list(package.inputs), list(package.outputs)) == (["image"], ["scores"])
    host = package.report["verify"]["host"]
    assert host["passed"] and host["own_reading"] is None and host["reference"] == "TensorFlow Lite Micro"
    header = (tmp_path / "out" / "model.h").read_text()
    assert "float *model_image(void);" in header and "const float *model_scores(void);" in header
    value = np.array([[-4, 9, 0, 1]], np.float32)
    np.testing.assert_array_equal(package.run({"image": value})["scores"], litert(data, [value])[0])


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ({"v": 0}, {"v": 2}, ("v", "v.1")),
        ({"": 0}, {"y": 2}, (X, "y")),
        ({"x": 0}, {"y": 1}, ("x", Y)),
        ({}, {}, (X, Y)),
    ],
    ids=["one name for both", "an empty name", "a tensor that is no output", "no entries"],
)
def test_what_a_signature_leaves_open(
    inputs: Mapping[str, int], outputs: Mapping[str, int], expected: tuple[str, str], tmp_path: Path
) -> None:
    assert port_names(signed(inputs, outputs), tmp_path) == ((expected[0],), (expected[1],))


def test_a_signature_of_another_subgraph_names_nothing(tmp_path: Path) -> None:
    assert port_names(signed({"x": 0}, {"y": 2}, graph=1), tmp_path) == ((X,), (Y,))


def test_a_signature_of_too_many_inputs_is_damage(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match="names more inputs or outputs than its subgraph has"):
        port_names(signed({"x": 0, "z": 0}, {"y": 2}), tmp_path)


def test_renamed_ports(tmp_path: Path) -> None:
    """C has the new names; Python, samples and the report keep the model's own."""
    data, options = signed({}, {}), replace(HOST_ONLY, name="net", rename={X: "image", Y: "scores"})
    package = tvm_ext.build(load(saved_tflite(data, tmp_path)), "host", tmp_path / "out", options)
    assert (list(package.inputs), list(package.outputs)) == ([X], [Y])
    assert [port["c_name"] for port in (*package.report["inputs"], *package.report["outputs"])] == ["image", "scores"]
    assert package.report["verify"]["host"]["passed"]
    header = (tmp_path / "out" / "net.h").read_text()
    for line in ("float *net_image(void);", "const float *net_scores(void);", "#define NET_IMAGE_SIZE 4"):
        assert line in header, line
    value = np.array([[-4, 9, 0, 1]], np.float32)
    np.testing.assert_array_equal(package.run({X: value})[Y], [[2, 3, 0, 1]])


@pytest.mark.parametrize("io", ["caller", "stream"])
def test_renamed_ports_in_every_form(io: str, tmp_path: Path) -> None:
    options = replace(NAMED, io=io, rename={"x": "frame"})
    tvm_ext.build(load(saved(image_in_and_out(), tmp_path)), "host", tmp_path / "out", options)
    assert ("read_frame" if io == "stream" else "const float *frame") in (tmp_path / "out" / "net.h").read_text()


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        ({"no": "b"}, "rename no=b: the model has no input or output 'no'; its inputs are left, right, its outputs"),
        ({"left": "right"}, "rename left=right: 'right' has that name; choose another name"),
        ({"left": "run"}, "rename left=run: the package itself uses that name"),
        ({"left": "My Input"}, "rename left='My Input': it becomes a part of C identifiers, .* my_input is one"),
        ({"left": "int"}, "rename left='int': .* int_ is one"),
        ({"left": "c", "right": "c"}, "rename right=c: left is renamed to c, too; choose another name"),
    ],
)
def test_refused_renames(rename: dict[str, str], message: str, tmp_path: Path) -> None:
    model = load(saved(two_inputs_two_outputs(), tmp_path))
    with pytest.raises(BadOptions, match=message):
        tvm_ext.build(model, "host", tmp_path / "out", BuildOptions(rename=rename, verify=()))


def test_two_ports_may_swap_their_names(tmp_path: Path) -> None:
    model, swapped = load(saved(two_inputs_two_outputs(), tmp_path)), {"left": "right", "right": "left"}
    package = tvm_ext.build(model, "host", tmp_path / "out", replace(NAMED, rename=swapped))
    assert {port["name"]: port["c_name"] for port in package.report["inputs"]} == swapped


def test_a_single_port_has_a_plain_name_beside_its_own(tmp_path: Path) -> None:
    model = model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["y"])
    tvm_ext.build(load(saved(model, tmp_path)), "host", tmp_path / "out", NAMED)
    header = (tmp_path / "out" / "net.h").read_text()
    assert "static inline float *net_input(void)\n{\n    return net_x();\n}" in header
    assert "static inline const float *net_output(void)\n{\n    return net_y();\n}" in header


def test_a_layer_that_is_called_as_a_plain_accessor(tmp_path: Path) -> None:
    model = model_of(
        [NODE("Relu", ["x"], ["r"], name="input"), NODE("Abs", ["r"], ["y"], name="output")], {"x": (1, 4)}, ["y"]
    )
    package = tvm_ext.build(load(saved(model, tmp_path)), "host", tmp_path / "out", replace(HOST_ONLY, name="net"))
    assert package.report["verify"]["host"]["passed"]
    assert {step["name"] for step in package.report["steps"]} <= {"input_layer", "output_layer"}


def test_names_that_ports_have_themselves_are_theirs(tmp_path: Path) -> None:
    """An output that is called `input` keeps its accessor; of two outputs none is the output."""
    model = model_of([NODE("Relu", ["x"], ["input"]), NODE("Abs", ["x"], ["y"])], {"x": (1, 4)}, ["input", "y"])
    tvm_ext.build(load(saved(model, tmp_path)), "host", tmp_path / "out", NAMED)
    header = (tmp_path / "out" / "net.h").read_text()
    assert "const float *net_input(void);" in header
    assert "static inline" not in header and "net_output" not in header
