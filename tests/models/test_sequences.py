"""Networks over sequences need the same memory however they are written, and split along time they stay right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import saved
from tests.support.sequence_networks import FAMILIES, FORMS
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions

SEEDS = some_of([0], sweep=range(4))
OFTEN = ("tcn", "unet")
SOME = some_of(OFTEN, sweep=[family for family in FAMILIES if family not in OFTEN])


def estimated(path: Path, ram: int | None = None) -> tuple[int, int]:
    found = tvm_ext.estimate(path, "cortex_m4", BuildOptions(ram=ram))
    return found.arena_bytes, found.predicted_instructions


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", SOME)
def test_every_form_has_the_same_plan(family: str, seed: int, tmp_path: Path) -> None:
    paths = [saved(FAMILIES[family](form, seed), tmp_path, form) for form in FORMS]
    whole = {estimated(path) for path in paths}
    assert len(whole) == 1
    ((arena_bytes, _),) = whole
    assert len({estimated(path, arena_bytes * 2 // 3) for path in paths}) == 1


@pytest.mark.parametrize("family", SOME)
def test_parts_of_sequences_give_the_numbers_of_the_whole(family: str, tmp_path: Path) -> None:
    path = saved(FAMILIES[family]("sequence", 0), tmp_path)
    whole, _ = estimated(path)
    package = tvm_ext.build(path, "cortex_m4", tmp_path / "out", ram=whole * 2 // 3, verify=("host",))
    attempt = package.report["fit"]["attempts"][-1]
    assert attempt["method"] != "whole"
    assert package.report["verify"]["host"]["passed"]


def test_int8_sequences_on_a_board(tmp_path: Path) -> None:
    """An int8 network gives the same results whole and split to half the memory. The split one runs on the board."""
    model = FAMILIES["ecg"]("sequence", 0)
    path, shape = saved(model, tmp_path), [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    samples = {"x": np.random.default_rng(0).normal(size=(8, *shape)).astype(np.float32)}
    arenas: list[int] = []
    for name, ram, targets in (("whole", None, ("host",)), ("parts", 5000, ("host", "qemu"))):
        options = BuildOptions(quantize="int8", verify=targets)
        package = tvm_ext.build(path, "cortex_m4", tmp_path / name, options, calibration=samples, ram=ram)
        assert all(package.report["verify"][target]["passed"] for target in targets)
        arenas.append(package.report["arena_bytes"])
    assert arenas[1] <= arenas[0] // 2


def test_audio_of_16000_samples_fits_beside_its_input(shared: Path) -> None:
    """The samples take 64,000 B, and everything else 5,152 B."""
    arena_bytes, _ = estimated(shared / "cases" / "audio_16000.onnx", 69_152)
    assert arena_bytes <= 69_152
