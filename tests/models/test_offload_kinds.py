"""Pools, sums and layers of floats on an accelerator: bytes of the core alone, whenever it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.program.steps import KernelCall
from tests.models.test_offload import Sample, answers, compiled, same
from tests.support.offload_platforms import ALL_KINDS, COSTS, with_accelerator
from tests.support.onnx_models import model_of, weights
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.options import BuildOptions

FAST = with_accelerator("host", dict.fromkeys(ALL_KINDS, COSTS), clock_hz=10**12)


def residual() -> onnx.ModelProto:
    """A sum of two inputs, convolutions of both kinds, pools of both methods, a dense layer; relus behind some."""
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"], name="sum"),
        helper.make_node("Relu", ["s"], ["r"], name="bound"),
        helper.make_node("MaxPool", ["r"], ["m"], name="largest", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Conv", ["m", "w", "b"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["cr"], name="active"),
        helper.make_node("Conv", ["cr", "k"], ["d"], name="deep", pads=[1] * 4, group=8),
        helper.make_node("AveragePool", ["d"], ["a"], name="mean", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["a"], ["g"], name="all"),
        helper.make_node("Flatten", ["g"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "v"], ["y"], name="dense"),
    ]
    constants = {
        "w": weights(8, 4, 3, 3), "b": weights(8, seed=1), "k": weights(8, 1, 3, 3, seed=2), "v": weights(8, 5, seed=3),
    }  # fmt: skip
    return model_of(nodes, {"x": (1, 4, 8, 8), "z": (1, 4, 8, 8)}, {"y": (1, 5)}, constants)


def floats(folder: Path, *processors: str) -> tuple[Compiled, list[Sample]]:
    """The model in floats, and samples of it."""
    onnx.save(residual(), folder / "net.onnx")
    chosen = processors or None
    found = compile_module(tvm_ext.load(folder / "net.onnx"), FAST, BuildOptions(name="net", processors=chosen))
    rng = np.random.default_rng(0)
    ports = found.interface.inputs
    return found, [{p.source: rng.normal(size=p.shape).astype(np.float32) for p in ports} for _ in range(2)]


def kernels(found: Compiled) -> set[str]:
    calls = [call for step in found.program.steps if isinstance(call := step, KernelCall)]
    return {call.implementation.kernel for call in calls if call.implementation.driver}


def check(found: Compiled, single: Compiled, samples: list[Sample], folder: Path) -> None:
    expected = answers(single, folder / "single", samples)
    assert same(expected, answers(found, folder / "late", samples))
    assert same(expected, answers(found, folder / "early", samples, "-DTVM_EXT_OFFLOAD_EARLY=1"))


def test_bytes_of_every_kind(tmp_path: Path) -> None:
    found, samples = compiled(residual(), tmp_path, FAST)
    single, _ = compiled(residual(), tmp_path, FAST, processors=("cpu",))
    assert kernels(found) == {f"offload_{kind}" for kind in ("add", "pool", "conv2d", "depthwise", "dense")}
    check(found, single, samples, tmp_path)


def test_floats_of_every_kind(tmp_path: Path) -> None:
    """In the order in which the core adds, fused where it fuses: the same bits."""
    found, samples = floats(tmp_path)
    single, _ = floats(tmp_path, "cpu")
    assert kernels(found) == {f"offload_{kind}_f32" for kind in ("add", "pool", "conv2d", "depthwise", "dense")}
    assert not kernels(single) and not any(c.implementation.computes_floats for c in found.program.kernel_calls())
    check(found, single, samples, tmp_path)


@pytest.mark.board
def test_floats_on_a_board(tmp_path: Path) -> None:
    """The stand-in computes in the board's arithmetic, and the calls counted are those planned."""
    onnx.save(residual(), tmp_path / "net.onnx")
    platform = with_accelerator("cortex_m4", dict.fromkeys(ALL_KINDS, COSTS))
    options = BuildOptions(name="net", verify=("qemu",))
    package = tvm_ext.build(tvm_ext.load(tmp_path / "net.onnx"), platform, tmp_path / "package", options)
    report, planned = package.report, package.report["driver_calls"]
    assert report["verify"]["qemu"]["passed"] and planned["starts"] == len(report["processors"][1]["steps"]) >= 4
    header = (package.folder / "npu_driver.h").read_text(encoding="utf-8")
    assert "void npu_add_f32(" in header and "const tvm_ext_offload_add_f32 *layer, const float *first, const" in header
