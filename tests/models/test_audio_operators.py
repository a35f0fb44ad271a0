"""TensorFlow Lite Micro's custom operators, its signal library above all: references call by call, C in one package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tvm_ext
from codegen_c.custom.registry import custom_operator
from tests.support.audio_cases import CASES, AudioCase, side_by_side
from tests.support.custom_operators import saved
from tests.support.peers import peer
from tests.support.tflite_file import TfliteWriter
from tvm_ext import BuildOptions
from tvm_ext.core.errors import UnsupportedModel
from tvm_ext.custom import CustomCall, CustomTensor

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


def call_of(case: AudioCase) -> CustomCall:
    constants = (CustomTensor(shape=c.shape, dtype=str(c.dtype), constant=c) for c in case.constants)
    return CustomCall(
        operator=case.operator, options=case.options,
        inputs=(*(CustomTensor(shape=shape, dtype=dtype) for dtype, shape in case.inputs), *constants),
        outputs=tuple(CustomTensor(shape=shape, dtype=dtype) for dtype, shape in case.outputs),
    )  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_references_are_tflms(name: str) -> None:
    """Over runs in turn, states and all."""
    case, net = CASES[name], TfliteWriter()
    _, results = case.write(net, name)
    interpreter, random = interpreter_of(net.finish(results)), np.random.default_rng(1)
    operator = custom_operator(case.operator)
    assert operator is not None
    call = call_of(case)
    assert operator.refuses(call) is None
    assert [(t.dtype, t.shape) for t in operator.outputs(call)] == list(case.outputs)
    states = [state.initial for state in operator.states(call)]
    for run in range(100):
        inputs = case.drawn(random)
        made = operator.reference(call, [*inputs, *case.constants, *states])
        found, states = made[: len(results)], list(made[len(results) :])
        expected = answers(interpreter, inputs, len(results))
        if run >= case.settles:
            assert_meant(case, found, expected)


@pytest.mark.board
def test_their_c_is_tflms(tmp_path: Path) -> None:
    """All of them side by side in one model, on the host and on the board; each alone in TensorFlow Lite Micro."""
    random = np.random.default_rng(2)
    samples, expected = [dict[str, Array]() for _ in range(RUNS)], dict[str, list[list[Array]]]()
    for name, case in CASES.items():
        alone = TfliteWriter()
        given, results = case.write(alone, name)
        interpreter, expected[name] = interpreter_of(alone.finish(results)), []
        for sample in samples:
            inputs = case.drawn(random)
            sample |= {alone.tensors[index].name: array for index, array in zip(given, inputs, strict=True)}
            expected[name].append(answers(interpreter, inputs, len(results)))
    path, net, ports = side_by_side(tmp_path)
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", BuildOptions(verify=()))
    with package.session() as session:
        on_host = [session.run(sample) for sample in samples]
    for found in (on_host, list(package.run_board(samples).outputs)):
        for name, results in ports.items():
            for run in range(CASES[name].settles, RUNS):
                assert_meant(CASES[name], [found[run][net.tensors[i].name] for i in results], expected[name][run])


@pytest.mark.parametrize("name", ["stacker", "framer"])
def test_what_tflm_leaves_unwritten_is_not_compared_with_it(name: str, tmp_path: Path) -> None:
    case, net = CASES[name], TfliteWriter()
    _, results = case.write(net, name)
    module = tvm_ext.load(saved(net, results, tmp_path, name))
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=("host",)))
    said = package.report["verify"]["host"]
    assert said["passed"] and said["reference"].startswith("TVM with the CustomOperator's own reference")
    assert "leaves its results unwritten as long as they are not valid" in said["own_reading"]


def _inputs(*shaped: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    return {"inputs": shaped}


def _with(name: str, **options: Any) -> dict[str, Any]:
    return {"options": {**CASES[name].options, **options}}


def _places(index: int, value: int) -> dict[str, Any]:
    """The filter bank's tables with one element changed."""
    tables = [table.copy() for table in CASES["filter_bank"].constants]
    tables[index][1] = value
    return {"constants": tables}


@pytest.mark.parametrize(
    ("name", "changes", "reason"),
    [
        ("window", _inputs(("int8", (3, 20))), "its tensors are int8, int16 to int16; int16, int16 to int16 is needed"),
        ("window", _inputs(("int16", (3, 7))), r"its window \[10\] does not fit an input of \[3, 7\]"),
        ("window", _with("window", shift=32), "option 'shift' is 32; allowed is 0 to 31"),
        ("auto_scale", _inputs(("int16", (2, 6))), r"its input has shape \[2, 6\]; it must be a vector"),
        ("rfft_s16", _with("rfft_s16", fft_length=96), "option 'fft_length' is 96; it must be a power of two from 4"),
        ("rfft_s16", _with("rfft_s16", fft_length=32), "its input has 50 samples a row, more than 32"),
        ("rfft_s16", _inputs(("int8", (50,))), r"its input is int8\[50\]; its type must be one of int16"),
        ("irfft_s16", _with("irfft_s16", fft_length=32), "its input has 66 elements a row, not 34"),
        ("energy", _inputs(("int16", (67,))), r"its input has shape \[67\]; it must be a vector of pairs"),
        ("energy", _with("energy", end_index=34), "bins 3 to 34 exceed the 33 bins"),
        ("filter_bank", _inputs(("uint32", (3, 11))), "its input is not a vector, or its weights and indices are not"),
        ("filter_bank", _with("filter_bank", num_channels=7), "it has 7 channels, but indices for 6"),
        ("filter_bank", _places(2, 32), "its channels read beyond 33 bins or 27 weights"),
        ("filter_bank", _places(2, -1), "its channels read beyond"),
        ("filter_bank", _places(3, 26), "its channels read beyond"),
        ("filter_bank", _places(4, -3), "its channels read beyond"),
        ("square_root", _inputs(("uint64", (2, 8))), r"its inputs have shapes \[2, 8\] and \[\]; they must be a"),
        ("subtraction", _with("subtraction", num_channels=8), r"its input has shape \[9\]; it must be \[8\]"),
        ("subtraction", _with("subtraction", smoothing_bits=32), "option 'smoothing_bits' is 32; allowed is 0 to 31"),
        ("subtraction", _with("subtraction", smoothing=-1), "option 'smoothing' is negative"),
        ("pcan", _inputs(("uint32", (16,)), ("uint32", (8,))), r"its inputs have shapes \[16\], \[8\], \[125\]"),
        ("pcan", {"constants": [np.zeros(124, np.int16)]}, "its table of gains has 124 entries; it needs 125"),
        ("pcan", _with("pcan", snr_shift=64), "option 'snr_shift' is 64; allowed is 0 to 63"),
        ("log", _inputs(("uint32", (4, 4))), r"its input has shape \[4, 4\]; it must be a vector"),
        ("log", _with("log", input_correction_bits=-1), "option 'input_correction_bits' is -1; allowed is 0 to 31"),
        ("framer", _with("framer", frame_step=5), r"frames of 10 samples, one every 5, do not fit an input of \[2, 12"),
        ("framer_with_gaps", _with("framer_with_gaps", prefill=True), "its step 5 is longer than its frame 3"),
        ("stacker", _with("stacker", num_channels=3), r"its input has shape \[4\]; it must be \[3\]"),
        ("stacker", _with("stacker", stacker_step=5), r"option 'stacker_step' is 5; a stack has 1 \+ 1 \+ 2 vectors"),
        ("delay", _with("delay", delay_length=0), r"an input of \[2, 8\] cannot be delayed by 0 samples"),
        ("overlap_add", _inputs(("int32", (2, 3, 10))), r"its input is int32\[2, 3, 10\]; it must be frames of int16"),
        ("overlap_add", _with("overlap_add", frame_step=11), "option 'frame_step' is 11; frames have 10"),
        ("circular_buffer", _inputs(("int16", (1, 1, 2, 3))), "both must be int8 of rank 4"),
        ("circular_buffer", _inputs(("int8", (1, 1, 2, 4))), "the input must be one row of the output"),
        ("circular_buffer", _with("circular_buffer", cycles_max=2), "the network after it runs once in 2 runs"),
        ("circular_buffer", {"options": {}}, "without option 'cycles_max', 4 rows do not say if"),
    ],
)  # fmt: skip
def test_calls_that_they_refuse(name: str, changes: dict[str, Any], reason: str) -> None:
    case = replace(CASES[name], **changes)
    operator = custom_operator(case.operator)
    assert operator is not None
    assert re.search(reason, str(operator.refuses(call_of(case))))


def test_scales_of_a_circular_buffer_that_differ() -> None:
    call, operator = call_of(CASES["circular_buffer"]), custom_operator("CIRCULAR_BUFFER")
    assert operator is not None
    scaled = replace(call, inputs=tuple(replace(tensor, scale=(0.5,)) for tensor in call.present))
    assert operator.refuses(scaled) == "its input and output have different scales"


def test_an_option_that_is_missing(tmp_path: Path) -> None:
    net = TfliteWriter()
    _, results = replace(CASES["window"], options={"other": 1}).write(net, "window")
    with pytest.raises(UnsupportedModel, match=r"fails: ValueError: option 'shift' is None; it must be an integer"):
        tvm_ext.load(saved(net, results, tmp_path, "window"))


def test_an_input_that_is_left_out() -> None:
    call, operator = call_of(CASES["window"]), custom_operator("SignalWindow")
    assert operator is not None
    with pytest.raises(ValueError, match="input 1 is missing"):
        operator.code(replace(call, inputs=(call.inputs[0], None)))
