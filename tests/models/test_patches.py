"""Models in patches: within budgets that rows alone do not meet, and not a bit of their outputs changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tvm

import tvm_ext
from codegen_c.arena.local_peaks import changed
from codegen_c.arena.plan import plan_memory
from codegen_c.arena.validate import validate
from codegen_c.backend.build import Compiled
from codegen_c.lowering import views
from tests.support.image_networks import image_network
from tests.support.kinds import image
from tests.support.onnx_models import saved
from tests.support.poison import run_poisoned
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_model, compile_module
from tvm_ext.core.errors import DoesNotFit
from tvm_ext.core.platform import Platform
from tvm_ext.execution.instrumented import run_instrumented
from tvm_ext.verification.input_ranges import random_inputs

FRACTIONS = (0.35, 0.45, 0.55, 0.65, 0.75, 0.85)
NAME = "patches"


def patched(module: tvm.IRModule, platform: Platform, arena: int) -> Compiled | None:
    """The module within the smallest of a few fractions of an arena that can be met, if patches met it."""
    for fraction in FRACTIONS:
        try:
            compiled = compile_module(module, platform, BuildOptions(ram=int(arena * fraction)))
        except DoesNotFit:
            continue
        return compiled if compiled.attempts[-1].method.startswith(NAME) else None
    return None


def assert_same_bits(whole: Compiled, small: Compiled, seed: int) -> None:
    """With dead bytes destroyed behind each step."""
    inputs = random_inputs({port.source: (port.shape, port.dtype) for port in whole.interface.inputs}, seed)
    expected = run_instrumented(whole, inputs, lambda *_: None)
    found, destroyed = run_poisoned(small, inputs)
    assert destroyed > 0 and found.keys() == expected.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array.view(np.uint8), expected[name].view(np.uint8))


@pytest.mark.parametrize("seed", some_of([6, 14], sweep=[0, 5, 9, 13, 15, 16, 17, 18, 19]))
def test_random_float_networks(seed: int, tmp_path: Path) -> None:
    """Float, where another order of summation would show.

    Seed 17 also shows that calls of steps stay: GCC 12 drops one, of the copies of a step with its addresses put in.
    """
    module, host = tvm_ext.load(saved(image_network(seed, aspect=6), tmp_path)), Platform.load("host")
    whole = compile_module(module, host, BuildOptions())
    small = patched(module, host, whole.plan.arena_bytes)
    assert small is not None, "patches make these seeds smallest"
    assert any(tensor.strip for tensor in small.program.tensors.values())
    assert_same_bits(whole, small, seed)


@pytest.mark.parametrize("seed", some_of([14], sweep=[5, 9, 15, 17]))
def test_random_integer_networks(seed: int, tmp_path: Path) -> None:
    """Kernels for the Cortex-M4, whose integers are those of the host."""
    board = Platform.load("cortex_m4")
    loaded = tvm_ext.load(saved(image_network(seed, aspect=6), tmp_path))
    (param,) = loaded["main"].params
    shape = [4, *(int(extent) for extent in param.ty.shape.values[1:])]
    np.savez(tmp_path / "samples.npz", x=np.random.default_rng(seed).normal(size=shape).astype(np.float32))
    module = compile_model(loaded, board, BuildOptions(quantize="int8"), tmp_path / "samples.npz")[0]
    whole = compile_module(module, board, BuildOptions())
    small = patched(module, board, whole.plan.arena_bytes)
    assert small is not None, "patches make these seeds smallest"
    assert_same_bits(whole, small, seed)


@pytest.mark.parametrize("kind", some_of(["int8"], sweep=["float"]))
def test_strips_that_are_born_in_their_result(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they can be, also where that takes more bytes: each strip's last layer writes rows that lie apart."""
    path = image(14, int8=True, aspect=6)(tmp_path) if kind == "int8" else saved(image_network(0, aspect=6), tmp_path)
    module, platform = tvm_ext.load(path), Platform.load("cortex_m4" if kind == "int8" else "host")
    whole = compile_module(module, platform, BuildOptions())
    joined = patched(module, platform, whole.plan.arena_bytes)
    assert joined is not None and any(step.name.startswith("join_") for step in joined.program.steps)
    monkeypatch.setattr(
        views, "changed", lambda before, program, _: changed(before, program, dict.fromkeys(before.live, 1 << 60))
    )
    program, plan = plan_memory(views.with_views(joined.program), activations=platform.activations)
    validate(program, plan)
    born = [tensor for tensor in program.tensors.values() if tensor.part and tensor.part.run_axes == 2]
    assert len(born) > 1 and not any(step.name.startswith("join_") for step in program.steps)
    assert_same_bits(whole, replace(joined, program=program, plan=plan), seed=14)


def test_of_what_computes_twice_the_cheapest_is_taken(tmp_path: Path) -> None:
    module, host = tvm_ext.load(saved(image_network(14, aspect=6), tmp_path)), Platform.load("host")
    budget = 18_000
    compiled = compile_module(module, host, BuildOptions(ram=budget))
    assert compiled.attempts[-1].method == NAME and compiled.plan.arena_bytes <= budget
    fitting = [a.added_instructions for a in compiled.attempts if a.arena_bytes and a.arena_bytes <= budget]
    assert compiled.attempts[-1].added_instructions == min(added for added in fitting if added is not None)


def test_every_strip_is_verified_by_itself(tmp_path: Path) -> None:
    """Each integer step of a strip is compared with those columns of onnxruntime's tensor."""
    path = image(14, int8=True, aspect=6)(tmp_path)
    options = BuildOptions(ram=7_600, verify=("host",))
    package = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "out", options)
    whole = tvm_ext.build(tvm_ext.load(path), "cortex_m4", tmp_path / "whole", BuildOptions(verify=("host",)))
    assert package.report["fit"]["attempts"][-1]["method"] == NAME
    compared = [p.report["verify"]["host"]["tensors_compared"] for p in (package, whole)]
    assert package.report["verify"]["host"]["passed"] and compared[0] > compared[1]


def test_ports_keep_their_scale(shared_models: Path) -> None:
    """An input that only copies of its columns are read of."""
    path = shared_models / "resnet_int8.tflite"
    module, board = tvm_ext.load(path), Platform.load("cortex_m4")
    whole, small = (compile_module(module, board, options) for options in (BuildOptions(), BuildOptions(ram=15_500)))
    assert small.attempts[-1].method == NAME
    ports = [[*compiled.interface.inputs, *compiled.interface.outputs] for compiled in (whole, small)]
    found, expected = ([(port.source, port.shape, port.quantization) for port in one] for one in ports)
    assert found == expected and all(quantization is not None for *_, quantization in found)


def test_patches_within_tvm(tmp_path: Path) -> None:
    path = saved(image_network(14, aspect=6), tmp_path)
    module = tvm_ext.load(path)
    x = np.random.default_rng(0).normal(size=(1, 1, 17, 102)).astype(np.float32)
    (param,) = module["main"].params
    assert [int(n) for n in param.ty.shape.values] == list(x.shape)

    def run(ram: int | None) -> np.ndarray:
        pipeline = tvm_ext.relax_pipeline("host", BuildOptions(ram=ram))
        machine = tvm.relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=pipeline), tvm.cpu())
        result = machine["main"](tvm.runtime.tensor(x))
        return (result if isinstance(result, tvm.runtime.Tensor) else result[0]).numpy()

    np.testing.assert_array_equal(run(18_000), run(None))
