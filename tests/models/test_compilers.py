"""Compilers give the same bits, floats too: none may fuse a multiplication with an addition of its own accord."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import tvm_ext
from benchmarks.networks.graph import Graph
from benchmarks.networks.quantize import quantized
from tests.support.onnx_models import model_of, saved, weights
from tests.support.packages import sample
from tests.support.sweeps import some_rows
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.verification.input_ranges import random_inputs


@pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("clang")), reason="gcc and clang are needed")
def test_gcc_and_clang_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine, whose processor has fused operations, in code without a kernel of its own."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": (2, 4, 9)}, ["y"], {"w": weights(4, 4, 3)})
    module = tvm_ext.load(saved(model, tmp_path))
    package = tvm_ext.build(module, "host", tmp_path / "out", BuildOptions(verify=()))
    inputs = sample(package)
    outputs = {}
    for compiler in ("gcc", "clang"):
        monkeypatch.setenv("CC", compiler)
        outputs[compiler] = package.run(inputs)
    for name, array in outputs["gcc"].items():
        np.testing.assert_array_equal(outputs["clang"][name].view(np.uint32), array.view(np.uint32), err_msg=name)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("board", "shape", "kernel_size", "kernel"),
    [("cortex_m55", (10, 5, 16), 1, "qpointwise_kept_helium"), ("riscv32_zve32x", (8, 11, 5), 3, "qconv2d_rvv")],
)
def test_no_bit_depends_on_how_much_is_optimised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, board: str, shape: tuple[int, ...], kernel_size: int, kernel: str,
    compiler: str,
) -> None:  # fmt: skip
    """Kernels of boards in plain C, which GCC 12 at -O3 had compiled wrong.

    Helium's pointwise layers copy the last pixels of a row to scratch: with the addresses of tensors put into steps,
    a pixel there was read before. RISC-V's products took signed elements for unsigned ones, where the host has VNNI.
    """
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is needed")
    graph = Graph("net", (1, *shape), padding="same")
    hidden = graph.conv(graph.channels_first("input"), shape[-1], kernel_size, activation="relu")
    module = tvm_ext.load(saved(quantized(graph.model(graph.conv(hidden, 6))), tmp_path))
    compiled = compile_module(module, Platform.load(board), BuildOptions())
    assert kernel in {call.implementation.kernel for call in compiled.program.kernel_calls()}
    for name, text in compiled.sources().items():
        (tmp_path / name).write_text(text)
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in compiled.interface.inputs}, 0)
    monkeypatch.setenv("CC", compiler)
    found: list[dict[str, np.ndarray]] = []
    for flag in ("-O1", "-O3"):
        with HostModel(tmp_path, compiled.interface, toolchain=replace(QUICK_TOOLCHAIN, speed_flags=(flag,))) as model:
            found.append(model.run(inputs))
    for name, array in found[0].items():
        np.testing.assert_array_equal(found[1][name], array)


@pytest.mark.skipif(not shutil.which("clang"), reason="clang is needed")
@pytest.mark.parametrize(
    ("channels", "columns"),
    some_rows(
        [(1, 8), (3, 12), (8, 12), (9, 13), (3, 13)],
        sweep=[(1, 12), (1, 13), (3, 8), (8, 8), (8, 13), (9, 8), (9, 12)],
    ),
)
def test_clang_finds_no_function_that_is_not_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, channels: int
) -> None:
    """gcc says nothing of unused inline functions: one float beside vectors, one pixel beside groups of them."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 0, 1, 0]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "d"], ["e"], group=channels, pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["e"], ["s"]),
        helper.make_node("Conv", ["s", "p"], ["q"]),
        helper.make_node("Relu", ["q"], ["t"]),
        helper.make_node("GlobalAveragePool", ["t"], ["y"]),
    ]
    constants = {
        "w": weights(channels, 2, 3, 3), "d": weights(channels, 1, 3, 3), "p": weights(channels, channels, 1, 1),
    }  # fmt: skip
    path = saved(model_of(nodes, {"x": (1, 2, 6, columns)}, ["y"], constants), tmp_path)
    monkeypatch.setenv("CC", "clang")
    tvm_ext.build(tvm_ext.load(path), "host", tmp_path / "out", BuildOptions(verify=()))
