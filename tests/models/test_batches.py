"""What `run` takes: one array, a dict, a sequence, a batch of each, floats for integers; each as its samples alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.operators.kinds import Quantization, Rounding
from codegen_c.program.interface import Interface, Port
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext.core.errors import BadInput
from tvm_ext.execution.batches import batch_of, run_batch
from tvm_ext.execution.samples import Sample

SCALE = 0.25


def port(name: str, *shape: int, scale: float | None = None) -> Port:
    quantization = Quantization(scale=scale, zero_point=-3) if scale else None
    return Port(name=name, source=name, shape=shape, dtype="int8" if scale else "float32", quantization=quantization)


def interface(*inputs: Port, outputs: Sequence[Port] = (), rounding: Rounding = "onnx") -> Interface:
    return Interface(model="m", io="arena", inputs=inputs, outputs=tuple(outputs), rounding=rounding)


def doubled(samples: Sequence[Sample]) -> list[Mapping[str, np.ndarray]]:
    """An output of the input's type: the sum of all inputs, and its first element."""
    sums = [sum(array for array in one.values()) for one in samples]
    return [{"y": np.asarray(one), "first": np.asarray(one).reshape(-1)[0]} for one in sums]


ROW = interface(port("x", 1, 4), outputs=[port("y", 1, 4), port("first")])
PAIR = interface(port("a", 4), port("b", 4), outputs=[port("y", 4), port("first")])
X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        (X[:1], (1, 4)), ({"x": X[:1]}, (1, 4)), ([X[:1]], (1, 4)), ((X[:1],), (1, 4)), (X, (3, 4)), ({"x": X}, (3, 4)),
        (X[:, None], (3, 1, 4)), (X[:1, None], (1, 1, 4)), ([{"x": X[:1]}] * 2, (2, 1, 4)),
    ],
    ids=str,
)  # fmt: skip
def test_what_one_input_may_be(inputs: object, shape: tuple[int, ...]) -> None:
    found = run_batch(ROW, inputs, doubled)  # type: ignore[arg-type]
    assert found["y"].shape == shape
    values = np.concatenate([X[:1], X[:1]]) if isinstance(inputs, list) and len(inputs) == 2 else X
    np.testing.assert_array_equal(found["y"].ravel(), values.ravel()[: found["y"].size])
    assert found["first"].shape == (() if shape == (1, 4) else shape[:1])


def test_several_inputs() -> None:
    for inputs in ((X[0], X[1]), [X[0], X[1]], {"b": X[1], "a": X[0]}, [X[0].tolist(), X[1]]):
        with_dtype = [np.asarray(one, np.float32) for one in inputs] if isinstance(inputs, list) else inputs
        found = run_batch(PAIR, with_dtype, doubled)
        np.testing.assert_array_equal(found["y"], X[0] + X[1])
    np.testing.assert_array_equal(run_batch(PAIR, (X, X), doubled)["y"], X + X)


@pytest.mark.parametrize(
    ("rounding", "integers"), [("onnx", [-5, -3, -3, -1, 127, -3]), ("tflite", [-5, -4, -2, -1, 127, -3])]
)
def test_floats_of_integer_ports(rounding: Rounding, integers: list[int]) -> None:
    """Halves by the format's rule, saturated; float64 as float32."""
    one = interface(port("x", 6, scale=SCALE), outputs=[port("y", 6, scale=SCALE)], rounding=rounding)
    real = np.array([-0.5, -0.125, 0.125, 0.5, 1e9, np.nan])
    seen: list[np.ndarray] = []

    def run(samples: Sequence[Sample]) -> list[Sample]:
        seen.extend(sample["x"] for sample in samples)
        return [{"y": sample["x"]} for sample in samples]

    found = run_batch(one, real, run)["y"]
    assert seen[0].dtype == np.int8 and seen[0].tolist() == integers
    np.testing.assert_array_equal(found, SCALE * (np.array(integers, np.float32) + 3))
    assert found.dtype == np.float32
    same = run_batch(one, seen[0], run)["y"]
    assert same.dtype == np.int8, "integers in, integers out"
    with pytest.raises(BadInput, match=r"input 'x' is float64\[6\]; m reads int8\[6\].* The input is quantized: round"):
        run_batch(one, real, run, quantize=False)


MISTAKES: dict[str, tuple[Interface, object, str]] = {
    "one array for two": (PAIR, X, r"inputs: a single array is given; m reads a, b\. Give a dict, or a sequence"),
    "one of two": (PAIR, [X], r"the list holds 1 values and needs one for each input; m reads a, b\..*numpy.stack"),
    "samples as a list": (ROW, [X[:1], X[1:2]], "the list holds 2 values and needs one for each input; m reads x"),
    "a number": (ROW, 5, "inputs are a int; give an array, or a dict of arrays by name"),
    "wide": (ROW, np.zeros((3, 5), np.float32), r"input 'x' is float32\[3, 5\]; m reads float32\[1, 4\]"),
    "deep": (ROW, np.zeros((2, 3, 4), np.float32), r"input 'x' is float32\[2, 3, 4\]; m reads float32\[1, 4\]"),
    "type of a batch": (ROW, X.astype("f8"), r"input 'x' is float64\[1, 4\]; m reads float32\[1, 4\].*astype"),
    "empty": (ROW, X[:0], "the batch for m holds no samples; give at least one"),
    "unequal": (PAIR, {"a": X, "b": X[:2]}, r"the numbers of samples differ \(a: 3, b: 2\); give the same number"),
    "batches of batches": (ROW, [{"x": X}], r"input 'x' is float32\[1, 3, 4\]; m reads float32\[1, 4\]"),
    "unlike samples": (ROW, [{"x": X}, {"x": X[:1]}], "the samples of the list differ in shape; give arrays of"),
    "names of samples": (ROW, [{"x": X[:1]}, {"z": X}], "'z' is not an input of m, which reads x"),
    "ragged": (ROW, {"x": [[1], [1, 2]]}, "input 'x' is not an array: its rows differ in length"),
    "name": (ROW, {"X": X}, "'X' is not an input of m, which reads x"),
    "missing": (PAIR, {"a": X}, "input 'b' is missing; m reads a, b"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(mistake: str) -> None:
    one, inputs, message = MISTAKES[mistake]
    with pytest.raises(BadInput, match=message):
        batch_of(one, inputs)  # type: ignore[arg-type]


def test_a_model_without_inputs_and_one_of_scalars() -> None:
    none = interface(outputs=[port("y", 2)])
    assert batch_of(none, {}).samples == ({},)
    scalar = interface(port("x"), outputs=[port("y")])
    assert not batch_of(scalar, np.float32(2)).is_batch
    assert len(batch_of(scalar, X[0]).samples) == 4


@pytest.mark.board
def test_a_batch_is_its_samples_on_host_and_board(tmp_path: Path) -> None:
    nodes = [NODE("MatMul", ["x", "w"], ["h"], name="h"), NODE("Relu", ["h"], ["y"], name="y")]
    matrix = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    path = saved(model_of(nodes, {"x": (1, 4)}, ["y"], {"w": matrix}), tmp_path)
    package = tvm_ext.build(
        path, "cortex_m4", verify=(), quantize="int8", calibration={"x": X}, name="net"
    )  # fmt: skip
    wanted = np.maximum(X @ matrix, 0)
    assert package.interface.rounding == "onnx" == package.report["model"]["rounding"]
    host, board = package.run(X)["y"], package.run(X, on="qemu")["y"]
    np.testing.assert_array_equal(host, board)
    assert host.dtype == np.float32 and np.abs(host - wanted).max() < 0.1 * wanted.max()
    for index in range(len(X)):
        np.testing.assert_array_equal(package.run(X[index : index + 1])["y"], host[index : index + 1])
    many = np.tile(X, (6, 1))
    np.testing.assert_array_equal(package.run(many)["y"], np.tile(host, (6, 1)))
    integers = batch_of(package.interface, X).samples
    stacked = np.stack([one["x"] for one in integers])
    assert package.run(stacked)["y"].dtype == np.int8
    old = replace(package, report={**package.report, "model": {**package.report["model"]}})
    del old.report["model"]["rounding"]
    assert old.interface == package.interface, "reports of before say nothing of it"
