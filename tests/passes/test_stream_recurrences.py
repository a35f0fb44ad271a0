"""StreamWindows with recurrent layers: each run gives what the same network gives for all frames since the reset."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

import tvm_ext
from codegen_c.tir.llvm import compiled_with_llvm
from tests.models.test_hops_recurrent import CHANNELS, HIDDEN, drawn, network, of_clip, recurrent
from tests.support.onnx_models import NODE, model_of, saved
from tvm_ext.compilation.stages import streaming
from tvm_ext.core.decisions.models import HopCost, KeptStates, WarmUp
from tvm_ext.core.errors import BadOptions, UnsupportedModel

FRAMES = 36
Model = Callable[[int], onnx.ModelProto]


def streamed(model: onnx.ModelProto, hop: int, folder: Path) -> tvm.IRModule:
    return tvm.transform.Sequential(streaming("x", hop, 2))(tvm_ext.load(saved(model, folder)))


def with_layer(frames: int, ahead: list[onnx.NodeProto], **constants: np.ndarray) -> onnx.ModelProto:
    """Return operators from `x` to `c` [1, channels, frames], then a GRU and its last state."""
    nodes, arrays = recurrent("GRU", "cell", "rows", CHANNELS)
    nodes = [*ahead, NODE("Transpose", ["c"], ["rows"], perm=[2, 0, 1]), *nodes]
    return model_of(nodes, {"x": (1, CHANNELS, frames)}, ["cell.h"], {**arrays, **constants})


def padded(frames: int) -> onnx.ModelProto:
    """Pad with a number other than zero, and compute on the padding ahead of the convolution that reads it."""
    nodes = [
        NODE("Pad", ["x", "widths", "half"], ["wide"]),
        NODE("Sigmoid", ["wide"], ["s"]),
        NODE("Conv", ["s", "w"], ["c0"]),
        NODE("Conv", ["c0", "w"], ["c"], pads=[2, 0]),
    ]
    widths = np.array([0, 0, 2, 0, 0, 0])
    return with_layer(frames, nodes, widths=widths, half=np.float32(0.5), w=drawn(CHANNELS, CHANNELS, 3))


def quantized(frames: int) -> onnx.ModelProto:
    """Read int8 rows ahead of the first frame as their zero point."""
    integers = np.random.default_rng(0).integers(-127, 128, (CHANNELS, CHANNELS, 3)).astype(np.int8)
    nodes = [
        NODE("QuantizeLinear", ["x", "scale", "point"], ["q"]),
        NODE("DequantizeLinear", ["q", "scale", "point"], ["d"]),
        NODE("DequantizeLinear", ["w", "scale", "zero"], ["dw"]),
        NODE("Conv", ["d", "dw"], ["c"], pads=[2, 0]),
    ]
    return with_layer(frames, nodes, scale=np.float32(1 / 32), point=np.int8(17), zero=np.int8(0), w=integers)


def two_branches(frames: int) -> onnx.ModelProto:
    """Add a branch of another delay, and pool the rows of the layer over time."""
    nodes = [
        NODE("Conv", ["x", "w"], ["a"], pads=[2, 0]),
        NODE("Slice", ["x", "from", "to", "axes"], ["early"]),
        NODE("Pad", ["early", "widths"], ["late"]),
        NODE("Add", ["a", "late"], ["c"]),
    ]
    return with_layer(
        frames, nodes, widths=np.array([0, 0, 3, 0, 0, 0]), to=np.array([frames - 3]), axes=np.array([2]),
        w=drawn(CHANNELS, CHANNELS, 3), **{"from": np.array([0])},
    )  # fmt: skip


@pytest.mark.parametrize("hop", [1, 3])
@pytest.mark.parametrize("model", [padded, quantized, two_branches])
def test_padding_is_that_of_the_first_frame(model: Model, hop: int, tmp_path: Path) -> None:
    stream = streamed(model(FRAMES), hop, tmp_path)
    steps, states = compiled_with_llvm(stream), [state.initial for state in KeptStates.read(stream).states]
    assert WarmUp.read(stream).goes_on and WarmUp.read(stream).runs == FRAMES // hop - 1
    clip = np.random.default_rng(hop).standard_normal((1, CHANNELS, FRAMES + 15)).astype(np.float32)
    for end in range(hop, clip.shape[2] + 1, hop):
        found = steps([clip[:, :, end - hop : end], *states])
        results, states = found[: len(found) - len(states)], found[len(found) - len(states) :]
        if end >= FRAMES and end % 3 == 0:
            for one, other in zip(results, of_clip(model, clip[:, :, :end]), strict=True):
                np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_a_run_computes_new_rows_only(tmp_path: Path) -> None:
    """A convolution of three taps, two products for each of four gates, and a dense layer on the last step."""
    cost = HopCost.read(streamed(network(40, "LSTM"), 1, tmp_path))
    step = 3 * CHANNELS * CHANNELS + 4 * HIDDEN * (CHANNELS + HIDDEN)
    assert (cost.macs, cost.window_macs) == (step + 4 * HIDDEN, 40 * step + 4 * HIDDEN)
    assert cost.remarks == (
        "the states of cell0 (call_tir) go on from run to run, so outputs are those of all frames since the reset, and "
        "not of a window that begins in the initial state",
    )


@pytest.mark.parametrize(
    ("model", "hop", "message"),
    [
        (network(40), 3, r"divides the window of 40 frames and is a multiple of .*: 1, 2, 4, 5, 8, 10, 20, 40\."),
        (network(80, stride=2, ahead=1), 1, r"is a multiple of all strides over time: 2, 4, 8, 10, 16, 20, 40, 80\."),
        (
            network(33, stride=2, ahead=2),
            2,
            r"over time: none is\. Export the model with a window of a multiple of 2 frames, such as 34, or leave",
        ),
        (
            network(40, ahead=0),
            4,
            r"cell0 \(call_tir\) would begin with 2 rows that are not complete, in runs of 4",
        ),
    ],
)
def test_numbers_of_frames_that_cannot_be(model: onnx.ModelProto, hop: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match=rf"new_frames x={hop}: .*{message}"):
        streamed(model, hop, tmp_path)


def pooled(frames: int) -> onnx.ModelProto:
    return with_layer(frames, [NODE("MaxPool", ["x"], ["c"], kernel_shape=[3], pads=[2, 0])])


def padded_twice(frames: int) -> onnx.ModelProto:
    nodes = [NODE("Conv", ["x", "w"], ["a"]), NODE("Conv", ["a", "w"], ["c"], pads=[4, 0])]
    return with_layer(frames, nodes, w=drawn(CHANNELS, CHANNELS, 3))


def padding_alone(frames: int) -> onnx.ModelProto:
    nodes = [NODE("Pad", ["x", "widths"], ["c"])]
    return with_layer(frames, nodes, widths=np.array([0, 0, 2, 0, 0, 0]))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (pooled, r"max_pool1d\): pads in time with rows that it leaves out of its result"),
        (padded_twice, r"conv1d\): pads rows that are complete only after the first runs"),
        (padding_alone, r"would begin with 2 rows of padding, in runs of 1 rows\. Leave new_frames out"),
    ],
)
def test_padding_that_cannot_be(model: Model, message: str, tmp_path: Path) -> None:
    with pytest.raises((UnsupportedModel, BadOptions), match=message):
        streamed(model(FRAMES), 1, tmp_path)


def both_ways(frames: int) -> onnx.ModelProto:
    nodes, constants = recurrent("GRU", "cell", "rows", CHANNELS, direction="bidirectional")
    nodes = [NODE("Transpose", ["x"], ["rows"], perm=[2, 0, 1]), *nodes]
    return model_of(nodes, {"x": (1, CHANNELS, frames)}, ["cell.h"], constants)


def padded_behind(frames: int) -> onnx.ModelProto:
    return with_layer(frames, [NODE("Conv", ["x", "w"], ["c"], pads=[1, 1])], w=drawn(CHANNELS, CHANNELS, 3))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (both_ways, "reads its sequence backward, from rows that come only later"),
        (padded_behind, "reads rows that padding at the end of the window touches"),
    ],
)
def test_layers_whose_states_cannot_go_on_say_why(model: Model, reason: str, tmp_path: Path) -> None:
    """They are computed for the whole window, from the initial state, in each run."""
    stream = streamed(model(FRAMES), 1, tmp_path)
    assert not WarmUp.read(stream).goes_on
    assert f"{reason}: computed for the whole window in each run" in " ".join(HopCost.read(stream).remarks)
