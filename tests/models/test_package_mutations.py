"""Faults in the C of a finished package are noticed by its self-test, and by a build: a slice of the benchmark."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tvm_ext
from benchmarks.mutating.c_changes import CChange, changes_of
from benchmarks.mutating.package_trial import PackageTrials
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import saved
from tvm_ext import BuildOptions


def network() -> onnx.ModelProto:
    """A convolution with a stride, a depthwise one, pooling, a dense layer, and probabilities."""
    random = np.random.default_rng(0)
    weights = {
        "w0": random.normal(0, 0.4, (8, 2, 3, 3)), "b0": random.normal(0, 0.1, 8),
        "w1": random.normal(0, 0.4, (8, 1, 3, 3)), "b1": random.normal(0, 0.1, 8),
        "w2": random.normal(0, 0.5, (8, 5)), "b2": random.normal(0, 0.1, 5),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["input", "w0", "b0"], ["c0"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c0"], ["r0"]),
        helper.make_node("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1], group=8),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["g"]),
        helper.make_node("Softmax", ["g"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 2, 9, 7])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("name", "make"), [("int8", lambda: quantized(network())), ("float", network)])
def test_faults_in_a_package_are_noticed(name: str, make: Callable[[], onnx.ModelProto], tmp_path: Path) -> None:
    with PackageTrials(saved(make(), tmp_path, "net"), "cortex_m3", BuildOptions()) as trials:
        changes = changes_of(trials.name, trials.files, seed=1, per_kind=1)
        found = {
            f"{change.kind}: {change.shown(trials.files[change.file])}": trials.trial(change) for change in changes
        }
    harmful = {shown: trial for shown, trial in found.items() if trial.outcome == "changes a result"}
    assert len(found) >= 8 and len(harmful) >= 4, found
    assert not [shown for shown, trial in harmful.items() if not trial.selftest], "by the self-test"
    assert not [shown for shown, trial in harmful.items() if not trial.verified], "by a build"


def int16_network() -> onnx.ModelProto:
    """Words of 16 bits that a scale makes real, then a convolution."""
    weights = np.random.default_rng(0).normal(0, 0.3, (4, 1, 5)).astype(np.float32)
    constants = {"s": np.float32(1 / 32768), "z": np.int16(0), "w": weights}
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
            helper.make_node("Conv", ["d", "w"], ["y"], pads=[2, 2]),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.INT16, [1, 1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 64])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("limit", [1, 3000])
def test_words_of_16_bits_that_are_cut_off_are_noticed(limit: int, tmp_path: Path) -> None:
    """Both were drawn from 0 and 1 once: C that cuts every input off to [-1, 1] passed."""
    with PackageTrials(saved(int16_network(), tmp_path, "words"), "cortex_m3", BuildOptions()) as trials:
        source = trials.files["words.c"]
        at = source.index("words_status words_run(void)\n{\n") + len("words_status words_run(void)\n{\n")
        text = (
            f"    for (int i = 0; i < 64; i++) {{ int16_t *const x = &words_x()[i]; "
            f"*x = (int16_t)(*x < -{limit} ? -{limit} : *x > {limit} ? {limit} : *x); }}\n"
        )
        trial = trials.trial(CChange(kind="clamp", file="words.c", begin=at, end=at, text=text))
    assert trial.outcome == "changes a result" and trial.selftest and trial.verified


def test_a_constant_that_is_one_off_is_noticed_without_a_run(tmp_path: Path) -> None:
    """By the CRC of all constants, though the device draws no vectors and the stored ones may not show it."""
    model, options = tvm_ext.load(saved(network(), tmp_path, "net")), BuildOptions(verify=("host",))
    package = tvm_ext.build(model, "cortex_m3", tmp_path / "package", options)
    source = package.folder / "net_weights.c"
    text = source.read_text()
    source.write_text(re.sub(r"(\d)f,", lambda match: f"{(int(match[1]) + 1) % 10}f,", text, count=1))
    command = ["make", "-s", "-B", "selftest", "CFLAGS=-DTVM_EXT_SELFTEST_DRAWN=0u"]
    done = subprocess.run(command, cwd=package.folder, capture_output=True, text=True, timeout=120, check=False)
    assert "output constants" in done.stdout, done.stdout + done.stderr
