"""Failing specimens become small, and scripts of them build the same specimen again."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks.fuzzing.outcome import WRONG, Outcome
from benchmarks.fuzzing.random_onnx import random_onnx
from benchmarks.fuzzing.random_tflite import random_tflite
from benchmarks.fuzzing.read_tflite import read_tflite
from benchmarks.fuzzing.regression_script import array_text, write_script
from benchmarks.fuzzing.shrink import shrunk
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen
from benchmarks.fuzzing.toml_text import toml_text
from tests.support.tflite_file import TfliteWriter
from tvm_ext import Platform


def _again(path: Path) -> Specimen:
    spec = importlib.util.spec_from_file_location("script", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script.specimen()


def _kinds(specimen: Specimen) -> list[str]:
    assert isinstance(specimen, ModelSpecimen)
    return [node.op_type for node in onnx.load_from_string(specimen.model).graph.node]


def _onnx_with(kind: str) -> bytes:
    models = (random_onnx(seed, 12) for seed in range(100))
    return next(m for m in models if kind in [n.op_type for n in m.graph.node]).SerializeToString()


@pytest.mark.parametrize("kind", ["MatMul", "Concat"])
def test_one_node_is_left_of_an_onnx_model(kind: str, tmp_path: Path) -> None:
    specimen = ModelSpecimen(
        model=_onnx_with(kind), platform="cortex_m4", options={"io": "stream", "memories": "all"}, checks=("poison",)
    )
    small = shrunk(specimen, lambda candidate: kind in _kinds(candidate))
    assert isinstance(small, ModelSpecimen)
    assert _kinds(small) == [kind]
    assert (small.platform, small.options["io"], small.checks) == ("host", "arena", ())
    write_script(tmp_path / "script.py", small, Outcome(kind=WRONG, detail="a\nb"), origin="a test")
    assert _kinds(_again(tmp_path / "script.py")) == [kind]


def test_one_operator_is_left_of_a_tflite_model(tmp_path: Path) -> None:
    models = (random_tflite(seed, 10) for seed in range(100))
    model = next(m for m in models if len(m.writer.operators) > 4)
    data = model.data()
    assert read_tflite(data) is not None

    def fails(candidate: Specimen) -> bool:
        found = read_tflite(candidate.model) if isinstance(candidate, ModelSpecimen) else None
        return found is not None and bool(found.writer.operators)

    small = shrunk(ModelSpecimen(model=data, suffix=".tflite"), fails)
    assert isinstance(small, ModelSpecimen)
    found = read_tflite(small.model)
    assert found is not None and len(found.writer.operators) == 1
    write_script(tmp_path / "script.py", small, Outcome(kind=WRONG), origin="a test")
    again = _again(tmp_path / "script.py")
    assert isinstance(again, ModelSpecimen) and again.model == small.model


def test_a_script_imports_the_writer_of_a_float_model(tmp_path: Path) -> None:
    writer = TfliteWriter()
    y = writer.operator("RELU", [writer.input("x", (1, 4))], writer.tensor("y", (1, 4)))
    specimen = ModelSpecimen(model=writer.finish([y]), suffix=".tflite")
    write_script(tmp_path / "script.py", specimen, Outcome(kind=WRONG), origin="a test")
    assert "TfliteWriter()" in (tmp_path / "script.py").read_text() and _again(tmp_path / "script.py") == specimen


def test_bytes_and_arguments_are_left_out(tmp_path: Path) -> None:
    specimen = CommandSpecimen(arguments=("run", "a", "--json", "b"), files={"a": b"0123456x89", "b": b"y"})
    small = shrunk(specimen, lambda s: isinstance(s, CommandSpecimen) and b"x" in s.files.get("a", b""))
    assert small == CommandSpecimen(arguments=("run",), files={"a": b"x"})
    write_script(tmp_path / "script.py", small, Outcome(kind=WRONG), origin="a test")
    assert _again(tmp_path / "script.py") == small


@pytest.mark.parametrize(
    "array",
    [
        np.full((2, 3), 0.5, np.float32), np.array(3, np.int64), np.zeros((0, 2), np.int8),
        np.array([np.nan, -np.inf, 1e-45], np.float32), np.arange(100, dtype=np.uint8).reshape(10, 10),
    ],
)  # fmt: skip
def test_arrays_as_text(array: np.ndarray) -> None:
    found = eval(array_text(array), {"np": np})
    assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("name", Platform.shipped())
def test_platforms_as_text(name: str, tmp_path: Path) -> None:
    from benchmarks.fuzzing.random_options import shipped

    (tmp_path / "again.toml").write_text(toml_text(shipped(name)))
    assert Platform.load(tmp_path / "again.toml") == Platform.load(name)
