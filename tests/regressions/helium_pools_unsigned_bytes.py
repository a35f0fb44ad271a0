"""An average pool of uint8 with whole vectors of channels: its C for Helium did not compile.

The function that loads sixteen bytes took a pointer to int8_t; the one that loads fewer takes any.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx.helper import make_node as NODE

from benchmarks.fuzzing.specimen import ModelSpecimen
from tests.support.onnx_models import model_of

EXPECTED = "compiled and agrees"
NEEDS = ("arm-none-eabi-gcc",)


def specimen() -> ModelSpecimen:
    nodes = [
        NODE("DequantizeLinear", ["x", "scale", "zero"], ["x.real"]),
        NODE("AveragePool", ["x.real"], ["y.real"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        NODE("QuantizeLinear", ["y.real", "scale", "zero"], ["y"]),
    ]
    constants = {"scale": np.float32(0.02), "zero": np.uint8(117)}
    unsigned = TensorProto.UINT8
    model = model_of(nodes, {"x": ((1, 32, 5, 4), unsigned)}, [("y", unsigned)], constants)
    return ModelSpecimen(model=model.SerializeToString(), platform="cortex_m55", is_valid=True, checks=("package",))
