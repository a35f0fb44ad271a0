"""Packages that take hops of a window over time, beside the window's own answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import tvm_ext
from tests.support.onnx_models import NODE, model_of, saved
from tests.support.peers import peer
from tests.support.sweeps import some_rows
from tests.support.tflite_models import SAME, VALID
from tests.support.tflite_runners import saved_tflite
from tests.support.tflite_state_models import over_time
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions, NotReady
from tvm_ext.frontends.shapes import ModelNotice
from tvm_ext.verification.reference_runtimes.ask import ask
from tvm_ext.verification.windows import against_windows, inner_of


@pytest.mark.coverage
@pytest.mark.board
@pytest.mark.parametrize(("padding", "hop"), some_rows([(VALID, 2), (SAME, 1)], sweep=[(VALID, 1), (SAME, 2)]))
def test_hops_answer_as_windows(padding: int, hop: int, tmp_path: Path) -> None:
    """By TensorFlow Lite Micro on whole windows, and byte for byte by the program of whole windows."""
    peer("tflite_micro")
    module = tvm_ext.load(saved_tflite(over_time(padding=padding), tmp_path))
    options = BuildOptions(new_frames={"frames": hop}, time_axis={"frames": 1})
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "package", options)
    for target in ("host", "qemu"):
        assert package.report["verify"][target]["passed"]
    host = package.report["verify"]["host"]
    assert host["reference"] == "TensorFlow Lite Micro" and host["elements"] == 300
    assert package.report["warm_up_runs"] == 12 // hop - 1
    assert package.report["selftest_coverage"]["missed"] == {}


def test_the_first_runs_are_not_ready(tmp_path: Path) -> None:
    module = tvm_ext.load(saved_tflite(over_time(), tmp_path))
    options = BuildOptions(new_frames={"frames": 4}, time_axis={"frames": 1}, verify=())
    package = tvm_ext.build(module, "host", tmp_path / "package", options)
    whole = tvm_ext.build(module, "host", tmp_path / "whole", BuildOptions(verify=()))
    frames = np.random.default_rng(0).integers(-128, 128, (1, 16, 1, 8)).astype(np.int8)
    parts = [{"frames": frames[:, begin : begin + 4]} for begin in range(0, 16, 4)]
    with package.session() as session:
        for _ in range(2):
            for part in parts[:2]:
                with pytest.raises(NotReady, match=r"is full after 2 runs from a reset"):
                    session.run(part)
            for end, part in ((12, parts[2]), (16, parts[3])):
                wanted = whole.run({"frames": np.ascontiguousarray(frames[:, end - 12 : end])})
                for name, array in session.run(part).items():
                    np.testing.assert_array_equal(array, wanted[name])
            session.reset()


@pytest.mark.board
@pytest.mark.parametrize(
    ("board", "most_instructions"), some_rows([("cortex_m55", 25_000)], sweep=[("cortex_m4", 70_000)])
)
def test_the_streaming_wake_word(board: str, most_instructions: int, shared_streaming: Path, tmp_path: Path) -> None:
    """MLPerf Tiny's, a window of 30 frames of which each run brings one, in 4,096 B of all memories together."""
    peer("tflite_micro")
    module = tvm_ext.load(shared_streaming / "str_ww.tflite")
    (name,) = (param.name for param in module["main"].params)
    options = BuildOptions(new_frames={name: 1}, time_axis={name: 1}, ram=4096)
    package = tvm_ext.build(module, board, tmp_path / "package", options)
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    assert {state["update"] for state in package.report["states"]} == {"shift"}
    assert package.report["verify"]["qemu"]["instructions"] <= most_instructions
    assert sum(memory["used_bytes"] for memory in package.report["memories"] if memory["kind"] == "ram") <= 4096


@pytest.mark.parametrize(("hop", "pays"), [(1, ""), (12, r" new_frames makes this model slower: remove the option\.")])
def test_a_hop_that_computes_more_than_what_is_new_says_so(hop: int, pays: str, tmp_path: Path) -> None:
    module = tvm_ext.load(saved_tflite(over_time(padding=SAME), tmp_path))
    options = BuildOptions(new_frames={"frames": hop}, time_axis={"frames": 1}, verify=())
    text = (
        rf"hop frames={hop}: a run computes [\d,]+ multiply-accumulates, a run on the whole window 5,952; "
        r"RESHAPE_2 \(reshape\) "
        rf"mixes time with other axes: .*; rows that padding touches .* by "
        rf"CONV_2D_0 \(conv2d\) 768, DEPTHWISE_CONV_2D_1 \(conv2d\) 320\.{pays}$"
    )
    with pytest.warns(ModelNotice, match=text):
        compile_module(module, Platform.load("host"), options)


def test_a_window_that_differs_is_named(tmp_path: Path) -> None:
    """Outputs of one hop with a bit turned."""
    peer("tflite_micro")
    module = tvm_ext.load(saved_tflite(over_time(), tmp_path))
    random = np.random.default_rng(3)
    windows = [{"frames": random.integers(-128, 128, (1, 12, 1, 8)).astype(np.int8)} for _ in range(4)]
    said = ask(module, windows, inner_of(module), quantized_here=False)
    given = [dict(sample) for sample in said.outputs]
    assert against_windows(module, given, windows, said)[0] == []
    ((name, array),) = given[3].items()
    given[3][name] = array ^ 1
    errors, compared = against_windows(module, given, windows, said)
    assert errors == [f"output {name} of window 3 differs from the output for the whole window"] and compared > 0


def test_floats_behind_integers_are_near_those_of_the_window(tmp_path: Path) -> None:
    """A sigmoid of C is no sigmoid of numpy, to the last bit."""
    nodes = [
        NODE("DequantizeLinear", ["frames", "scale", "point"], ["x"]),
        NODE("DequantizeLinear", ["integers", "scale", "point"], ["w"]),
        NODE("Conv", ["x", "w"], ["sums"]),
        NODE("QuantizeLinear", ["sums", "scale", "point"], ["q"]),
        NODE("DequantizeLinear", ["q", "scale", "point"], ["logits"]),
        NODE("Sigmoid", ["logits"], ["y"]),
    ]
    integers = np.random.default_rng(0).integers(-127, 128, (6, 4, 3)).astype(np.int8)
    constants = {"integers": integers, "scale": np.float32(1 / 64), "point": np.int8(0)}
    model = model_of(nodes, {"frames": ((1, 4, 9), TensorProto.INT8)}, ["y"], constants)
    options = BuildOptions(new_frames={"frames": 2}, time_axis={"frames": 2}, verify=("host",))
    package = tvm_ext.build(tvm_ext.load(saved(model, tmp_path)), "host", tmp_path / "package", options)
    assert package.report["verify"]["host"]["passed"]


def test_hops_of_several_inputs_are_refused() -> None:
    with pytest.raises(BadOptions, match=r"one input over time"):
        BuildOptions(new_frames={"a": 1, "b": 1})
    with pytest.raises(BadOptions, match=r"give \{input: frames\}"):
        BuildOptions(new_frames={"a": "1"})  # type: ignore[dict-item]
