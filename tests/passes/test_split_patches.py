"""SplitPatches: strips of columns stand one after the other in main; the module computes what it did."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax

import tvm_ext
from codegen_c.backend.byoc import CodegenBackend
from codegen_c.targets.registry import target_of
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.dataflow import bindings
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.layout.stream_ports import StreamPorts
from relay_passes.memory.split_patches import SplitPatches
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.regions.form_composites import FormComposites
from relay_passes.searched import row_facts
from relay_passes.simplify.fold_constants import FoldConstants
from relay_passes.solvers.split.patches import PatchedSegments
from tests.support.image_networks import image_network
from tests.support.onnx_models import model_of, saved
from tests.support.sweeps import some_of
from tests.support.virtual_machine import run
from tvm_ext.core.decisions.composites import ColumnStrip, StreamDirection
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))
PATCHED_SEEDS = (0, 3, 5, 9, 14, 15, 17)
"""Networks of wide images that patches make smaller than rows do: with sums, concatenations, pools, strides."""


def formed(path: Path) -> tvm.IRModule:
    return tvm.transform.Sequential([FoldConstants(), FormComposites(BACKEND), ConvertLayout()])(tvm_ext.load(path))


def wide_network(seed: int, folder: Path) -> tvm.IRModule:
    return formed(saved(image_network(seed, aspect=6), folder))


def called(module: tvm.IRModule) -> list[str]:
    """Names of what main calls, in order."""
    calls = [b.value for b in bindings(module["main"]) if isinstance(b.value, relax.Call)]
    return [call.op.name_hint for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]


@pytest.mark.parametrize("seed", some_of(PATCHED_SEEDS[:2], sweep=PATCHED_SEEDS[2:]))
@pytest.mark.slow
def test_fewer_bytes_than_by_rows_and_the_same_result(seed: int, tmp_path: Path) -> None:
    before = wide_network(seed, tmp_path)
    after = SplitPatches(BACKEND, None)(before)
    by_rows = SplitSequences(BACKEND, None)(before)["main"].attrs
    assert int(after["main"].attrs["patched_operators"]) > 1
    assert int(after["main"].attrs["split_peak_bytes"]) < int(by_rows["split_peak_bytes"])
    (param,) = before["main"].params
    x = np.random.default_rng(seed).normal(size=[int(n) for n in param.ty.shape.values]).astype(np.float32)
    expected = run(before, x)
    np.testing.assert_allclose(run(after, x), expected, atol=1e-5 * np.abs(expected).max())


def two_convolutions(folder: Path) -> tvm.IRModule:
    """x: float32[1, 8, 4, 64] -> 3x3 -> 3x3."""
    weights = {f"w{i}": np.ones((32 if i == 0 else 4, c, 3, 3), np.float32) for i, c in enumerate((8, 32))}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["y"], pads=[1] * 4),
    ]
    return formed(saved(model_of(nodes, {"x": (1, 8, 4, 64)}, ["y"], weights), folder))


def test_strips_and_halos_stand_in_the_module(tmp_path: Path) -> None:
    before = two_convolutions(tmp_path)
    after = SplitPatches(BACKEND, None)(before)
    names = called(after)
    firsts = [name for name in names if name.startswith("conv_0_columns_")]
    lasts = [name for name in names if name.startswith("conv_1_columns_")]
    assert len(firsts) == len(lasts) > 1 and names.count("join_conv_1") == 1
    for first, last in zip(firsts, lasts, strict=True):
        (a, b), (c, d) = (after[name].attrs["columns"] for name in (first, last))
        assert (int(a), int(b)) == (max(0, int(c) - 1), min(64, int(d) + 1)), "one column more on each side"
        assert names.index(first) < names.index(last)
    assert int(after[lasts[0]].attrs["columns"][0]) == 0 and int(after[lasts[-1]].attrs["columns"][1]) == 64
    padding = [[int(width) for width in _window(after[name]).attrs.padding] for name in firsts]
    assert padding == [[1, 1, 1, 0], *[[1, 0, 1, 0]] * (len(firsts) - 2), [1, 0, 1, 1]]
    assert not {"conv_0", "conv_1"} & {var.name_hint for var, _ in after.functions_items()}


def _window(composite: relax.Function) -> relax.Call:
    return next(b.value for b in bindings(composite) if b.value.op.name == "relax.nn.conv2d")


@pytest.mark.parametrize(("include", "cut"), [(0, True), (1, False)])
def test_windows_that_reach_behind_the_last_column(include: int, cut: bool, tmp_path: Path) -> None:
    """A mean that counts padding, but not what a rounded-up size adds to it, cannot be told apart at a strip's end."""
    weights = {"w": np.ones((16, 8, 3, 3), np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4),
        helper.make_node(
            "AveragePool", ["a"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1, count_include_pad=include
        ),
    ]
    before = formed(saved(model_of(nodes, {"x": (1, 8, 4, 64)}, ["y"], weights), tmp_path))
    after = SplitPatches(BACKEND, None)(before)
    assert any(name.startswith("averagepool_1_columns_") for name in called(after)) == cut
    x = np.random.default_rng(0).normal(size=(1, 8, 4, 64)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-4)


def test_within_the_budget_of_rows_nothing_changes(tmp_path: Path) -> None:
    """No column is computed twice where rows alone do."""
    before = two_convolutions(tmp_path)
    by_rows = int(SplitSequences(BACKEND, None)(before)["main"].attrs["split_peak_bytes"])
    after = SplitPatches(BACKEND, by_rows)(before)
    tvm.ir.assert_structural_equal(after, before)


def test_strips_of_padding_alone_are_no_choice(tmp_path: Path) -> None:
    weights = {f"w{i}": np.ones((32 if i == 0 else 4, c, 3, 3), np.float32) for i, c in enumerate((8, 32))}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["y"], pads=[1, 40, 1, 40]),
    ]
    before = formed(saved(model_of(nodes, {"x": (1, 8, 4, 64)}, ["y"], weights), tmp_path))
    operators = OperatorGraph(before, before["main"], BACKEND)
    segments = PatchedSegments(operators.graph(), row_facts(operators), operators.columns, operators.instructions)
    counts = {len(found.strips) for found in segments.of(1, 3) if found.strips}
    assert counts == {2, 3}, "of 142 columns the outer 38 read padding"
    assert any(name.startswith("conv_1_columns_") for name in called(SplitPatches(BACKEND, None)(before)))


def test_a_constant_for_each_column_is_not_cut(tmp_path: Path) -> None:
    weights = {f"w{i}": np.ones((32 if i == 0 else 4, c, 3, 3), np.float32) for i, c in enumerate((8, 32))}
    weights["c"] = np.arange(64, dtype=np.float32).reshape(1, 1, 1, 64)
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Add", ["a", "c"], ["s"]),
        helper.make_node("Conv", ["s", "w1"], ["y"], pads=[1] * 4),
    ]
    before = formed(saved(model_of(nodes, {"x": (1, 8, 4, 64)}, ["y"], weights), tmp_path))
    tvm.ir.assert_structural_equal(SplitPatches(BACKEND, None)(before), before)


def test_what_reads_a_stream_stays_in_one_strip(tmp_path: Path) -> None:
    """Its rows come once."""
    before = StreamPorts()(two_convolutions(tmp_path))
    (reading,) = OperatorGraph(before, before["main"], BACKEND).reading
    name = called(before)[reading]
    assert called(SplitPatches(BACKEND, None)(before)).count(name) == 1


def test_rows_that_may_be_asked_for_again_are_for_each_strip(tmp_path: Path) -> None:
    """A read of its own in each strip, of the columns that its first layer needs; the module computes what it did."""
    plain = two_convolutions(tmp_path)
    before = StreamPorts(rereads=True)(plain)
    after = SplitPatches(BACKEND, None)(before)
    reads, firsts = ([n for n in called(after) if n.startswith(f"{what}_columns_")] for what in ("read_x", "conv_0"))
    assert len(reads) == len(firsts) > 1 and "read_x" not in called(after)
    for read, first in zip(reads, firsts, strict=True):
        (a, b), (c, d) = (ColumnStrip.read(after[name]).columns or (0, 0) for name in (read, first))
        assert (a, b) == (max(0, c - 1), min(64, d + 1)), "what its window reads"
        assert StreamDirection.read(after[read]) == StreamDirection(direction="read", rereads=True)
    x = np.random.default_rng(0).normal(size=(1, 8, 4, 64)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(plain, x), rtol=1e-5)


def test_a_network_without_images_is_left_alone(tmp_path: Path) -> None:
    weights = {"w": np.ones((64, 64), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    before = formed(saved(model_of(nodes, {"x": (1, 64)}, ["y"], weights), tmp_path))
    tvm.ir.assert_structural_equal(SplitPatches(BACKEND, None)(before), before)
