"""Weights that grow for speed, where flash has room: not beyond a budget, nor beyond what the memory holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import model_of, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module, compile_within
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.report.tables import totals_table

M4 = Platform.load("cortex_m4")
SPEED = BuildOptions(verify=(), optimize="speed")
INT8 = TensorProto.INT8


@dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution in QDQ form, 16 channels to 16, weights that 4 bits do not hold.

    places: weights of 16 bits that Winograd's kernel `fast` has for two channels.
    """

    module: tvm.IRModule
    window: tuple[int, int]
    places: int
    fast: str

    @property
    def grown(self) -> int:
        """Bytes that Winograd's weights take more than the direct kernel's, with two factors of each channel."""
        return 16 * 16 * (2 * self.places - self.window[0] * self.window[1]) - 8 * 16


@pytest.fixture(scope="module", params=[((3, 3), 16, "qwinograd_dsp"), ((5, 5), 30, "qline_dsp")], ids=["3x3", "5x5"])
def convolution(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Convolution:
    window, places, fast = request.param
    module = tvm_ext.load(saved(convolutions(window), tmp_path_factory.mktemp("convolution")))
    return Convolution(module=module, window=window, places=places, fast=fast)


def convolutions(window: tuple[int, int], num_layers: int = 1) -> onnx.ModelProto:
    """Return a network of one convolution, or of two; the second has no padding and fewer output pixels."""
    random, scale, zero = np.random.default_rng(3), np.full(16, 0.01, np.float32), np.zeros(16, np.int8)
    arrays: dict[str, np.ndarray] = {
        "s": np.float32(0.05), "z": np.int8(-3), "ws": scale, "wz": zero, "t": np.float32(0.9), "b": np.int8(4),
    }  # type: ignore[dict-item]  # fmt: skip
    nodes = [helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d0"])]
    for index in range(num_layers):
        arrays[f"w{index}"] = random.integers(-127, 128, (16, 16, *window)).astype(np.int8)
        pads = [taps // 2 for taps in window] * 2 if index == 0 else [0] * 4
        result = "y" if index + 1 == num_layers else f"q{index}"
        nodes += [
            helper.make_node("DequantizeLinear", [f"w{index}", "ws", "wz"], [f"w{index}.d"], axis=0),
            helper.make_node("Conv", [f"d{index}", f"w{index}.d"], [f"c{index}"], pads=pads),
            helper.make_node("QuantizeLinear", [f"c{index}", "t", "b"], [result]),
        ]
        if result != "y":
            nodes.append(helper.make_node("DequantizeLinear", [result, "t", "b"], [f"d{index + 1}"]))
    return model_of(nodes, {"x": ((1, 16, 12, 12), INT8)}, [("y", INT8)], arrays)


def kernels(compiled: Compiled) -> list[str]:
    """Kernels of convolutions."""
    found = [call.implementation.kernel for call in compiled.program.kernel_calls()]
    return [kernel for kernel in found if "conv" in kernel or kernel in ("qwinograd_dsp", "qline_dsp")]


def test_weights_grow_only_where_there_is_room(convolution: Convolution) -> None:
    fast = compile_module(convolution.module, M4, SPEED)
    small = compile_module(convolution.module, M4, replace(SPEED, least_flash=True))
    sizes = [compiled.program.weights_bytes for compiled in (fast, small)]
    assert (kernels(fast), kernels(small)) == ([convolution.fast], ["qconv2d_dsp"])
    assert sizes[0] - sizes[1] == convolution.grown
    assert kernels(compile_module(convolution.module, M4, replace(SPEED, flash=sizes[0]))) == [convolution.fast]
    within = compile_module(convolution.module, M4, replace(SPEED, flash=sizes[0] - 1))
    assert kernels(within) == ["qconv2d_dsp"] and within.program.weights_bytes == sizes[1]
    assert kernels(compile_within(convolution.module, M4, replace(SPEED, flash=sizes[0]))(None)) == ["qconv2d_dsp"]
    with pytest.raises(DoesNotFit, match=rf"its constants take {sizes[1]} B, and flash = {sizes[1] - 1}, which counts"):
        compile_module(convolution.module, M4, replace(SPEED, flash=sizes[1] - 1))


def test_a_limit_of_flash_keeps_as_many_layers_as_are_needed(tmp_path: Path) -> None:
    """If the limit has room for the expanded weights of only one layer, only the other layer gives them up."""
    module = tvm_ext.load(saved(convolutions((3, 3), num_layers=2), tmp_path))
    fast, small = (compile_module(module, M4, replace(SPEED, least_flash=least)) for least in (False, True))
    assert kernels(fast) == ["qwinograd_dsp"] * 2 and kernels(small) == ["qconv2d_dsp"] * 2
    limit = fast.program.weights_bytes - 1
    within = compile_module(module, M4, replace(SPEED, flash=limit))
    assert sorted(kernels(within)) == ["qconv2d_dsp", "qwinograd_dsp"]
    assert small.program.weights_bytes < within.program.weights_bytes <= limit
    assert small.modelled_instructions > within.modelled_instructions > fast.modelled_instructions
    again = compile_module(module, M4, replace(SPEED, flash=within.program.weights_bytes))
    assert kernels(again) == kernels(within), "the limit that it takes gives the same build"


def test_a_memory_that_does_not_hold_them_takes_them_as_they_are(convolution: Convolution) -> None:
    def with_flash(capacity_bytes: int) -> Platform:
        rest = [memory for memory in M4.memories if memory.name != M4.weights]
        return replace(M4, memories=(*rest, replace(M4.memory(M4.weights), capacity_bytes=capacity_bytes)))

    direct = compile_module(convolution.module, M4, replace(SPEED, least_flash=True)).program.weights_bytes
    assert kernels(compile_module(convolution.module, with_flash(direct), SPEED)) == ["qconv2d_dsp"]
    with pytest.raises(DoesNotFit, match=rf"its weights are {direct} B"):
        compile_module(convolution.module, with_flash(direct - 1), SPEED)


def test_too_much_scratch_leaves_the_next_kernel_not_the_slowest(convolution: Convolution) -> None:
    needed = [
        compile_module(convolution.module, M4, options).plan.bytes_in(M4.activations)
        for options in (SPEED, replace(SPEED, least_flash=True))
    ]
    by_falling_scratch = (convolution.fast, "qconv2d_dsp", "qconv2d_pairs_i8")
    for ram, kernel in zip((needed[0], needed[0] - 16, needed[1] - 16), by_falling_scratch, strict=True):
        assert kernels(compile_module(convolution.module, M4, replace(SPEED, ram=ram))) == [kernel]
        assert kernels(compile_within(convolution.module, M4, SPEED)(ram)) == [kernel]


def test_the_report_says_what_they_bought(convolution: Convolution, tmp_path: Path) -> None:
    report = tvm_ext.build(convolution.module, M4, tmp_path / "out", SPEED).report
    (step,) = (step for step in report["steps"] if step["kernel"] == convolution.fast)
    (direct,) = (other for other in step["alternatives"] if other["kernel"] == "qconv2d_dsp")
    saved = direct["modelled_instructions"] - step["modelled_instructions"]
    assert step["grown_weights"] == {"bytes": convolution.grown, "modelled_instructions_saved": saved}
    labels, figures = totals_table(report).columns
    row = list(labels.cells).index("pre-transformed weights")
    assert list(figures.cells)[row] == f"{convolution.grown:,} B, to save {saved:,} modelled instructions"


def test_balanced_is_the_default_and_weights_do_not_double_for_it(convolution: Convolution) -> None:
    """Its scratch would be the peak of the arena."""
    found = compile_module(convolution.module, M4, BuildOptions())
    assert BuildOptions().optimize == "balanced"
    assert kernels(found) == ["qconv2d_dsp"] and not found.program.has_grown_weights
    assert kernels(compile_module(convolution.module, M4, SPEED)) == [convolution.fast]
