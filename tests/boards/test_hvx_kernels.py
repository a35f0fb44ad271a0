"""Kernels of Hexagon's HVX in QEMU: the instructions themselves against the numpy references."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.kernels.contract import Implementation, Kernel, StoredRows
from codegen_c.operators.kinds import Operator, QPool2d, Window
from codegen_c.targets.hexagon.kernels import elementwise as elementwise_hvx
from codegen_c.targets.hexagon.kernels import pooling as pooling_hvx
from codegen_c.targets.hexagon.kernels import products as products_hvx
from codegen_c.targets.hexagon.kernels.products import WordRescale
from tests.boards.on_board import assert_on_board, check_random_operators, run_on_board
from tests.kernels.on_target import taken_on
from tests.kernels.test_q_hvx import HVX, STRATEGIES, THRICE, all_pairs
from tests.kernels.test_qconv2d_dsp import halfway_pointwise, image, pointwise
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.core.platform import Platform

pytestmark = [pytest.mark.board, pytest.mark.process_board]

PLATFORM = Platform.load("hexagon_v66")
QUICK = replace(PLATFORM, toolchain=replace(PLATFORM.toolchain, speed_flags=("-O1",)))
"""The platform with less optimization, which compiles in less time and gives the same bits."""


@pytest.mark.parametrize("kernel", STRATEGIES, ids=lambda kernel: kernel.name)
def test_bytes_are_those_of_the_reference(kernel: Kernel) -> None:
    """One program of ten random operators, of either type and rounding."""
    check_random_operators(QUICK, HVX, kernel, taken_on(HVX, kernel, STRATEGIES[kernel]), count=10)


def whole_vectors() -> tuple[list[Operator], list[Implementation]]:
    """Layers with several vectors of channels, one of them incomplete, of either type; and pools of such images."""
    layers: list[Operator] = []
    pools: list[Operator] = []
    for dtype in ("int8", "uint8"):
        layers += [
            pointwise(np.arange(rows * depth).reshape(rows, depth) % 255 - 127, dtype=dtype)
            for rows, depth in ((150, 33), (64, 40), (32, 16))
        ]
        source, output = image(1, 5, 6, 150, dtype=dtype), image(1, 3, 3, 150, dtype=dtype)
        window = Window(kernel=(3, 3), strides=(2, 2), padding=(1, 1, 1, 0))
        top = 60 if dtype == "int8" else 190
        maximum = QPool2d(inputs=(source,), outputs=(output,), method="max", window=window, low=top - 170, high=top)
        mean, low = image(1, 1, 1, 150, dtype=dtype, scale=0.013), -128 if dtype == "int8" else 0
        whole = Window(kernel=(5, 6))
        average = QPool2d(inputs=(source,), outputs=(mean,), method="average", window=whole, low=low, high=low + 255)
        same = replace(average, outputs=(replace(source, shape=(1, 1, 1, 150)),), rounding="tflite")
        pools += [maximum, average, same]
    calls = [products_hvx.QCONV2D.implement(one, HVX, StoredRows()) for one in layers]
    return [*layers, *pools], [*calls, *(pooling_hvx.KERNEL.implement(one, HVX, StoredRows()) for one in pools)]


@pytest.mark.parametrize("version", some_of(["v66"], sweep=["v65", "v67"]))
def test_several_vectors_of_channels(version: str) -> None:
    """Versions of the processor have the same instructions."""
    operators, calls = whole_vectors()
    flags = [flag.replace("v66", version) for flag in PLATFORM.toolchain.flags]
    platform = replace(PLATFORM, toolchain=replace(PLATFORM.toolchain, flags=tuple(flags)))
    assert_on_board(platform, calls, operators, 3)


def test_all_pairs_of_sums_that_are_rounded_three_times() -> None:
    calls = [elementwise_hvx.KERNEL.implement(operator, HVX, StoredRows()) for operator in THRICE]
    outputs = run_on_board(QUICK, list(THRICE), calls, [all_pairs() for _ in THRICE])
    for call, result in zip(calls, outputs, strict=True):
        np.testing.assert_array_equal(result, call.reference(all_pairs())[0])


def test_halves_go_to_even() -> None:
    operators = halfway_pointwise()
    for operator in operators:
        assert WordRescale.of_convolution(operator).halves_even
    assert_on_board(PLATFORM, [products_hvx.QCONV2D.implement(one, HVX, StoredRows()) for one in operators], operators)


@pytest.mark.parametrize("model", some_of(["kws_int8"], sweep=["resnet_int8"]))
def test_networks_give_the_bytes_of_tensorflow_lite_micro(shared_models: Path, tmp_path: Path, model: str) -> None:
    """At most 0.05 packets for each multiply-add, within 1.15 of the modelled ones; weights are copied to VTCM."""
    module = tvm_ext.load(shared_models / f"{model}.tflite")
    report = tvm_ext.build(module, "hexagon_v66", tmp_path / "out", BuildOptions(verify=("host", "qemu"))).report
    verified = report["verify"]["qemu"]
    assert verified["passed"] and verified["moved"] is None
    assert verified["instructions"] < 0.05 * report["macs"]
    kernels = {step["kernel"] for step in report["steps"]}
    assert {"qconv2d_hvx", "qdense_hvx"} <= kernels
    modelled = sum(step["modelled_instructions"] for step in report["steps"])
    assert modelled / 1.15 < verified["instructions"] < 1.15 * modelled
    assert any(memory["name"] == "vtcm" and memory["used_bytes"] > 0 for memory in report["memories"])
