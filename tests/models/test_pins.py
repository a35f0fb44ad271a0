"""Tensors at fixed places of the arena, and tensors whose bytes stay theirs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.backend.build import Compiled
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.random_models import random_model
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadOptions
from tvm_ext.execution.instrumented import Arenas, run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

SEEDS = some_of(range(3), sweep=range(3, 6))


def compiled(path: Path, **options) -> Compiled:
    return compile_module(tvm_ext.load(path), Platform.load("host"), BuildOptions(**options))


def inputs_of(built: Compiled) -> dict[str, np.ndarray]:
    return random_inputs({port.source: (port.shape, port.dtype) for port in built.interface.inputs}, seed=5)


@pytest.mark.parametrize("seed", SEEDS)
def test_pinned_tensors_lie_where_they_should(seed: int, tmp_path: Path) -> None:
    path = saved(random_model(seed), tmp_path)
    free = compiled(path)
    output = free.interface.outputs[0].source
    pinned = compiled(path, pin={"image": 4096, output: 0})
    assert pinned.plan.placements["image"].offset == 4096
    assert pinned.plan.placements[pinned.program.outputs[0]].offset == 0
    found, _ = run_poisoned(pinned, inputs_of(pinned))
    for name, array in run_instrumented(free, inputs_of(free), lambda *_: None).items():
        np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8))


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_put_over_what_is_kept(seed: int, tmp_path: Path) -> None:
    """An input that is kept still stands there when the run is over."""
    built = compiled(saved(random_model(seed), tmp_path), keep=("image",))
    inputs, place = inputs_of(built), built.plan.placements["image"]
    assert (place.begin, place.end) == (0, len(built.program.steps))
    seen: list[bytes] = []

    def look(_: int, arenas: Arenas) -> None:
        seen.append(arenas[place.memory][place.offset : place.offset + place.num_bytes].tobytes())

    run_instrumented(built, inputs, look)
    assert len(seen) == len(built.program.steps) and set(seen) == {seen[0]}
    layout = built.program.tensors["image"].layout
    stored = inputs["image"].transpose(layout) if layout else inputs["image"]
    assert seen[0] == np.ascontiguousarray(stored).tobytes()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"pin": {"image": 8}}, "pin image=8: an offset is a multiple of 16 bytes"),
        ({"pin": {"image": -16}}, "pin image=-16"),
        ({"pin": {"nothing": 0}}, "'nothing' is not a tensor of the compiled model.*image"),
        ({"keep": ("nothing",)}, "'nothing' is not a tensor of the compiled model.*image"),
        ({"keep": ("image",), "io": "caller"}, "keep 'image': image is in the caller's memory"),
        ({"pin": {"image": 0}, "io": "caller"}, "io = 'caller'"),
    ],
)
def test_what_cannot_be_placed_is_refused(options, says: str, tmp_path: Path) -> None:
    path = saved(random_model(1), tmp_path)
    with pytest.raises(BadOptions, match=says):
        compiled(path, **options)


def test_two_tensors_at_one_place_are_refused(tmp_path: Path) -> None:
    path = saved(random_model(1), tmp_path)
    output = compiled(path).interface.outputs[0].source
    with pytest.raises(BadOptions, match=r"pin .*=16: .* is pinned to bytes 0 to \d+ of ram .*Move one of them"):
        compiled(path, pin={"image": 0, output: 16}, keep=("image",))


def test_inside_tvm_there_is_nothing_to_pin() -> None:
    with pytest.raises(BadOptions, match=r"pin, keep and place_port: inside tvm\.compile"):
        tvm_ext.relax_pipeline("host", BuildOptions(keep=("image",)))
