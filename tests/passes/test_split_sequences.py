"""SplitSequences: which operators run in series is written on their functions; the module computes what it did."""

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
from relay_passes.dataflow import bindings
from relay_passes.layout.convert_layout import ConvertLayout
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.regions.form_composites import FormComposites
from relay_passes.simplify.fold_constants import FoldConstants
from tests.support.image_networks import image_network
from tests.support.onnx_models import model_of, saved
from tests.support.virtual_machine import run
from tvm_ext.core.platform import Platform

BACKEND = CodegenBackend(target=target_of(Platform.load("host").processor))
SPLIT_SEEDS = (0, 1, 4)


def formed(seed: int, folder: Path) -> tvm.IRModule:
    module = tvm_ext.load(saved(image_network(seed), folder))
    return tvm.transform.Sequential([FoldConstants(), FormComposites(BACKEND), ConvertLayout()])(module)


def attributes(module: tvm.IRModule) -> list[tvm.ir.DictAttrs]:
    """Attributes of each function that main calls."""
    calls = [b.value for b in bindings(module["main"]) if isinstance(b.value, relax.Call)]
    return [module[call.op].attrs for call in calls if isinstance(call.op, tvm.ir.GlobalVar)]


def labels(module: tvm.IRModule) -> list[tuple[str, int] | None]:
    """Per call of main, the sequence and rows per call that its function carries."""
    return [
        (str(attrs["sequence"]), int(attrs["rows_per_call"])) if "sequence" in attrs else None
        for attrs in attributes(module)
    ]


@pytest.mark.parametrize("seed", SPLIT_SEEDS)
def test_sequences_are_neighbours_and_print(seed: int, tmp_path: Path) -> None:
    after = SplitSequences(BACKEND, None)(formed(seed, tmp_path))
    found = labels(after)
    names = [label[0] for label in found if label]
    assert names and names == sorted(names)
    for name in set(names):
        places = [index for index, label in enumerate(found) if label and label[0] == name]
        assert len(places) > 1 and places == list(range(places[0], places[-1] + 1))
    attrs = after["main"].attrs
    assert int(attrs["split_peak_bytes"]) > 0 and int(attrs["split_instructions"]) > 0
    assert '"sequence": "sequence_0"' in after.script()


@pytest.mark.parametrize("seed", SPLIT_SEEDS)
def test_tvm_runs_it_as_before(seed: int, tmp_path: Path) -> None:
    before = formed(seed, tmp_path)
    (param,) = before["main"].params
    x = np.random.default_rng(seed).normal(size=[int(n) for n in param.ty.shape.values]).astype(np.float32)

    np.testing.assert_array_equal(run(SplitSequences(BACKEND, None)(before), x), run(before, x))


def test_within_the_budget_nothing_changes(tmp_path: Path) -> None:
    before = formed(0, tmp_path)
    tvm.ir.assert_structural_equal(SplitSequences(BACKEND, 1 << 30)(before), before)


def test_a_budget_takes_no_more_than_it_needs(tmp_path: Path) -> None:
    """The cheapest split within a budget costs no more than the one with the fewest bytes."""
    before = formed(1, tmp_path)
    least = SplitSequences(BACKEND, None)(before)["main"].attrs
    roomy = SplitSequences(BACKEND, int(least["split_peak_bytes"]) * 5 // 4)(before)["main"].attrs
    assert int(roomy["split_peak_bytes"]) <= int(least["split_peak_bytes"]) * 5 // 4
    assert int(roomy["split_instructions"]) <= int(least["split_instructions"])


def test_a_pool_adds_up_rows_at_the_end_of_a_sequence(tmp_path: Path) -> None:
    """x -> conv -> conv -> mean over the image: no whole image but the input."""
    weights = {f"w{i}": np.ones((32, c, 3, 3), np.float32) for i, c in enumerate((3, 32))}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1] * 4),
        helper.make_node("Conv", ["a", "w1"], ["b"], pads=[1] * 4),
        helper.make_node("GlobalAveragePool", ["b"], ["y"]),
    ]
    model = saved(model_of(nodes, {"x": (1, 3, 12, 10)}, ["y"], weights), tmp_path)
    before = tvm.transform.Sequential([FoldConstants(), FormComposites(BACKEND), ConvertLayout()])(tvm_ext.load(model))
    after = SplitSequences(BACKEND, None)(before)
    assert [label and label[0] for label in labels(after)][1:4] == ["sequence_0"] * 3
    assert [int(attrs.get("input_rows", 0)) for attrs in attributes(after)][1:4] == [0, 0, 12]
