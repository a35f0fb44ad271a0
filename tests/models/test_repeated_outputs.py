"""Models that list an output more than once: each is an output of its own, with a name of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.support.bundles import written
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.tflite_models import Network
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Package
from tvm_ext.core.decisions.models import PortNames, RepeatedOutputs
from tvm_ext.frontends.loaded import distinct_names

_HOST = BuildOptions(verify=("host",))


def twice() -> onnx.ModelProto:
    """A convolution whose result is an output twice, and one whose name the second one would have."""
    nodes = [NODE("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1]), NODE("Relu", ["y"], ["y.1"])]
    return model_of(nodes, {"x": (1, 3, 6, 4)}, ["y", "y", "y.1", "y"], {"w": weights(2, 3, 3, 3)})


@pytest.mark.parametrize("io", ["arena", "caller", "stream"])
def test_each_is_an_output(io, tmp_path: Path) -> None:
    path = saved(twice(), tmp_path)
    module = tvm_ext.load(path)
    assert PortNames.read(module).outputs == ("y", "y.2", "y.1", "y.3")
    assert RepeatedOutputs.read(module).repeated == {"y.2": "y", "y.3": "y"}
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(io=io, verify=("host",)))
    assert package.report["verify"]["host"]["reference"] == "onnxruntime"
    names = [port["c_name"] for port in package.report["outputs"]]
    assert len(set(names)) == 4
    x = np.random.default_rng(0).normal(0, 1, (1, 3, 6, 4)).astype(np.float32)
    found = Package.load(package.folder).run({"x": x})
    np.testing.assert_array_equal(found["y"], found["y.2"])
    np.testing.assert_array_equal(found["y"], found["y.3"])
    np.testing.assert_array_equal(np.maximum(found["y"], 0), found["y.1"])


def test_a_reloaded_module_keeps_the_names(tmp_path: Path) -> None:
    module = tvm_ext.load(tvm_ext.load(saved(twice(), tmp_path)))
    assert PortNames.read(module).outputs == ("y", "y.2", "y.1", "y.3")
    package = tvm_ext.build(module, "host", tmp_path / "out", _HOST)
    assert package.report["verify"]["host"]["passed"] is True


def test_an_input_that_is_an_output_twice(tmp_path: Path) -> None:
    path = saved(model_of([NODE("Relu", ["x"], ["y"])], {"x": (1, 4)}, ["x", "y", "x"]), tmp_path)
    package = tvm_ext.build(path, "host", tmp_path / "out", _HOST)
    found = package.run({"x": np.array([[1, -1, 2, -2]], np.float32)})
    np.testing.assert_array_equal(found["x.1"], [[1, -1, 2, -2]])


def test_quantized_ones_have_the_same_scale(tmp_path: Path) -> None:
    net = Network(int8=True, seed=5)
    y = net.conv(net.input((1, 6, 6, 3)), 4, (3, 3), "conv")
    path = saved_tflite(net.writer.finish([y, y]), tmp_path)
    package = tvm_ext.build(path, "host", tmp_path / "out", _HOST)
    first, second = package.outputs.values()
    assert first == second and first.scale is not None


def test_a_state_and_an_output(tmp_path: Path) -> None:
    """The first one is the state's next value, the second one stays an output."""
    nodes = [NODE("Add", ["x", "h"], ["hn"])]
    path = saved(model_of(nodes, {"x": (1, 4), "h": (1, 4)}, ["hn", "hn"]), tmp_path)
    module = tvm_ext.load(path, states={"h": "hn"})
    package = tvm_ext.build(module, "host", tmp_path / "out", _HOST)
    assert [*package.outputs] == ["hn.1"] and package.report["state_bytes"] > 0


def test_in_a_bundle(tmp_path: Path) -> None:
    file = written(tmp_path, {"a": twice()}, {"a": {"file": "a.onnx"}})
    package = tvm_ext.bundle(file, "host", tmp_path / "out", verify=("host",))
    assert [*package.models["a"].outputs] == ["y", "y.2", "y.1", "y.3"]


def test_names_that_are_there_are_left_alone() -> None:
    assert distinct_names(["a", "a", "a.1", "a"]) == ("a", "a.2", "a.1", "a.3")
    assert distinct_names(["a", "b"]) == ("a", "b")
