"""Random valid ONNX models: images, sequences and vectors through layers of every kind that microcontrollers see."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from benchmarks.fuzzing.onnx_layers import LAYERS
from benchmarks.fuzzing.onnx_network import OPSET, Builder
from tests.support.onnx_models import model_of
from tests.support.random_models import IMAGE_LAYERS, Shape


def random_onnx(seed: int, num_layers: int = 8) -> onnx.ModelProto:
    """A random model, the same for the same seed; every value that nobody reads is an output."""
    net = Builder(seed)
    _inputs(net)
    inputs = dict(net.shapes)
    for _ in range(num_layers):
        if net.random.random() < 0.35 and _has_plain_image(net):
            IMAGE_LAYERS[int(net.random.integers(len(IMAGE_LAYERS)))](net)
        else:
            LAYERS[int(net.random.integers(len(LAYERS)))](net)
    if not net.nodes:
        net.node("Relu", [next(iter(net.shapes))], [])
    outputs = [name for name in net.shapes if name not in net.read and name not in inputs]
    outputs += [name for name in net.shapes if name in net.read and name not in inputs and net.random.random() < 0.05]
    if net.random.random() < 0.02:
        outputs.append(next(iter(inputs)))
    if net.random.random() < 0.02 and net.constants:
        outputs.append(next(name for name in net.constants))
    model = model_of(net.nodes, inputs, outputs or [net.nodes[-1].output[0]], net.constants, opset=OPSET)
    types = {name: numpy_helper.from_array(np.asarray(array)).data_type for name, array in net.constants.items()}
    for output in model.graph.output:
        output.type.tensor_type.elem_type = types.get(output.name, TensorProto.FLOAT)
    return model


def _inputs(net: Builder) -> None:
    draw = net.draw
    first: list[Shape] = [
        (draw(1, 1, 1, 1, 2, 3), draw(1, 2, 3, 4, 8, 16), draw(1, 5, 8, 9, 12), draw(1, 4, 7, 8, 16)),
        (draw(1, 1, 2), draw(1, 3, 8, 17, 64)),
        (draw(1, 2), draw(1, 4, 10), draw(3, 8, 12)),
        (draw(1, 5, 12, 100),),
    ]
    net.shapes["image" if net.random.random() < 0.6 else "in_0"] = first[
        int(net.random.choice(4, p=[0.7, 0.12, 0.12, 0.06]))
    ]
    if net.random.random() < 0.2:
        known = next(iter(net.shapes.values()))
        net.shapes["in_1"] = known if net.random.random() < 0.6 else (1, draw(4, 10))


def _has_plain_image(net: Builder) -> bool:
    return any(len(shape) == 4 for shape in net.shapes.values())
