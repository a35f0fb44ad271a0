"""Dense layers around a wide vector: within a budget, a run of its channels is held at a time; no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from benchmarks import zoo
from benchmarks.networks.dense import wide_mlp
from benchmarks.networks.quantize import quantized
from codegen_c.backend.build import Compiled
from codegen_c.program.steps import RowSteps
from tests.support.onnx_models import saved
from tests.support.packages import sample
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions, Package
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

BOARD = "cortex_m4"
SMALLEST = {"mlp_64_4096_int8": 416, "mlp_64_4096_fp32": 640, "ffn_16_128_512_int8": 2816, "ffn_16_128_512_fp32": 10752}
"""Bytes of arena; whole, they need 12,352, 16,640, 13,312 and 49,152."""
MLP, FFN = [*SMALLEST][:2], [*SMALLEST][2:]


def compiled(model: onnx.ModelProto, folder: Path, ram: int | None = None, platform: str = BOARD) -> Compiled:
    module = tvm_ext.load(saved(model, folder))
    return compile_module(module, Platform.load(platform), BuildOptions(ram=ram))


def sequences(program: Compiled) -> list[RowSteps]:
    return [step for step in program.program.steps if isinstance(step, RowSteps)]


@pytest.mark.parametrize("name", some_of(FFN[:1], sweep=[*FFN[1:], *MLP]))
def test_smallest_budgets_keep_every_bit(name: str, tmp_path: Path) -> None:
    """With dead bytes destroyed behind each step; both packages verify against onnxruntime."""
    module = tvm_ext.load(saved(zoo.build(name), tmp_path, name))

    def built(ram: int | None) -> Package:
        return tvm_ext.build(module, BOARD, tmp_path / str(ram), BuildOptions(ram=ram, verify=("host",)))

    whole, small = built(None), built(SMALLEST[name])
    assert small.report["arena_bytes"] <= SMALLEST[name]
    assert small.report["fit"]["attempts"][-1]["method"] in ("split", "split, least scratch")
    inputs = sample(whole)
    expected = whole.run(inputs)
    for output, array in small.run(inputs).items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[output].view(np.uint8))


@pytest.mark.parametrize("name", some_of(FFN, sweep=MLP))
def test_poison_changes_nothing(name: str, tmp_path: Path) -> None:
    model = zoo.build(name)
    whole, small = compiled(model, tmp_path), compiled(model, tmp_path, SMALLEST[name])
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, 0)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, _ = run_poisoned(small, inputs)
    for output, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[output].view(np.uint8))


def test_code_does_not_grow_with_the_number_of_runs(tmp_path: Path) -> None:
    """A hidden vector eight times as long: the same lines of code, and a ring no larger."""
    found = [
        compiled(quantized(wide_mlp("mlp", features=16, hidden=hidden)), tmp_path, ram=300) for hidden in (512, 4096)
    ]
    lines = [
        {name: len(text.splitlines()) for name, text in one.sources().items() if "weights" not in name} for one in found
    ]
    assert lines[0] == lines[1]
    rings = [tensor.num_bytes for one in found for tensor in one.program.tensors.values() if tensor.ring]
    assert len(rings) == 2 and max(rings) <= 128
    assert any("each computes runs of channels as late" in text for text in found[0].sources().values())


def test_roomy_budgets_take_longer_runs(tmp_path: Path) -> None:
    """Fewer calls cost less, so a budget above the least is used."""
    model = zoo.build("mlp_64_4096_int8")
    tight, roomy = (compiled(model, tmp_path, ram) for ram in (416, 2000))
    assert tight.plan.arena_bytes < roomy.plan.arena_bytes <= 2000
    assert tight.modelled_instructions > roomy.modelled_instructions


def test_within_the_budget_nothing_is_in_parts(tmp_path: Path) -> None:
    whole = compiled(zoo.build("mlp_64_4096_int8"), tmp_path, ram=12_352)
    assert not sequences(whole) and [attempt.method for attempt in whole.attempts] == ["whole"]


@pytest.mark.parametrize("hidden", [250, 30])
def test_vectors_that_no_run_divides_stay_whole(hidden: int, tmp_path: Path) -> None:
    """250 and 30 are no multiples of four."""
    model = quantized(wide_mlp("mlp", features=16, hidden=hidden))
    least = compiled(model, tmp_path).plan.arena_bytes
    assert not sequences(compiled(model, tmp_path, ram=least))


@pytest.mark.parametrize(
    ("make", "ram"), some_rows([(quantized, 800)], sweep=[(lambda model: model, 1500)]), ids=["int8", "float32"]
)
def test_runs_in_several_memories(make: Callable[[onnx.ModelProto], onnx.ModelProto], ram: int, tmp_path: Path) -> None:
    """Both memories for tensors are short: the same bits as with all of them."""
    module = tvm_ext.load(saved(make(wide_mlp("mlp", features=64, hidden=1024)), tmp_path))

    def built(name: str, ram: dict[str, int] | None) -> Package:
        return tvm_ext.build(module, "always_on", tmp_path / name, BuildOptions(ram=ram, verify=("host",)))

    whole, small = built("whole", None), built("small", {"sram": ram, "dtcm": ram // 4})
    assert small.report["fit"]["attempts"][-1]["method"] == "split"
    inputs = sample(whole)
    expected = whole.run(inputs)
    for output, array in small.run(inputs).items():
        np.testing.assert_array_equal(array, expected[output])
