"""A quantized network whose weights 4 bits hold."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.support.onnx_models import model_of


def small_weights() -> onnx.ModelProto:
    """A convolution, a depthwise one, a 1x1 one and a dense layer in QDQ form, their int8 weights from -8 to 7."""
    random = np.random.default_rng(11)
    nodes, arrays = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x.q"])], {
        "s": np.float32(0.05), "z": np.int8(-3),
    }  # fmt: skip
    last = "x"

    def activation(name: str, scale: float) -> None:
        arrays[f"{name}.s"], arrays[f"{name}.z"] = np.float32(scale), np.int8(5)
        nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}.s", f"{name}.z"], [f"{name}.q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}.q", f"{name}.s", f"{name}.z"], [f"{name}.d"]))

    def layer(name: str, operator: str, shape: tuple[int, ...], scale: float, **attributes: object) -> None:
        nonlocal last
        axis = 1 if operator == "Gemm" else 0
        channels = shape[axis]
        arrays[f"{name}.w"] = random.integers(-8, 8, shape).astype(np.int8)
        arrays[f"{name}.ws"] = random.uniform(0.01, 0.03, channels).astype(np.float32)
        arrays[f"{name}.wz"] = np.zeros(channels, np.int8)
        source = f"{last}.d"
        nodes.append(
            helper.make_node("DequantizeLinear", [f"{name}.w", f"{name}.ws", f"{name}.wz"], [f"{name}.wd"], axis=axis)
        )
        nodes.append(helper.make_node(operator, [source, f"{name}.wd"], [name], **attributes))
        activation(name, scale)
        last = name

    nodes.append(helper.make_node("DequantizeLinear", ["x.q", "s", "z"], ["x.d"]))
    layer("conv", "Conv", (10, 3, 3, 3), 0.03, pads=[1, 1, 1, 1])
    layer("deep", "Conv", (10, 1, 3, 3), 0.03, pads=[1, 1, 1, 1], group=10)
    layer("point", "Conv", (7, 10, 1, 1), 0.03)
    nodes.append(helper.make_node("Flatten", ["point.d"], ["flat.d"]))
    last = "flat"
    layer("dense", "Gemm", (7 * 36, 5), 0.08)
    return model_of(nodes, {"x": (1, 3, 6, 6)}, ["dense.d"], arrays)
