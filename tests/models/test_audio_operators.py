"""Operators of TensorFlow Lite Micro's signal library against its own: references call by call, C in one package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from codegen_c.custom.registry import custom_operator
from tests.support.audio_cases import CASES, AudioCase
from tests.support.custom_operators import saved
from tests.support.peers import peer
from tests.support.tflite_file import TfliteWriter
from tvm_ext import BuildOptions, CustomCall, CustomTensor

Array = np.ndarray
RUNS = 12


def interpreter_of(data: bytes) -> Any:
    return peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data, arena_size=1 << 20)


def answers(interpreter: Any, inputs: Sequence[Array], num_outputs: int) -> list[Array]:
    for place, array in enumerate(inputs):
        interpreter.set_input(array, place)
    interpreter.invoke()
    return [np.array(interpreter.get_output(place)) for place in range(num_outputs)]


def assert_meant(case: AudioCase, found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Elements that are defined equal to the byte; floats within their rounding."""
    for one, other, meant in zip(found, expected, case.meant(expected), strict=True):
        inside = np.broadcast_to(meant, other.shape)
        if other.dtype == np.float32:
            np.testing.assert_allclose(one[inside], other[inside], rtol=1e-5, atol=1e-5)
        else:
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one[inside], other[inside])


@pytest.mark.parametrize("name", CASES)
def test_references_are_tflms(name: str) -> None:
    """Over runs in turn, states and all."""
    case, net = CASES[name], TfliteWriter()
    _, results = case.write(net, name)
    interpreter, random = interpreter_of(net.finish(results)), np.random.default_rng(1)
    operator = custom_operator(case.operator)
    assert operator is not None
    call = CustomCall(
        operator=case.operator, options=case.options,
        inputs=(*(CustomTensor(shape=shape, dtype=dtype) for dtype, shape in case.inputs),
                *(CustomTensor(shape=c.shape, dtype=str(c.dtype), constant=c) for c in case.constants)),
        outputs=tuple(CustomTensor(shape=shape, dtype=dtype) for dtype, shape in case.outputs),
    )  # fmt: skip
    assert operator.refuses(call) is None
    assert [(t.dtype, t.shape) for t in operator.outputs(call)] == list(case.outputs)
    states = [state.initial for state in operator.states(call)]
    for _ in range(100):
        inputs = case.drawn(random)
        made = operator.reference(call, [*inputs, *case.constants, *states])
        found, states = made[: len(results)], list(made[len(results) :])
        assert_meant(case, found, answers(interpreter, inputs, len(results)))


@pytest.mark.board
def test_their_c_is_tflms(tmp_path: Path) -> None:
    """All of them side by side in one model, on the host and on the board."""
    net = TfliteWriter()
    ports = {name: case.write(net, name) for name, case in CASES.items()}
    outputs = [index for _, results in ports.values() for index in results]
    interpreter, random = interpreter_of(net.finish(outputs)), np.random.default_rng(2)
    samples, expected = list[dict[str, Array]](), list[list[Array]]()
    for _ in range(RUNS):
        drawn = {net.tensors[i].name: array for name, (given, _) in ports.items()
                 for i, array in zip(given, CASES[name].drawn(random), strict=True)}  # fmt: skip
        samples.append(drawn)
        expected.append(answers(interpreter, [drawn[net.tensors[i].name] for i in net.inputs], len(outputs)))
    path = saved(net, outputs, tmp_path, "audio")
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", BuildOptions(verify=()))
    with package.session() as session:
        on_host = [session.run(sample) for sample in samples]
    for found in (on_host, list(package.run_board(samples).outputs)):
        for one, other in zip(found, expected, strict=True):
            known = dict(zip(outputs, other, strict=True))
            for name, (_, results) in ports.items():
                assert_meant(CASES[name], [one[net.tensors[i].name] for i in results], [known[i] for i in results])
