"""One operator of TensorFlow Lite as a file of its own, beside TensorFlow Lite Micro."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from benchmarks.pairing.operator_case import Array, Choice, Input, Model, Operator, seed_of
from tests.support.tflite_models import NONE, RELU, RELU6, Network

ACTIVATIONS = {"none": NONE, "relu": RELU, "relu6": RELU6}
TYPES = ("float32", "int8", "int16")
_ARENA_BYTES = 1 << 20
_NUMBERS = count()


def tflite_operator(
    name: str,
    make: Callable[[Network, Choice], int | Sequence[int]],
    *,
    is_valid: Callable[[Choice], bool] = lambda _: True,
    unlike: Callable[[Choice], str] = lambda _: "",
    **factors: Sequence[Any],
) -> Operator:
    """An operator whose writer returns its output, or several. Factors: `dtype` of activations among them."""
    return Operator(
        form="tflite", name=name, factors=factors, make=lambda choice: _model(choice, make), is_valid=is_valid,
        unlike=unlike, quantized=False,
    )  # fmt: skip


def _model(choice: Choice, make: Callable[[Network, Choice], int | Sequence[int]]) -> Model:
    """Return the file of one layer; TensorFlow Lite Micro runs it alone, so that no two are joined."""
    net = Network(int8=choice["dtype"] == "int8", int16=choice["dtype"] == "int16", seed=seed_of(str(choice)))
    made = make(net, choice)
    outputs = [made] if isinstance(made, int) else list(made)
    data = net.writer.finish(outputs)
    tensors = [net.writer.tensors[index] for index in net.writer.inputs]
    inputs = {t.name: Input(shape=t.shape, dtype=t.dtype, low=-(1 << 15), high=1 << 15) for t in tensors}

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        from tflite_micro.python.tflite_micro import runtime

        interpreter = runtime.Interpreter.from_bytes(data, arena_size=_ARENA_BYTES)
        for index, array in enumerate(arrays.values()):
            interpreter.set_input(np.array(array), index)
        interpreter.invoke()
        return [np.array(interpreter.get_output(index)) for index in range(len(outputs))]

    return Model(source=data, inputs=inputs, run=run, join=_alone, kind=f"tflite {next(_NUMBERS)}")


def _alone(models: Sequence[Model]) -> Model:
    raise NotImplementedError("files of TensorFlow Lite are not joined")
