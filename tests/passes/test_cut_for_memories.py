"""CutForMemories: rows and repeats where several memories make them faster, and modules it leaves alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.costs.predict import time_model
from codegen_c.targets.registry import target_of
from relay_passes.dataflow import bindings
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.memory.cut_for_memories import CutForMemories
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.solvers.memories.problem import AssignmentProblem
from relay_passes.solvers.memories.repeats import promising
from relay_passes.solvers.memories.updates import Update, Updates
from tests.support.image_networks import image_network
from tests.support.memory_problems import always_on
from tests.support.onnx_models import NODE, model_of, saved, weights
from tests.support.virtual_machine import run
from tvm_ext.core.decisions.composites import RowSplit
from tvm_ext.core.platform import Platform

NEAR_BYTES = 2048
LIMITS = {"sram": 1 << 21, "dtcm": NEAR_BYTES}
ADDED = {
    "sequence",
    "rows_per_call",
    "split_peak_bytes",
    "split_instructions",
    "schedule_peak_bytes",
    "schedule_proved",
}


def backend(platform: Platform) -> CodegenBackend:
    return CodegenBackend(target=target_of(platform.processor))


def formed(folder: Path, platform: Platform) -> tvm.IRModule:
    """A chain of convolutions whose first image is larger than the near memory."""
    stages = [FoldConstants(), FormComposites(backend(platform)), ConvertLayout()]
    return tvm.transform.Sequential(stages)(tvm_ext.load(saved(image_network(4), folder)))


def cut(module: tvm.IRModule, platform: Platform, limits: Mapping[str, int] = LIMITS) -> tvm.IRModule:
    return CutForMemories(backend(platform), time_model(platform), limits)(module)


def sequences(module: tvm.IRModule) -> list[str]:
    """The sequence of each function that main calls, empty for what runs whole."""
    calls = [binding.value for binding in bindings(module["main"])]
    return [RowSplit.read(module[call.op]).sequence for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]


def test_before_and_expected(tmp_path: Path) -> None:
    """Only attributes change: those of functions in a sequence, and of main."""
    platform = always_on(NEAR_BYTES)
    before = formed(tmp_path, platform)
    after = cut(before, platform)
    assert not any(sequences(before)) and sequences(after).count("sequence_0") > 1
    expected = before.clone()
    for name, function in after.functions_items():
        attributes = {key: function.attrs[key] for key in ADDED & set(function.attrs.keys())}
        if attributes:
            expected.update_func(expected.get_global_var(name.name_hint), before[name].with_attrs(attributes))
    tvm.ir.assert_structural_equal(after, expected)


def test_tvm_runs_it_as_before(tmp_path: Path) -> None:
    platform = always_on(NEAR_BYTES)
    before = formed(tmp_path, platform)
    (param,) = before["main"].params
    x = np.random.default_rng(0).normal(size=[int(n) for n in param.ty.shape.values]).astype(np.float32)
    np.testing.assert_array_equal(run(cut(before, platform), x), run(before, x))


@pytest.mark.parametrize("limits", [{"sram": 1 << 21}, {"sram": 1 << 21, "dtcm": 1 << 20}])
def test_without_a_near_memory_or_with_room_nothing_changes(tmp_path: Path, limits: dict[str, int]) -> None:
    platform = always_on(1 << 20)
    before = formed(tmp_path, platform)
    tvm.ir.assert_structural_equal(cut(before, platform, limits), before)


def test_what_is_cut_already_is_left_alone(tmp_path: Path) -> None:
    platform = always_on(NEAR_BYTES)
    before = SplitSequences(backend(platform), None)(formed(tmp_path, platform))
    assert any(sequences(before))
    tvm.ir.assert_structural_equal(cut(before, platform), before)


@pytest.mark.parametrize("latency", [4, 0])
def test_a_memory_that_streams_no_faster_changes_nothing(tmp_path: Path, latency: int) -> None:
    """Nor does one that has less latency, of which buses hide a part that nothing models."""
    near = always_on(NEAR_BYTES)
    sram = near.memory("sram")
    memories = [
        replace(one, read_bytes_per_cycle=sram.read_bytes_per_cycle, write_bytes_per_cycle=sram.write_bytes_per_cycle,
                latency_cycles=latency) if one.name == "dtcm" else one
        for one in near.memories
    ]  # fmt: skip
    links = [
        replace(link, bytes_per_cycle=4, latency_cycles=latency)
        if (link.source, link.target) == ("cpu", "dtcm")
        else link
        for link in near.links
    ]
    platform = replace(near, memories=tuple(memories), links=tuple(links))
    before = formed(tmp_path, platform)
    tvm.ir.assert_structural_equal(cut(before, platform), before)


class Repeating(Updates):
    """The first repeat that may pay, with the best cut that has sequences; before it, all at home."""

    def fastest(self) -> tuple[Update, Update]:
        ranked = self.with_repeats((promising(self.whole)[0],), self.cuts)
        found = next(one for one in ranked if any(part.rows_per_call for part in one.cut.segments))
        return found, self.uncut(AssignmentProblem.at_home)


def test_a_value_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen channels of one, which wait while layers run by rows: their maker runs once more, by a function of its
    own, and TVM computes the same bits."""
    near = always_on(44 * 1024, dma=False)
    platform = replace(
        near, links=tuple(replace(one, bytes_per_cycle=0.02) if one.target == "sram" else one for one in near.links)
    )
    nodes = [
        NODE("Conv", ["x", "channels"], ["wide"]),
        NODE("Conv", ["wide", "w"], ["t0"], strides=[2, 2], pads=[1] * 4),
        *(NODE("Conv", [f"t{i}", "w"], [f"t{i + 1}"], pads=[1] * 4) for i in range(3)),
        NODE("GlobalAveragePool", ["t3"], ["mean"]),
        NODE("Mul", ["wide", "mean"], ["scaled"]),
        NODE("GlobalMaxPool", ["scaled"], ["y"]),
    ]
    constants = {"channels": weights(16, 1, 1, 1), "w": weights(16, 16, 3, 3)}
    path = saved(model_of(nodes, {"x": (1, 1, 24, 24)}, ["y"], constants), tmp_path)
    stages = [FoldConstants(), FormComposites(backend(platform)), ConvertLayout()]
    before = tvm.transform.Sequential(stages)(tvm_ext.load(path))
    monkeypatch.setattr("relay_passes.memory.cut_for_memories.Updates", Repeating)
    after = cut(before, platform, {"sram": 1 << 21, "dtcm": 44 * 1024})
    assert len([binding for binding in bindings(after["main"]) if ".again" in binding.var.name]) == 1
    assert int(after["main"].attrs["rematerialized_operators"]) == 1
    assert int(after["main"].attrs["rematerialized_instructions"]) > 0
    assert any(sequences(after))
    x = np.random.default_rng(0).normal(size=(1, 1, 24, 24)).astype(np.float32)
    np.testing.assert_array_equal(run(after, x), run(before, x))
