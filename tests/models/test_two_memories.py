"""Models in several memories: the bits of one memory, whatever is moved, and however long it takes to arrive."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.costs.predict import moved_bytes, predicted_cycles, time_model
from codegen_c.program.steps import RowSteps, Transfer
from tests.support.deferred_dma import run_deferred
from tests.support.image_networks import image_network
from tests.support.memory_problems import always_on
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.poison import run_poisoned
from tests.support.random_models import random_model
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions
from tvm_ext.core.options import Io
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

Arrays = dict[str, np.ndarray]


def compiled(path: Path, platform: Platform, **options) -> Compiled:
    return compile_module(tvm_ext.load(path), platform, BuildOptions(**options))


def inputs_of(built: Compiled, seed: int = 3) -> Arrays:
    return random_inputs({port.source: (port.shape, port.dtype) for port in built.interface.inputs}, seed)


def same(found: Arrays, wanted: Arrays) -> None:
    assert list(found) == list(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)


def checked(path: Path, platform: Platform, **options) -> Compiled:
    """A model in all memories as in one; with everything dead destroyed; with transfers that arrive when waited for."""
    one = compiled(path, platform, memories="default", **options)
    several = compiled(path, platform, **options)
    inputs = inputs_of(one)
    wanted = run_instrumented(one, inputs, lambda *_: None)
    found, destroyed = run_poisoned(several, inputs)
    same(found, wanted)
    assert destroyed > 0
    if several.program.moves() and several.interface.io != "caller":
        same(run_deferred(several, inputs), wanted)
    for memory, limit in BuildOptions(**options).limits_bytes(platform).items():
        assert several.plan.bytes_in(memory) <= limit
    return several


@pytest.mark.parametrize("seed", some_of([0, 7], sweep=range(1, 7)))
def test_random_models(seed: int, tmp_path: Path) -> None:
    """Little near memory, so that something has to give; with a DMA and without."""
    path = saved(random_model(seed, num_layers=9), tmp_path)
    checked(
        path, always_on((2048, 4096, 8192)[seed % 3], dma=seed % 4 != 3), io=("arena", "caller", "stream")[seed % 3]
    )


def test_moves_occur_in_these_models(tmp_path: Path) -> None:
    kinds: set[tuple[str, str]] = set()
    for seed in range(8):
        path = saved(random_model(seed, num_layers=9), tmp_path, f"net_{seed}")
        kinds |= {*moved_bytes(compiled(path, always_on((2048, 4096, 8192)[seed % 3])).program)}
    assert {("sram", "dtcm"), ("flash", "dtcm")} <= kinds


@pytest.mark.parametrize("name", ["moves_data", "output_that_is_an_input", "value_that_is_output_and_read_on"])
def test_small_models(name: str, tmp_path: Path) -> None:
    checked(saved(SMALL_MODELS[name](), tmp_path), always_on(1024))


@pytest.mark.parametrize("io", some_of(["stream"], sweep=["arena"]))
@pytest.mark.parametrize("name", some_of(["resnet_int8"], sweep=["kws_int8", "resnet_fp32"]))
def test_shared_models(name: str, io: Io, shared_models: Path) -> None:
    """Larger than the near memory; at least 1.5 times as fast, as far as can be predicted."""
    platform = Platform.load("always_on")
    built = checked(shared_models / f"{name}.onnx", platform, io=io)
    time = time_model(platform)
    assert 1.5 * predicted_cycles(built.program, time) < predicted_cycles(built.program, time, only="sram")


def test_resnet_spills_fetches_and_streams(shared_models: Path) -> None:
    built = checked(shared_models / "resnet_int8.onnx", Platform.load("always_on"), ram={"dtcm": 24 * 1024})
    assert {("dtcm", "sram"), ("sram", "dtcm"), ("flash", "dtcm")} <= {*moved_bytes(built.program)}
    transfers = [step for step in built.program.steps if isinstance(step, Transfer)]
    assert [step.number for step in transfers] == list(range(len(transfers)))


@pytest.mark.parametrize(
    ("name", "ram"),
    some_rows([("images", {"sram": 9455, "dtcm": 1668})], sweep=[("resnet_int8", {"sram": 17_500, "dtcm": 3000})]),
)
def test_a_model_that_has_to_be_split_uses_both_memories(
    name: str, ram: dict[str, int], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if name == "images":
        path = saved(image_network(6), tmp_path)
    else:
        path = request.getfixturevalue("shared_models") / f"{name}.onnx"
    built = checked(path, Platform.load("always_on"), ram=ram)
    assert [attempt.method for attempt in built.attempts][-1] == "split"
    assert rings_in(built, "dtcm") or rings_in(built, "sram")
    assert built.plan.bytes_in("dtcm") > 0


def rings_in(built: Compiled, memory: str) -> list[str]:
    """Tensors in a memory of which only some rows are kept."""
    return [t.name for t in built.program.tensors.values() if t.ring and t.memory == memory]


@pytest.mark.parametrize("seed", some_of([4], sweep=[0, 6]))
def test_what_runs_by_rows_lies_near(seed: int, tmp_path: Path) -> None:
    """Images that the near memory has no room for are cut so that it has for their rows; weights come before them."""
    path, platform = saved(image_network(seed), tmp_path), always_on(2048)
    built, time = checked(path, platform), time_model(platform)
    assert rings_in(built, "dtcm")
    assert [call for step in built.program.steps if isinstance(step, RowSteps) for call in step.body if call.prefetched]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tvm_ext.compilation.pipeline.cutting", lambda *_: tvm.transform.Sequential([]))
        uncut = compiled(path, platform)
    assert not rings_in(uncut, "dtcm")
    assert predicted_cycles(built.program, time) < 0.99 * predicted_cycles(uncut.program, time)


@pytest.mark.parametrize("seed", some_of([2], sweep=[1, 3, 5, 7]))
def test_images_of_random_networks(seed: int, tmp_path: Path) -> None:
    checked(saved(image_network(seed), tmp_path), always_on(2048), io="stream" if seed == 5 else "arena")


def test_both_memories_hold_what_one_is_too_small_for(shared_models: Path) -> None:
    path, platform = shared_models / "resnet_int8.onnx", always_on(40_000)
    built = compiled(path, platform, ram=16_000)
    assert [attempt.method for attempt in built.attempts] == ["whole"]
    one = compiled(path, platform, memories="default")
    inputs = inputs_of(one)
    same(run_poisoned(built, inputs)[0], run_instrumented(one, inputs, lambda *_: None))


def test_decisions_can_be_switched_off(shared_models: Path) -> None:
    built = compiled(shared_models / "kws_int8.onnx", Platform.load("always_on"), memories="default")
    assert {place.memory for place in built.plan.placements.values()} == {"sram"}
    assert not built.program.moves()
    with pytest.raises(BadOptions, match="memories = 'both': allowed are all, default"):
        BuildOptions(memories="both")  # type: ignore[arg-type]


def test_a_second_memory_that_gains_nothing_is_not_used(shared_models: Path) -> None:
    """The Cortex-M55's two memories are as fast as each other, and no DMA joins them."""
    built = compiled(shared_models / "kws_int8.onnx", Platform.load("cortex_m55"))
    assert {place.memory for place in built.plan.placements.values()} == {"sram"}


def test_a_run_that_ends_early_leaves_no_transfer_behind(shared_models: Path) -> None:
    """The application's function may fail while a DMA still writes to the arena, which the next run uses again."""
    built = compiled(shared_models / "kws_int8.onnx", Platform.load("always_on"), io="stream")
    text = built.sources()[f"{built.interface.model}.c"]
    run = text[text.index("_run(") :].splitlines()
    started, waited, ends = -1, -1, 0
    for before, line in zip(["", *run], run, strict=False):
        if found := re.search(r"tvm_ext_dma_start\((\d+)u", line):
            started = int(found[1])
        if found := re.search(r"tvm_ext_dma_wait\((\d+)u\); /\*", line):  # a step of the run names its targets
            waited = int(found[1])
        if re.search(r"return (\(\w+\))?status;", line) and waited < started:
            ends += 1
            assert f"tvm_ext_dma_wait({started}u)" in before
    assert ends > 0


def test_pins_and_kept_tensors_stay_as_they_are(shared_models: Path) -> None:
    """A kept input still stands where it was when the run is over, though a copy of it is read."""
    path = shared_models / "kws_int8.onnx"
    platform = Platform.load("always_on")
    source = compiled(path, platform).interface.inputs[0].source
    built = compiled(path, platform, pin={source: 64}, keep=(source,))
    place = built.plan.placements[built.program.inputs[0]]
    assert (place.memory, place.offset, place.end) == ("sram", 64, len(built.program.steps))
    same(run_poisoned(built, inputs_of(built))[0], run_instrumented(built, inputs_of(built), lambda *_: None))


def test_the_same_bytes_come_out(shared_models: Path) -> None:
    sources = [compiled(shared_models / "kws_int8.onnx", Platform.load("always_on")).sources() for _ in range(2)]
    assert json.dumps(sources[0]) == json.dumps(sources[1])


def test_limits_leave_the_stack_its_place() -> None:
    platform = Platform.load("cortex_m7_psram")
    assert platform.board is not None
    limits = BuildOptions().limits_bytes(platform)
    assert limits == {"psram": 1 << 24, "sram": (1 << 18) - platform.board.stack_bytes - 4096}
    asked = BuildOptions(ram={"sram": 1000}).limits_bytes(platform)
    assert asked == {"psram": 1 << 24, "sram": 1000}
    others = tuple(link for link in platform.links if "sram" not in (link.source, link.target))
    assert BuildOptions().limits_bytes(replace(platform, links=others)) == {"psram": 1 << 24}
