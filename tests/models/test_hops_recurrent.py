"""Packages that take hops of a window over time and keep the states of recurrent layers, beside whole clips."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.peers import peer
from tests.support.sweeps import some_of
from tests.support.tflite_runners import saved_tflite
from tests.support.tflite_state_models import lstm
from tvm_ext import BuildOptions
from tvm_ext.core.errors import NotReady

CHANNELS, HIDDEN = 3, 6
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FRAMES = 40


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).uniform(-0.5, 0.5, shape).astype(np.float32)


def recurrent(kind: str, name: str, given: str, channels: int, **attributes: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the node of a layer and its constants; it reads `given` [steps, 1, channels]."""
    rows = GATES[kind] * HIDDEN
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    constants = {
        f"{name}.w": drawn(directions, rows, channels), f"{name}.r": drawn(directions, rows, HIDDEN),
        f"{name}.b": drawn(directions, 2 * rows),
    }  # fmt: skip
    node = NODE(kind, [given, *constants], [f"{name}.y", f"{name}.h"], name, hidden_size=HIDDEN, **attributes)
    return [node], constants


def network(frames: int, kind: str = "GRU", *, stride: int = 1, ahead: int = 2, layers: int = 1) -> onnx.ModelProto:
    """Return a causal convolution of 3 taps, recurrent layers, and a dense layer on the last step.

    ahead: rows of padding ahead of the first frame.
    """
    constants = {"conv": drawn(CHANNELS, CHANNELS, 3), "bias": drawn(CHANNELS), "dense": drawn(HIDDEN, 4)}
    nodes = [
        NODE("Conv", ["x", "conv", "bias"], ["c"], "conv", pads=[ahead, 0], strides=[stride]),
        NODE("Relu", ["c"], ["r"]),
        NODE("Transpose", ["r"], ["rows"], perm=[2, 0, 1]),
    ]
    given, channels = "rows", CHANNELS
    for number in range(layers):
        more, arrays = recurrent(kind, f"cell{number}", given, channels)
        nodes += [*more, NODE("Squeeze", [f"cell{number}.y", "one"], [f"rows{number}"])]
        given, channels = f"rows{number}", HIDDEN
        constants |= arrays
    nodes += [NODE("Gather", [given, "last"], ["step"], axis=0), NODE("MatMul", ["step", "dense"], ["y"], "dense")]
    constants |= {"one": np.array([1]), "last": np.array(-1)}
    return model_of(nodes, {"x": (1, CHANNELS, frames)}, ["y"], constants)


def of_clip(model: Callable[[int], onnx.ModelProto], clip: np.ndarray) -> list[np.ndarray]:
    """Return the outputs of onnxruntime for a whole clip, by the network for as many frames."""
    session = onnxruntime.InferenceSession(model(clip.shape[2]).SerializeToString())
    return session.run(None, {"x": clip})


def agrees(package: tvm_ext.Package, model: Callable[[int], onnx.ModelProto], frames: int, hop: int) -> None:
    """Compare each run with the clip that ends with it, over more than two windows and after a reset."""
    clip = np.random.default_rng(hop).standard_normal((1, CHANNELS, 2 * frames + 4 * hop)).astype(np.float32)
    with package.session() as session:
        for end in range(hop, clip.shape[2] + 1, hop):
            part = {"x": np.ascontiguousarray(clip[:, :, end - hop : end])}
            if end < frames:
                with pytest.raises(NotReady):
                    session.run(part)
                continue
            (wanted,) = of_clip(model, clip[:, :, :end])
            (found,) = session.run(part).values()
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


CASES: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "lstm": (1, {"kind": "LSTM"}),
    "gru, 4 frames": (4, {"kind": "GRU"}),
    "rnn behind a convolution without padding": (1, {"kind": "RNN", "ahead": 0}),
    "gru that waits for a whole run": (2, {"kind": "GRU", "ahead": 0}),
    "lstm on every second frame": (2, {"kind": "LSTM", "stride": 2, "ahead": 1, "frames": 80}),
    "two layers": (2, {"kind": "GRU", "layers": 2}),
}
OFTEN = ("lstm on every second frame", "gru that waits for a whole run")


@pytest.mark.parametrize("case", some_of(OFTEN, sweep=[case for case in CASES if case not in OFTEN]))
def test_states_go_on_as_in_a_clip(case: str, tmp_path: Path) -> None:
    hop, choices = CASES[case]
    choices = dict(choices)
    frames = choices.pop("frames", FRAMES)
    options = BuildOptions(new_frames={"x": hop}, time_axis={"x": 2})
    package = tvm_ext.build(saved(network(frames, **choices), tmp_path), "host", tmp_path / "package", options)
    assert package.report["verify"]["host"]["passed"]
    agrees(package, lambda clip: network(clip, **choices), frames, hop)


@pytest.mark.board
@pytest.mark.parametrize("hop", some_of([3], sweep=[1, 12]))
def test_an_int8_lstm_goes_on_as_in_tensorflow_lite(hop: int, tmp_path: Path) -> None:
    """TensorFlow Lite's LSTM has variable tensors, so its interpreter continues where the last invocation ended."""
    micro = peer("tflite_micro")
    package = tvm_ext.build(
        saved_tflite(lstm(int8=True, steps=12), tmp_path), "cortex_m4", tmp_path / "package",
        BuildOptions(new_frames={"x": hop}, time_axis={"x": 1}, verify=("host", "qemu")),
    )  # fmt: skip
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    clip = np.random.default_rng(0).integers(-128, 128, (1, 36, 5)).astype(np.int8)
    interpreter = micro.runtime.Interpreter.from_bytes(lstm(int8=True, steps=12))
    wanted = []
    for begin in range(0, 36, 12):
        interpreter.set_input(clip[:, begin : begin + 12], 0)
        interpreter.invoke()
        wanted.append(interpreter.get_output(0).copy())
    outputs = np.concatenate(wanted, 1)
    with package.session() as session:
        for end in range(hop, 37, hop):
            part = {"x": np.ascontiguousarray(clip[:, end - hop : end])}
            if end < 12:
                with pytest.raises(NotReady):
                    session.run(part)
                continue
            (found,) = session.run(part).values()
            np.testing.assert_array_equal(found, outputs[:, end - 12 : end])


@pytest.mark.board
@pytest.mark.parametrize("kind", some_of(["GRU"], sweep=["LSTM", "RNN"]))
def test_a_layer_that_is_quantized_here_goes_on_in_integers(kind: str, tmp_path: Path) -> None:
    """A float layer needs about 3,300 instructions per frame."""
    random = np.random.default_rng(0)
    samples = [{"x": random.standard_normal((1, CHANNELS, FRAMES)).astype(np.float32)} for _ in range(4)]
    options = BuildOptions(new_frames={"x": 1}, time_axis={"x": 2}, quantize="int8", verify=("host", "qemu"))
    package = tvm_ext.build(
        saved(network(FRAMES, kind), tmp_path), "cortex_m4", tmp_path / "package", options, calibration=samples
    )
    verified = package.report["verify"]
    assert verified["host"]["passed"] and verified["qemu"]["passed"]
    assert verified["qemu"]["instructions"] < 2_000
