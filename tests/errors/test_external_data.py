"""External weights: read from inside the model's folder and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from numpy.testing import assert_array_equal as assert_same
from onnx import TensorProto, helper

from relay_passes.dataflow import array_of, bindings
from tests.models.onnx_models import model_of, write
from tvm_ext.core.errors import BadModel
from tvm_ext.frontends.load import load

NODE = helper.make_node
WEIGHTS = np.array([[1, 2, 3, 4]], "float32")


def external(folder: Path, location: str, **entries: int) -> Path:
    """A model whose weights are said to be at `location`."""
    model = model_of([NODE("Add", ["x", "w"], ["y"])], {"x": (1, 4)}, ["y"], constants={"w": WEIGHTS})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return write(folder, model.SerializeToString())


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file of the right size next to the model's folder."""
    (tmp_path / "model").mkdir()
    return write(tmp_path, WEIGHTS.tobytes(), "secret.bin")


def test_external_data_good(tmp_path: Path) -> None:
    write(tmp_path, b"head" + WEIGHTS.tobytes(), "weights.bin")
    assert_same(weights_of(load(external(tmp_path, "weights.bin", offset=4, length=16))), WEIGHTS)


def test_external_data_begins_at_the_beginning(tmp_path: Path) -> None:
    write(tmp_path, WEIGHTS.tobytes() + b"tail", "weights.bin")
    assert_same(weights_of(load(external(tmp_path, "weights.bin"))), WEIGHTS)


def weights_of(mod: tvm.IRModule) -> np.ndarray:
    """The constant that the module's only call reads."""
    (binding,) = bindings(mod["main"])
    (constant,) = [array for arg in binding.value.args if (array := array_of(arg)) is not None]
    return constant


@pytest.mark.parametrize("location", ["../secret.bin", "sub/../../secret.bin", "..\\secret.bin", "", "/etc/hostname"])
def test_external_data_outside_the_folder(outside: Path, location: str) -> None:
    with pytest.raises(BadModel, match="only files inside the model's folder"):
        load(external(outside.parent / "model", location))


def test_external_data_absolute_path_inside(tmp_path: Path) -> None:
    inside = write(tmp_path, WEIGHTS.tobytes(), "weights.bin")
    with pytest.raises(BadModel, match="only files inside the model's folder"):
        load(external(tmp_path, str(inside)))


def test_external_data_through_a_link(outside: Path) -> None:
    folder = outside.parent / "model"
    (folder / "weights.bin").symlink_to(outside)
    with pytest.raises(BadModel, match="a link that leaves the model's folder"):
        load(external(folder, "weights.bin"))
    (folder / "up").symlink_to(outside.parent)
    with pytest.raises(BadModel, match="a link that leaves the model's folder"):
        load(external(folder, "up/secret.bin"))


def test_external_data_missing(tmp_path: Path) -> None:
    with pytest.raises(BadModel, match=r"'weights.bin' is not a file beside the model"):
        load(external(tmp_path, "weights.bin"))


@pytest.mark.parametrize("entries", [{"offset": 4}, {"length": 12}, {"offset": -4}, {"length": 1 << 40}])
def test_external_data_of_the_wrong_size(tmp_path: Path, entries: dict[str, int]) -> None:
    write(tmp_path, WEIGHTS.tobytes(), "weights.bin")
    with pytest.raises(BadModel, match="truncated or belongs to another model"):
        load(external(tmp_path, "weights.bin", **entries))


def test_external_data_with_words_for_numbers(tmp_path: Path) -> None:
    write(tmp_path, WEIGHTS.tobytes(), "weights.bin")
    with pytest.raises(BadModel, match="whole numbers"):
        load(external(tmp_path, "weights.bin", offset="four"))
