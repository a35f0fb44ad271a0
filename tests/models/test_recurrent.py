"""Recurrent layers run one step in a loop, in float and in integers, with the results of other runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from tests.models.onnx_models import model_of, saved
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.frontends import recurrent_layers

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
CHANNELS, HIDDEN, STEPS = 5, 6, 12


def layer(
    kind: str, steps: int, *, inputs: str = "x w r b", outputs: str = "y h", **attributes: Any
) -> onnx.ModelProto:
    """Return a model of one recurrent layer.

    inputs, outputs: names for the operator's inputs and outputs in order; `_` leaves an input or output out.
    """
    rng = np.random.default_rng(steps)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    arrays = {
        "w": (directions, rows, CHANNELS), "r": (directions, rows, HIDDEN), "b": (directions, 2 * rows),
        "h0": (directions, 1, HIDDEN), "c0": (directions, 1, HIDDEN), "p": (directions, 3 * HIDDEN),
    }  # fmt: skip
    names = ["" if name == "_" else name for name in inputs.split()]
    constants = {name: rng.uniform(-0.5, 0.5, arrays[name]).astype(np.float32) for name in names if name in arrays}
    results = ["" if name == "_" else name for name in outputs.split()]
    node = helper.make_node(kind, names, results, "cell", hidden_size=HIDDEN, **attributes)
    shape = (1, steps, CHANNELS) if attributes.get("layout") else (steps, 1, CHANNELS)
    return model_of([node], {"x": shape}, [name for name in results if name], constants=constants)


CASES = {
    "lstm": layer("LSTM", STEPS, outputs="y h c"),
    "lstm backward": layer("LSTM", STEPS, direction="reverse"),
    "lstm both ways": layer("LSTM", STEPS, outputs="y h c", direction="bidirectional"),
    "lstm with states": layer("LSTM", STEPS, inputs="x w r b _ h0 c0", outputs="y h c"),
    "lstm with peepholes": layer("LSTM", STEPS, inputs="x w r b _ h0 c0 p"),
    "lstm without bias": layer("LSTM", STEPS, inputs="x w r", outputs="_ h"),
    "lstm that clips": layer("LSTM", STEPS, clip=0.4),
    "lstm of one gate for both": layer("LSTM", STEPS, input_forget=1),
    "gru": layer("GRU", STEPS),
    "gru that resets behind": layer("GRU", STEPS, linear_before_reset=1),
    "gru both ways": layer("GRU", STEPS, direction="bidirectional"),
    "gru of other functions": layer("GRU", STEPS, activations=["HardSigmoid", "Softsign"]),
    "rnn": layer("RNN", STEPS),
    "rnn of other functions": layer("RNN", STEPS, activations=["LeakyRelu"], activation_alpha=[0.3]),
}  # fmt: skip
OFTEN = (
    "lstm both ways",
    "lstm with peepholes",
    "lstm of one gate for both",
    "gru that resets behind",
    "gru of other functions",
)


@pytest.mark.parametrize("case", some_of(OFTEN, sweep=[case for case in CASES if case not in OFTEN]))
def test_a_loop_gives_what_onnxruntime_gives(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent_layers, "MOST_UNROLLED", 8)
    package = tvm_ext.build(saved(CASES[case], tmp_path), "host", tmp_path / "out", BuildOptions())
    found = package.report["verify"]["host"]
    assert found["reference"] == "onnxruntime" and not found["warnings"] and found["float64"]["of_tolerance"] < 0.5
    assert len(package.report["steps"]) <= 6, "a program has one step for the loop, not one for each element"


def test_layers_that_share_a_loop_are_compared_in_float64(tmp_path: Path) -> None:
    """Two layers of the same sizes call one function; without the evaluation in float64 there would be a warning."""
    model = layer("GRU", 33, outputs="y _")
    for name in "wrb":
        (array,) = (one for one in model.graph.initializer if one.name == name)
        model.graph.initializer.append(numpy_helper.from_array(-numpy_helper.to_array(array), f"{name}2"))
    second = onnx.NodeProto.FromString(model.graph.node[0].SerializeToString())
    second.name, second.input[1:], second.output[0] = "second", ["w2", "r2", "b2"], "z"
    model.graph.node.append(second)
    model.graph.output.append(onnx.helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    package = tvm_ext.build(saved(model, tmp_path), "host", tmp_path / "out", BuildOptions())
    found = package.report["verify"]["host"]
    assert not found["warnings"] and found["float64"]["of_tolerance"] < 0.5


@pytest.mark.parametrize("kind", GATES)
def test_neither_constants_nor_code_grow_with_the_sequence(kind: str, tmp_path: Path) -> None:
    found = []
    for steps in (40, 4000):
        path = saved(layer(kind, steps, outputs="_ h"), tmp_path)
        package = tvm_ext.build(path, "host", tmp_path / "out", BuildOptions(verify=(), name="cell"))
        lines = len((package.folder / "cell.c").read_text().splitlines())
        found.append((lines, package.report["weights_bytes"]))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", some_of(["GRU"], sweep=["LSTM", "RNN"]))
def test_unrolled_steps_give_the_same(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer with limits has no kernel: its steps are unrolled or in a loop."""
    model = layer(kind, 4, clip=0.7)
    samples = np.random.default_rng(0).standard_normal((4, 1, CHANNELS)).astype(np.float32)
    results = []
    for most in (recurrent_layers.MOST_UNROLLED, 0):
        monkeypatch.setattr(recurrent_layers, "MOST_UNROLLED", most)
        package = tvm_ext.build(saved(model, tmp_path), "host", tmp_path / f"out_{most}", BuildOptions())
        with package.session() as session:
            results.append(session.run({"x": samples}))
    for name, value in results[0].items():
        np.testing.assert_allclose(value, results[1][name], rtol=1e-5, atol=1e-7)


def samples(steps: int, count: int = 8) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(1)
    return [{"x": random.standard_normal((steps, 1, CHANNELS)).astype(np.float32)} for _ in range(count)]


def quantized(path: Path, folder: Path, steps: int, platform: str = "host", **options: Any) -> tvm_ext.Package:
    return tvm_ext.build(
        path, platform, folder / "out", BuildOptions(quantize="int8", **options), calibration=samples(steps)
    )


def test_standard_layers_of_any_length_are_one_operator(tmp_path: Path) -> None:
    for steps in (1, 7):
        package = tvm_ext.build(
            saved(layer("LSTM", steps, outputs="_ h"), tmp_path), "host", tmp_path / "out", BuildOptions(verify=())
        )
        assert [step["kernel"] for step in package.report["steps"]] == ["recurrent_f32"]


INT8 = {
    "lstm": layer("LSTM", 12),
    "lstm of both states": layer("LSTM", 5, outputs="y h c", direction="bidirectional"),
    "gru": layer("GRU", 12, outputs="_ h"),
    "gru that resets behind": layer("GRU", 12, linear_before_reset=1, direction="reverse"),
    "rnn": layer("RNN", 12),
    "rnn with relu": layer("RNN", 12, activations=["Relu"]),
}


@pytest.mark.parametrize("case", some_of(["lstm of both states", "gru"], sweep=sorted(INT8)))
def test_a_layer_is_quantized_as_a_whole(case: str, tmp_path: Path) -> None:
    model = INT8[case]
    steps = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    package = quantized(saved(model, tmp_path), tmp_path, steps)
    report, host = package.report["quantization"], package.report["verify"]["host"]
    assert host["passed"] and not host["differing"] and not report["left_float"]
    assert all(operator["dtype"] == "int8" and operator["snr_db"] > 30 for operator in report["operators"])
    kernels = [step["kernel"] for step in package.report["steps"]]
    assert kernels.count("qrecurrent") == (2 if "both" in case else 1)


@pytest.mark.board
def test_a_quantized_gru_needs_no_fpu(tmp_path: Path) -> None:
    package = quantized(saved(layer("GRU", 6), tmp_path), tmp_path, 6, "cortex_m0plus", verify=("host", "qemu"))
    assert package.report["verify"]["qemu"]["passed"] and not package.report["verify"]["qemu"]["differing"]


def test_a_layer_whose_gates_do_not_fit_stays_float(tmp_path: Path) -> None:
    """Products of such inputs and weights are beyond 2^18, far from where a gate changes."""
    model = layer("RNN", 4)
    for initializer in model.graph.initializer:
        if initializer.name == "w":
            values = np.asarray(onnx.numpy_helper.to_array(initializer) * 1e7, np.float32)
            initializer.CopyFrom(onnx.numpy_helper.from_array(values, "w"))
    path = saved(model, tmp_path)
    with pytest.raises(
        UnsupportedModel, match=r"cell \(sums of its products, or the factors of its gates, do not fit 32"
    ):
        quantized(path, tmp_path, 4, "cortex_m0plus", verify=())


def test_sequences_of_many_lengths_are_unrolled_up_to_a_limit(tmp_path: Path) -> None:
    model = layer("RNN", 600, inputs="x w r b lengths")
    lengths = helper.make_tensor_value_info("lengths", onnx.TensorProto.INT32, (1,))
    model.graph.input.append(lengths)
    with pytest.raises(UnsupportedModel, match="600 steps whose length is an input; 512 is the limit"):
        tvm_ext.load(saved(model, tmp_path))


def exported(kind: str, steps: int, folder: Path, **choices: Any) -> Path:
    """Export a recurrent layer of PyTorch and a dense layer, and return the .pt2 file."""
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = getattr(torch.nn, kind)(CHANNELS, HIDDEN, **choices)
            self.dense = torch.nn.LazyLinear(3)

        def forward(self, x: Any) -> Any:
            values, last = self.cells(x)
            return self.dense(values), last

    torch.manual_seed(0)
    shape = (1, steps, CHANNELS) if choices.get("batch_first") else (steps, 1, CHANNELS)
    network, example = Network().eval(), torch.randn(shape)
    network(example)  # gives the dense layer its shape
    program = torch.export.export(network, (example,))
    torch.export.save(program, folder / "cells.pt2")
    return folder / "cells.pt2"


@pytest.mark.parametrize(
    "case",
    some_of(
        [
            ("GRU", 6, {"bidirectional": True}),
        ],
        sweep=[
            ("LSTM", 6, {"proj_size": 3}),
            ("LSTM", 40, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
            ("LSTM", 6, {"bias": False}),
            ("GRU", 40, {"batch_first": True}),
            ("RNN", 40, {"nonlinearity": "relu"}),
        ],
    ),
    ids=lambda case: f"{case[0]}-{case[1]}",
)
def test_layers_of_pytorch(case: tuple[str, int, dict[str, Any]], tmp_path: Path) -> None:
    kind, steps, choices = case
    package = tvm_ext.build(exported(kind, steps, tmp_path, **choices), "host", tmp_path / "out", BuildOptions())
    assert package.report["verify"]["host"]["reference"] == "PyTorch"


@pytest.mark.board
def test_a_loop_on_a_board(tmp_path: Path) -> None:
    path = saved(layer("GRU", 40), tmp_path)
    package = tvm_ext.build(path, "cortex_m4", tmp_path / "out", BuildOptions(verify=("host", "qemu")))
    assert package.report["verify"]["qemu"]["passed"]
