"""Networks that crop, resize and stride over rows: two small ones, and random chains of such layers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx

from tests.support.onnx_models import NODE, model_of, weights

COLUMNS = 7


def row_network(seed: int) -> onnx.ModelProto:
    """float32[1, 3, H, 7] in `x`: two to four times a cut or a resize between layers with weights; `y` is an image."""
    chain = _Chain(seed)
    for _ in range(chain.rng.randint(2, 4)):
        chain.rng.choice(LAYERS)(chain)
        chain.rng.choice(CUTS)(chain)
    _conv(chain)
    chain.nodes[-1].output[0] = "y"
    return model_of(chain.nodes, {"x": chain.input_shape}, ["y"], chain.constants)


class _Chain:
    """The nodes so far, and what the last one gives: `name`, float32[1, channels, rows, COLUMNS]."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.name, self.channels, self.rows = "x", 3, self.rng.randint(14, 30)
        self.input_shape = (1, 3, self.rows, COLUMNS)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def add(self, operator: str, *constants: np.ndarray | None, **attributes: object) -> None:
        output, operands = f"t{len(self.nodes)}", [self.name]
        for number, array in enumerate(constants):
            operands.append("" if array is None else f"{output}.{number}")
            if array is not None:
                self.constants[operands[-1]] = array
        self.nodes.append(NODE(operator, operands, [output], **attributes))
        self.name = output


def _conv(chain: _Chain) -> None:
    kernel, stride = chain.rng.choice([1, 3, 3]), chain.rng.choice([1, 1, 2]) if chain.rows > 8 else 1
    channels, pad = chain.rng.choice([4, 8]), kernel // 2
    chain.add(
        "Conv", weights(channels, chain.channels, kernel, kernel, seed=len(chain.nodes)),
        pads=[pad] * 4, strides=[stride, 1],
    )  # fmt: skip
    chain.channels, chain.rows = channels, (chain.rows - 1) // stride + 1


def _depthwise(chain: _Chain) -> None:
    weight = weights(chain.channels, 1, 3, 3, seed=len(chain.nodes))
    chain.add("Conv", weight, pads=[1, 1, 1, 1], group=chain.channels)


def _pool(chain: _Chain) -> None:
    chain.add("MaxPool", kernel_shape=[3, 3], strides=[2, 1], pads=[1, 1, 1, 1])
    chain.rows = (chain.rows - 1) // 2 + 1


def _crop(chain: _Chain) -> None:
    begin = chain.rng.randint(0, chain.rows // 3)
    end = chain.rows - chain.rng.randint(0, chain.rows // 4)
    chain.add("Slice", np.array([begin]), np.array([end]), np.array([2]))
    chain.rows = end - begin


def _stride(chain: _Chain) -> None:
    begin = chain.rng.randint(0, 2)
    chain.add("Slice", np.array([begin]), np.array([chain.rows]), np.array([2]), np.array([2]))
    chain.rows = (chain.rows - begin + 1) // 2


def _pad(chain: _Chain) -> None:
    before, after = chain.rng.randint(0, 3), chain.rng.randint(0, 3)
    chain.add("Pad", np.array([0, 0, before, 0, 0, 0, after, 0]), mode="constant")
    chain.rows += before + after


def _resize(chain: _Chain) -> None:
    factor = chain.rng.choice([0.5, 1.5, 2.0]) if chain.rows < 24 else 0.5
    where = chain.rng.choice(["half_pixel", "asymmetric"])
    mode = chain.rng.choice(["nearest", "nearest", "linear"])
    scales = np.array([1, 1, factor, 1], np.float32)
    chain.add("Resize", None, scales, mode=mode, coordinate_transformation_mode=where)
    chain.rows = int(chain.rows * factor)


LAYERS = (_conv, _conv, _depthwise, _pool)
CUTS = (_crop, _stride, _pad, _resize, _resize)


def cropped() -> onnx.ModelProto:
    """Rows 6 to 26 of the 32 that a convolution computes."""
    nodes = [
        NODE("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("Slice", ["r1", "begins", "ends", "axes"], ["s1"]),
        NODE("Conv", ["s1", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["c2"], ["r2"]),
        NODE("MaxPool", ["r2"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
    places = {"begins": np.array([6]), "ends": np.array([26]), "axes": np.array([2])}
    return model_of(
        nodes, {"x": (1, 3, 32, 32)}, ["y"], {"w1": weights(8, 3, 3, 3), "w2": weights(4, 8, 3, 3), **places}
    )


def cropped_input() -> onnx.ModelProto:
    """A part of the input, rows and columns, that two convolutions read."""
    nodes = [
        NODE("Slice", ["x", "begins", "ends", "axes"], ["s1"]),
        NODE("Conv", ["s1", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        NODE("Relu", ["c1"], ["r1"]),
        NODE("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], strides=[2, 2]),
        NODE("GlobalAveragePool", ["c2"], ["y"]),
    ]
    places = {"begins": np.array([4, 3]), "ends": np.array([30, 29]), "axes": np.array([2, 3])}
    return model_of(
        nodes, {"x": (1, 3, 32, 32)}, ["y"], {"w1": weights(8, 3, 3, 3), "w2": weights(4, 8, 3, 3), **places}
    )


def halved(mode: str) -> onnx.ModelProto:
    """A convolution, half of its rows and columns, and another one."""
    nodes = [
        NODE("Conv", ["x", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        NODE("Resize", ["c1", "", "scales"], ["r1"], mode=mode),
        NODE("Conv", ["r1", "w2"], ["y"], pads=[1, 1, 1, 1]),
    ]
    constants = {"w1": weights(8, 3, 3, 3), "w2": weights(8, 8, 3, 3), "scales": np.float32([1, 1, 0.5, 0.5])}
    return model_of(nodes, {"x": (1, 3, 32, 32)}, ["y"], constants)


def samples_of(rows: int, columns: int, folder: Path) -> Path:
    path = folder / "samples.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(4, 3, rows, columns)).astype(np.float32))
    return path
