"""Variable tensors of TensorFlow Lite files as states: what interpreters keep between calls, integers to the byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tflite

import tvm_ext
from tests.support import tflite_state_models as models
from tests.support.peers import peer
from tests.support.sweeps import some_of, some_rows
from tests.support.tflite_file import Quantized, TfliteWriter
from tests.support.tflite_models import RELU
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Package, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import UnsupportedModel

NONE, RELU6 = tflite.ActivationFunctionType.NONE, tflite.ActivationFunctionType.RELU6


def built(data: bytes, folder: Path, platform: str = "host") -> Package:
    peer("tflite_micro")
    return tvm_ext.build(saved_tflite(data, folder), platform, folder / "package", BuildOptions())


def updates(package: Package) -> list[str]:
    return [state["update"] for state in package.report["states"]]


@pytest.mark.parametrize(
    ("options", "update"),
    [
        ({}, "ring"),
        ({"activation": RELU6, "rank": 1, "memory": 7}, "ring"),
        ({"activation": NONE, "batch": 2}, "in place"),
    ],
)
def test_svdf_is_that_of_tflm(options: dict[str, int], update: str, tmp_path: Path) -> None:
    package = built(models.svdf(**options), tmp_path)  # type: ignore[arg-type]
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TensorFlow Lite Micro" and host["elements"] >= 300
    assert updates(package) == [update] and list(package.inputs) == ["x"]


@pytest.mark.parametrize("is_int8", [False, True])
def test_their_multiply_accumulates_are_counted(is_int8: bool, tmp_path: Path) -> None:
    """Features and sums over time of an SVDF, four gates of an LSTM: in plain C as in kernels."""
    state = "int8" if is_int8 else "float32"
    host, options = Platform.load("host"), BuildOptions(verify=())
    svdf = compile_module(tvm_ext.load(saved_tflite(models.svdf(state=state, memory=9), tmp_path)), host, options)
    assert sum(call.implementation.macs for call in svdf.program.kernel_calls()) == 6 * 6 + 6 * 9
    lstm = compile_module(tvm_ext.load(saved_tflite(models.lstm(int8=is_int8, steps=2), tmp_path)), host, options)
    assert sum(call.implementation.macs for call in lstm.program.kernel_calls()) == 2 * 4 * (4 * 5 + 4 * 4)


@pytest.mark.coverage
@pytest.mark.board
@pytest.mark.parametrize("state", ["int8", "int16"])
def test_integer_svdf_gives_tflms_bytes(state: str, tmp_path: Path) -> None:
    """Outputs of portable C are right for 500 steps on the host and 100 on the board, and again after a reset."""
    data = models.svdf(state=state, memory=9)
    package = built(data, tmp_path, "cortex_m4")
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"] and not package.report["verify"][target]["differing"]
    assert package.report["verify"]["host"]["reference"] == "TensorFlow Lite Micro" and updates(package) == ["shift"]
    assert [step["kernel"] for step in package.report["steps"]][:2] == ["qsvdf_features", "qsvdf_sum"]
    assert package.report["selftest_coverage"]["missed"] == {}
    interpreter = peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data)
    random = np.random.default_rng(11)
    with package.session() as session:
        for _ in range(2):
            for _ in range(250):
                x = random.integers(-128, 128, (1, 6)).astype(np.int8)
                interpreter.set_input(x, 0)
                interpreter.invoke()
                np.testing.assert_array_equal(session.run({"x": x})["y"], interpreter.get_output(0))
            session.reset()
            interpreter.reset()


@pytest.mark.board
@pytest.mark.parametrize(
    ("core", "state", "rank", "units", "memory"),
    some_rows(
        [("m4", "int8", 1, 4, 9), ("m4", "int16", 2, 4, 6), ("m55", "int8", 1, 6, 9), ("m55", "int16", 3, 5, 6)],
        sweep=[
            ("m4", "int8", 4, 4, 4), ("m4", "int16", 1, 4, 8), ("m55", "int8", 2, 9, 4), ("m55", "int16", 1, 7, 8),
        ],
    ),
)  # fmt: skip
def test_integer_svdf_by_four_sums_of_a_core_at_a_time(
    core: str, state: str, rank: int, units: int, memory: int, tmp_path: Path
) -> None:
    """The DSP extension computes four features at a time, and Helium four outputs.

    Some ranks need gathered features, and some last vectors have fewer outputs. The zero point of an int8 state is far
    from 0, so that features wrap.
    """
    kept = {4: {"quantized": Quantized(scale=0.03, zero_point=77)}} if state == "int8" else None
    package = built(
        models.svdf(state=state, rank=rank, units=units, memory=memory, changed=kept), tmp_path, f"cortex_{core}"
    )  # fmt: skip
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"] and not package.report["verify"][target]["differing"]
    assert package.report["verify"]["host"]["reference"] == "TensorFlow Lite Micro"
    sums = {"m4": "qsvdf_sum_dsp", "m55": "qsvdf_sum_helium"}[core]
    assert [step["kernel"] for step in package.report["steps"]][:2] == ["qsvdf_features", sums]


@pytest.mark.parametrize("activation", [NONE, RELU])
def test_integer_svdf_of_several_batches(activation: int, tmp_path: Path) -> None:
    package = built(models.svdf(state="int16", batch=2, rank=3, activation=activation), tmp_path)
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TensorFlow Lite Micro" and host["differing"] == 0


@pytest.mark.parametrize("options", [{"rank": 4}, {"rank": 3, "batch": 2}, {"state": "int8", "rank": 1}])
def test_the_references_of_an_integer_svdf_are_those_of_tflm(options: dict[str, int | str], tmp_path: Path) -> None:
    """Features and sums over time: in blocks of several features, and one by one."""
    batch = int(options.get("batch", 1))
    data = models.svdf(**{"state": "int16", "memory": 5, "activation": NONE, **options})  # type: ignore[arg-type]
    program = compile_module(
        tvm_ext.load(saved_tflite(data, tmp_path)), Platform.load("host"), BuildOptions(verify=())
    ).program  # fmt: skip
    features, summed = [call.implementation for call in program.kernel_calls() if "svdf" in call.implementation.kernel]
    interpreter = peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data)
    kept = np.zeros((batch, 4, 1, 3 * int(options["rank"])), options.get("state", "int16"))
    random = np.random.default_rng(4)
    for _ in range(20):
        x = random.integers(-128, 128, (batch, 6)).astype(np.int8)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        window = np.concatenate([kept, *features.reference([x])], axis=1)
        np.testing.assert_array_equal(summed.reference([window])[0], interpreter.get_output(0))
        kept = window[:, 1:]


def scales(zero_point: int = 0) -> Quantized:
    return Quantized(scale=0.01, zero_point=zero_point)


@pytest.mark.parametrize("case", ["zero points", "long sums", "sums that wrap", "sums that wrap twice"])
def test_svdf_of_odd_files(case: str, tmp_path: Path) -> None:
    """Zero points of weights, which are not read, and of the state; sums over time beyond int32, which wrap."""
    if case == "zero points":
        odd = {1: Quantized(scale=0.01, zero_point=9), 4: Quantized(scale=0.03, zero_point=-7)}
        changed = {place: {"quantized": scales} for place, scales in odd.items()}
        data = models.svdf(state="int8", changed=changed)  # type: ignore[arg-type]
    else:
        weights = np.random.default_rng(2).integers(-32768, 32768, (6, 4)).astype(np.int16)
        time_scale = {"long sums": 4e-5, "sums that wrap": 2e-5, "sums that wrap twice": 300.0}[case]
        changed = {2: {"array": weights, "quantized": Quantized(scale=time_scale)}}
        if case != "long sums":  # features reach the ends of the state
            changed[1] = {"quantized": Quantized(scale=1.0)}
            changed[3] = {"quantized": Quantized(scale=0.0008 * time_scale)}
        data = models.svdf(state="int16", changed=changed)  # type: ignore[arg-type]
    package = tvm_ext.build(saved_tflite(data, tmp_path), "host", tmp_path / "package", BuildOptions(verify=()))
    interpreter = peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data)
    random, found, expected = np.random.default_rng(5), [], []
    with package.session() as session:
        for _ in range(60):
            x = random.integers(-40, 40, (1, 6)).astype(np.int8)
            interpreter.set_input(x, 0)
            interpreter.invoke()
            found.append(session.run({"x": x})["y"])
            expected.append(np.array(interpreter.get_output(0)))
    np.testing.assert_array_equal(found, expected)
    kernels = {step["kernel"] for step in package.report["steps"]}  # the others are computed in plain C
    assert ("qsvdf_features" in kernels, "qsvdf_sum" in kernels) == (True, "twice" not in case)
    assert len(np.unique(expected)) > (1 if case == "sums that wrap twice" else 10)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (models.svdf(memory=1), r"its memory is 1 step; without one before, it is a fully connected layer"),
        (models.svdf(changed={4: {"shape": (1, 23)}}), r"its state is \[1, 23\] and its bias \[3\]; \[1, 24\] and"),
        (models.svdf(changed={0: {"shape": (1, 6, 1)}}), r"its input and weights have rank 2"),
        (models.svdf(changed={0: {"shape": (1, 5)}}), r"of rank 2 do not fit an input of 5 values"),
        (models.svdf(state="int8", changed={2: {"array": np.ones((6, 4), np.int16)}}), r"all float32, or int8 with a"),
        (models.svdf(state="int8", changed={0: {"quantized": None}}), r"its tensor 'x' needs one scale"),
        (models.svdf(state="int8", changed={1: {"quantized": Quantized(scale=[0.1] * 6)}}), r"'feature' needs one"),
        (models.svdf(state="int16", changed={4: {"quantized": scales(7)}}), r"zero point of its int16 state is 0"),
        (models.svdf(state="int16", scale=1e9), r"its sums reach .* more than int32 holds"),
    ],
)  # fmt: skip
def test_svdf_that_cannot_be(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_svdf_of_what_the_model_computes(tmp_path: Path) -> None:
    net = TfliteWriter()
    x, weights = net.input("x", (1, 6)), net.input("feature", (6, 6))
    time, bias = net.constant("time", np.ones((6, 4), np.float32)), net.constant("bias", np.ones(3, np.float32))
    kept, y = net.tensor("kept", (1, 24), is_variable=True), net.tensor("y", (1, 3))
    net.operator("SVDF", [x, weights, time, bias, kept], y, "SVDFOptions", Rank=2)
    with pytest.raises(UnsupportedModel, match=r"its weights are computed by the model"):
        tvm_ext.load(saved_tflite(net.finish([y]), tmp_path))


def test_a_state_that_the_graph_is_given(tmp_path: Path) -> None:
    net = TfliteWriter()
    x, kept = net.input("x", (1, 6)), net.input("kept", (1, 24))
    given = [
        net.constant(f"c{place}", np.ones(shape, np.float32)) for place, shape in enumerate([(6, 6), (6, 4), (3,)])
    ]
    y = net.operator("SVDF", [x, *given, kept], net.tensor("y", (1, 3)), "SVDFOptions", Rank=2)
    with pytest.raises(UnsupportedModel, match=r"its state 'kept' is not a variable tensor"):
        tvm_ext.load(saved_tflite(net.finish([y]), tmp_path))


def test_svdf_without_a_bias(tmp_path: Path) -> None:
    net = TfliteWriter()
    x, ones = net.input("x", (1, 6)), [net.constant("w", np.ones((6, 6), np.float32))] * 2
    y = net.operator("SVDF", [x, *ones, -1, net.tensor("kept", (1, 36), is_variable=True)], net.tensor("y", (1, 3)))
    with pytest.raises(UnsupportedModel, match=r"it needs an input, weights of features and of time, a bias"):
        tvm_ext.load(saved_tflite(net.finish([y]), tmp_path))


def test_a_state_of_two_operators(tmp_path: Path) -> None:
    net = TfliteWriter()
    x, kept = net.input("x", (1, 6)), net.tensor("kept", (1, 24), is_variable=True)
    given = [
        net.constant(f"c{place}", np.ones(shape, np.float32)) for place, shape in enumerate([(6, 6), (6, 4), (3,)])
    ]
    outputs = [
        net.operator("SVDF", [x, *given, kept], net.tensor(f"y{index}", (1, 3)), "SVDFOptions", Rank=2)
        for index in range(2)
    ]
    with pytest.raises(UnsupportedModel, match=r"its state 'kept' is read by another operator too"):
        tvm_ext.load(saved_tflite(net.finish(outputs), tmp_path))


def test_a_state_of_another_batch(tmp_path: Path) -> None:
    path = saved_tflite(models.svdf(changed={0: {"signature": (-1, 6)}}), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"its state is for an input of \[1, 6\], not \[2, 6\]"):
        tvm_ext.load(path, shapes={"x": (2, 6)})


@pytest.mark.parametrize(
    "options",
    some_of(
        [{"steps": 3, "clip": 0.3}, {"steps": 2, "batch": 2, "time_major": True}],
        sweep=[{}, {"steps": 33}],
    ),
)
def test_lstm_is_that_of_tflm(options: dict[str, int], tmp_path: Path) -> None:
    package = built(models.lstm(**options), tmp_path)  # type: ignore[arg-type]
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TensorFlow Lite Micro" and host["elements"] >= 400
    assert updates(package) == ["in place", "in place"] and list(package.inputs) == ["x"]


@pytest.mark.coverage
@pytest.mark.board
def test_integer_lstm_gives_tflms_bytes(tmp_path: Path) -> None:
    """Over 500 steps on the host and 100 on the board; a reset begins anew, at the zero point."""
    data = models.lstm(int8=True)
    package = built(data, tmp_path, "cortex_m4")
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"] and not package.report["verify"][target]["differing"]
    assert package.report["verify"]["host"]["reference"] == "TensorFlow Lite Micro"
    assert package.report["selftest_coverage"]["missed"] == {}
    interpreter = peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data)
    random = np.random.default_rng(11)
    with package.session() as session:
        for _ in range(2):
            for _ in range(250):
                x = random.integers(-128, 128, (1, 1, 5)).astype(np.int8)
                interpreter.set_input(x, 0)
                interpreter.invoke()
                np.testing.assert_array_equal(session.run({"x": x})["y"], interpreter.get_output(0))
            session.reset()
            interpreter.reset()


@pytest.mark.parametrize(
    "options",
    some_of(
        [
            {"cell_scale": 4.0, "batch": 2, "time_major": True, "steps": 2},
            {"cell_scale": 2.0**-29, "clip": 1.0},
            {"steps": 6, "channels": 19, "units": 13},
        ],
        sweep=[{"steps": 2, "clip": 0.4}, {"steps": 3, "channels": 16, "units": 32, "batch": 3}],
    ),
)
def test_integer_lstm_over_scales_and_shapes(options: dict[str, float], tmp_path: Path) -> None:
    package = built(models.lstm(int8=True, **options), tmp_path)  # type: ignore[arg-type]
    host = package.report["verify"]["host"]
    assert host["passed"] and host["reference"] == "TensorFlow Lite Micro" and host["differing"] == 0


@pytest.mark.board
@pytest.mark.parametrize("platform", some_of(["cortex_m55", "riscv32_zve32x", "cortex_m4"], sweep=["cortex_m0plus"]))
def test_integer_lstm_runs_in_a_loop_by_the_dense_kernels_of_a_target(platform: str, tmp_path: Path) -> None:
    package = built(models.lstm(int8=True, steps=5, channels=18, units=12), tmp_path, platform)
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"] and not package.report["verify"][target]["differing"]
    assert package.report["verify"]["host"]["reference"] == "TensorFlow Lite Micro"
    wanted = {"cortex_m55": "qlstm_helium", "cortex_m4": "qlstm_dsp"}.get(platform, "qlstm")
    assert wanted in [step["kernel"] for step in package.report["steps"]]


@pytest.mark.parametrize(("int8", "steps"), [(True, (5, 50)), (False, (40, 400))])
def test_the_code_of_an_lstm_does_not_grow_with_its_steps(int8: bool, steps: tuple[int, int], tmp_path: Path) -> None:
    host, options = Platform.load("host"), BuildOptions(verify=())
    sizes: list[tuple[int, int]] = []
    for count in steps:
        model = tvm_ext.load(saved_tflite(models.lstm(int8=int8, steps=count), tmp_path))
        program = compile_module(model, host, options).program
        text = sum(len(call.implementation.function.body) for call in program.kernel_calls())
        sizes.append((sum(constant.data.nbytes for constant in program.constants.values()), text // 100))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("options", [{}, {"steps": 4, "clip": 0.4}, {"cell_scale": 0.5, "steps": 2, "batch": 2}])
def test_the_reference_of_an_integer_lstm_is_that_of_tflm(options: dict[str, float], tmp_path: Path) -> None:
    data = models.lstm(int8=True, **options)  # type: ignore[arg-type]
    program = compile_module(
        tvm_ext.load(saved_tflite(data, tmp_path)), Platform.load("host"), BuildOptions(verify=())
    ).program  # fmt: skip
    (kernel,) = [call for call in program.kernel_calls() if call.implementation.kernel == "qlstm"]
    interpreter = peer("tflite_micro.python.tflite_micro.runtime").Interpreter.from_bytes(data)
    batch, steps = int(options.get("batch", 1)), int(options.get("steps", 1))
    hidden, cell = np.full((batch, 4), -3, np.int8), np.zeros((batch, 4), np.int16)
    random = np.random.default_rng(3)
    for _ in range(20):
        x = random.integers(-128, 128, (batch, steps, 5)).astype(np.int8)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        hidden, cell, output = kernel.implementation.reference([hidden, cell, x.transpose(1, 0, 2)])
        np.testing.assert_array_equal(output.transpose(1, 0, 2), interpreter.get_output(0))


def test_the_weights_of_all_steps_stand_once(tmp_path: Path) -> None:
    """Eight matrices, four biases and a table of 512 B, and what the kernels of this machine fill up."""
    host, options = Platform.load("host"), BuildOptions(verify=(), optimize="size")
    program = compile_module(
        tvm_ext.load(saved_tflite(models.lstm(int8=True, steps=3), tmp_path)), host, options
    ).program
    least = 4 * (4 * 5 + 4 * 4) + 4 * 16 + 512
    assert least <= sum(constant.data.nbytes for constant in program.constants.values()) <= least + 4 * 16


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (models.lstm(changed={1: {"name": ""}}), r"weights, biases and states of all four gates are needed"),
        (models.lstm(changed={9: {"name": "p", "array": np.ones(4, np.float32)}}), r"peepholes, projections and norm"),
        (models.lstm(FusedActivationFunction=RELU), r"the activation of its cell is tanh"),
        (models.lstm(changed={0: {"shape": (1, 5)}}), r"its input has shape \[1, 5\]; rank 3 is needed"),
        (models.lstm(changed={0: {"shape": (1, 1, 6)}}), r"'w1' is \[4, 5\]; \[4, 6\] is needed"),
        (models.lstm(changed={19: {"shape": (1, 3)}}), r"its state 'cell' is \[1, 3\]; \[1, 4\] is needed"),
        (models.lstm(changed={24: {"shape": (1, 4, 1)}}), r"its output is \[1, 4, 1\]; \[1, 1, 4\] is needed"),
        (models.lstm(int8=True, changed={19: {"dtype": "int8"}}), r"with biases of int32 and a cell of int16"),
        (models.lstm(int8=True, changed={3: {"quantized": None}}), r"its tensor 'w3' needs one scale"),
        (models.lstm(int8=True, changed={24: {"quantized": scales()}}), r"its output and its state 'hidden' have one"),
        (models.lstm(int8=True, changed={5: {"quantized": scales(1)}}), r"zero point of its weights and of its cell"),
        (models.lstm(int8=True, cell_scale=0.001), r"the scale of its cell is 0.001; a power of two from 2\^-29 to 4"),
        (models.lstm(int8=True, cell_scale=8.0), r"the scale of its cell is 8; a power of two from 2\^-29 to 4"),
        (models.lstm(int8=True, changed={0: {"quantized": Quantized(scale=1e9)}}), r"its sums reach .* int32 holds"),
    ],
)  # fmt: skip
def test_lstm_that_cannot_be(data: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        tvm_ext.load(saved_tflite(data, tmp_path))


def test_lstm_of_what_the_model_computes(tmp_path: Path) -> None:
    net = TfliteWriter()
    x, given = net.input("x", (1, 1, 5)), net.input("w", (4, 5))
    bias, square = (net.constant(name, np.ones(shape, np.float32)) for name, shape in (("b", 4), ("s", (4, 4))))
    kept = [net.tensor(name, (1, 4), is_variable=True) for name in ("hidden", "cell")]
    y = net.tensor("y", (1, 1, 4))
    inputs = [x, *[given] * 4, *[square] * 4, *[-1] * 3, *[bias] * 4, -1, -1, *kept, *[-1] * 4]
    settings = {"FusedActivationFunction": tflite.ActivationFunctionType.TANH}
    net.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, y, "UnidirectionalSequenceLSTMOptions", **settings)
    with pytest.raises(UnsupportedModel, match=r"its weights are computed by the model"):
        tvm_ext.load(saved_tflite(net.finish([y]), tmp_path))


def test_lstm_of_few_inputs(tmp_path: Path) -> None:
    net = TfliteWriter()
    y = net.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", [net.input("x", (1, 1, 5))], net.tensor("y", (1, 1, 4)))
    with pytest.raises(UnsupportedModel, match=r"it has 1 inputs and 1 outputs; 24 and one are needed"):
        tvm_ext.load(saved_tflite(net.finish([y]), tmp_path))


def test_lstm_of_another_batch(tmp_path: Path) -> None:
    path = saved_tflite(models.lstm(changed={0: {"signature": (-1, 1, 5)}}), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"its states are for 1 sequences at once, not 2"):
        tvm_ext.load(path, shapes={"x": (2, 1, 5)})
