"""Models with open dimensions that sizes of 1 do not fit: the error names shapes with which they can be loaded."""

from __future__ import annotations

import re
import shlex
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.support.onnx_models import NODE, model_of, saved
from tests.support.tflite_file import TfliteWriter
from tests.support.tflite_runners import saved_tflite
from tvm_ext.command_line.options import parse_shapes
from tvm_ext.core.errors import BadModel, UnsupportedModel
from tvm_ext.frontends import open_dimensions
from tvm_ext.frontends.load import ModelNotice, load

RANDOM = np.random.default_rng(7)


def weights(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def reshaped() -> onnx.ModelProto:
    nodes = [NODE("Reshape", ["x", "s"], ["a"]), NODE("Conv", ["a", "w"], ["y"])]
    constants = {"s": np.array([1, 1, 40, 44]), "w": weights(4, 1, 3, 3)}
    return model_of(nodes, {"x": ("batch", "samples")}, ["y"], constants)


def windowed() -> onnx.ModelProto:
    """Windows of 512 samples at a distance of 160, and 5 windows for each result: at least 1,152 samples."""
    nodes = [
        NODE("Unsqueeze", ["x", "axis"], ["a"]),
        NODE("Conv", ["a", "w"], ["b"], strides=[160]),
        NODE("Conv", ["b", "v"], ["y"]),
    ]
    constants = {"axis": np.array([1]), "w": weights(6, 1, 512), "v": weights(3, 6, 5)}
    return model_of(nodes, {"x": ("n", "t")}, ["y"], constants)


def flattened() -> onnx.ModelProto:
    """An image of 32 by 32 pixels, halved twice, whose 8 channels a dense layer reads."""
    nodes = [
        NODE("Conv", ["x", "w"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        NODE("MaxPool", ["a"], ["b"], kernel_shape=[2, 2], strides=[2, 2]),
        NODE("Flatten", ["b"], ["c"]),
        NODE("Gemm", ["c", "g"], ["y"]),
    ]
    return model_of(nodes, {"x": ("n", 3, "h", "w")}, ["y"], {"w": weights(8, 3, 3, 3), "g": weights(512, 10)})


def joined() -> onnx.ModelProto:
    nodes = [NODE("Concat", ["first one", "z"], ["a"], axis=1), NODE("Gemm", ["a", "g"], ["y"])]
    return model_of(nodes, {"first one": ("n", "k"), "z": ("n", "m")}, ["y"], {"g": weights(24, 10)})


MODELS = {
    "the target of a reshape": (reshaped, "--shape x=1,1760"),
    "windows": (windowed, "--shape x=1,1152"),
    "sides of an image": (flattened, "--shape x=1,3,32,32"),
    "two inputs": (joined, "--shape 'first one'=1,12 --shape z=1,12"),
}


def error_of(path: Path, **given: tuple[int, ...]) -> str:
    with warnings.catch_warnings(), pytest.raises((BadModel, UnsupportedModel)) as caught:
        warnings.simplefilter("ignore", ModelNotice)
        load(path, shapes=given)
    return str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_the_error_names_shapes_that_work(name: str, tmp_path: Path) -> None:
    model, options = MODELS[name]
    path = saved(model(), tmp_path)
    said = error_of(path)
    assert said.endswith(f"Dimensions that the model leaves open were taken as 1. It can be loaded with {options}.")
    load(path, shapes=parse_shapes([text for text in shlex.split(options) if text != "--shape"]))


def test_a_tensorflow_lite_file(tmp_path: Path) -> None:
    writer = TfliteWriter()
    x = writer.input("x", (1, 1), signature=(-1, -1))
    shape = writer.constant("shape", np.array([1, 8, 6, 2], np.int32))
    image = writer.operator("RESHAPE", [x, shape], writer.tensor("a", (1, 8, 6, 2)), "ReshapeOptions")
    y = writer.operator("RELU", [image], writer.tensor("y", (1, 8, 6, 2)))
    path = saved_tflite(writer.finish([y]), tmp_path)
    assert error_of(path).endswith("It can be loaded with --shape x=1,96.")
    load(path, shapes={"x": (1, 96)})


def test_no_size_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [NODE("Reshape", ["x", "s"], ["y"]), NODE("Reshape", ["x", "t"], ["z"])]
    model = model_of(nodes, {"x": ("n", "k")}, ["y", "z"], {"s": np.array([3, 7]), "t": np.array([11, 2])})
    path = saved(model, tmp_path)
    said = r"taken as 1: x \[n, k\]\. \d+ other combinations of sizes up to 48000 were tried, .* with none of them\."
    assert re.search(said, error_of(path))
    monkeypatch.setattr(open_dimensions, "_SECONDS", -1.0)
    assert "Dimensions that the model leaves open" not in error_of(path)


def test_sizes_are_not_the_reason(tmp_path: Path) -> None:
    """A model that no shape helps has no remark about shapes, and neither has one whose shapes the user gave."""
    path = saved(model_of([NODE("Unique", ["x"], ["y"])], {"x": ("n", "k")}, ["y"]), tmp_path)
    assert "leaves open" not in error_of(path)
    assert "leaves open" not in error_of(saved(reshaped(), tmp_path), x=(1, 1000))


def test_the_notice_about_sizes_of_one_shows_the_option(tmp_path: Path) -> None:
    path = saved(model_of([NODE("Relu", ["x"], ["y"])], {"x": ("n", 4)}, ["y"]), tmp_path)
    with pytest.warns(ModelNotice, match=r"x \[n, 4\] -> \[1, 4\]\. To choose others, .* --shape x=1,4"):
        load(path)


def test_broken_constants_suggest_nothing(tmp_path: Path) -> None:
    """Exporters also write targets of reshapes as nodes; a broken tensor among the constants has no numbers."""
    model = reshaped()
    target = next(one for one in model.graph.initializer if one.name == "s")
    model.graph.node.insert(0, NODE("Constant", [], ["s"], value=target))
    model.graph.initializer.remove(target)
    assert "--shape x=1,1760" in error_of(saved(model, tmp_path))
    model.graph.initializer[0].raw_data = b"123"
    assert "is broken" in error_of(saved(model, tmp_path)) or "checker refuses" in error_of(saved(model, tmp_path))
