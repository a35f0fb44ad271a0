"""Live bytes counted again in a window of steps are those of the whole program, after each copy that is saved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tvm_ext
from codegen_c.arena import local_peaks
from codegen_c.arena.local_peaks import Counted, counted
from codegen_c.lowering import views
from codegen_c.program.program import Program
from tests.support.onnx_models import model_of, saved
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions

TRYING = [0, 3, 7]
"""Seeds of networks with copies: of 0 all are saved, of 3 none, of 7 some."""


@pytest.mark.parametrize("seed", some_of(TRYING, sweep=range(40)))
def test_windows_give_what_the_whole_gives(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[bool] = []

    def changed(before: Counted, program: Program, limits: Mapping[str, int]) -> Counted | None:
        found, expected = local_peaks.changed(before, program, limits), counted(program)
        fits = all(peak <= limits[memory] for memory, peak in expected.peaks.items())
        assert (found is not None) == fits
        assert found is None or (found.live == expected.live and found.spans == expected.spans)
        tried.append(fits)
        return found

    monkeypatch.setattr(views, "changed", changed)
    path = saved(random_model(seed), tmp_path)
    tvm_ext.estimate(path, "cortex_m4", BuildOptions())
    assert tried or seed not in TRYING


def cells(count: int) -> onnx.ModelProto:
    """Cells one after another, each with two branches that are joined and added to the cell's input."""
    rng, nodes, constants, x = np.random.default_rng(0), list[onnx.NodeProto](), dict[str, np.ndarray](), "x"
    for cell in range(count):
        for branch in "ab":
            constants[f"w{branch}{cell}"] = rng.normal(size=(4, 8, 1, 1)).astype(np.float32)
            nodes.append(helper.make_node("Conv", [x, f"w{branch}{cell}"], [f"{branch}{cell}"]))
        nodes.append(helper.make_node("Concat", [f"a{cell}", f"b{cell}"], [f"j{cell}"], axis=1))
        nodes.append(helper.make_node("Add", [f"j{cell}", x], [f"y{cell}"]))
        x = f"y{cell}"
    return model_of(nodes, {"x": (1, 8, 4, 4)}, [x], constants)


def test_steps_that_are_counted_grow_with_the_steps_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For each copy that is saved, only a few steps around it are counted again."""
    counted_steps: list[int] = []
    live = local_peaks.live_bytes

    def counting(program: Program, *arguments: object, **choices: object) -> list[int]:
        counted_steps.append(len(program.steps))
        return live(program, *arguments, **choices)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(local_peaks, "live_bytes", counting)
    totals: list[int] = []
    for count in (10, 20):
        counted_steps.clear()
        tvm_ext.estimate(saved(cells(count), tmp_path, f"cells_{count}"), "cortex_m4", BuildOptions())
        assert len(counted_steps) > count
        totals.append(sum(counted_steps))
    assert totals[1] < 2.5 * totals[0]
