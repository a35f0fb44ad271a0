"""Planted faults in quantized models: each is noticed, whichever step or output it stands in, and right ones pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.program import reference
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Tensor
from tests.support.tflite_models import Network, resnet
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Platform
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.verification.account import Account, account_for
from tvm_ext.verification.input_ranges import random_inputs
from tvm_ext.verification.reference_runtimes.reference_result import ReferenceResult

Array = np.ndarray
Sample = dict[str, Array]
NUM_SAMPLES = 3


def compiled(data: bytes, folder: Path) -> Compiled:
    return compile_module(tvm_ext.load(saved_tflite(data, folder)), Platform.load("host"), BuildOptions())


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return compiled(resnet(int8=True), tmp_path_factory.mktemp("resnet"))


def two_outputs() -> bytes:
    """Two layers of one input, with outputs of one shape and scale."""
    net = Network(int8=True, seed=5)
    x = net.input((1, 6, 6, 4))
    return net.writer.finish([net.conv(x, 6, (3, 3), name) for name in ("left", "right")])


def samples(built: Compiled) -> list[Sample]:
    specs = {port.source: (port.shape, port.dtype) for port in built.interface.inputs}
    return [random_inputs(specs, seed) for seed in range(NUM_SAMPLES)]


def runtime(built: Compiled, *, inner: bool = True) -> ReferenceResult:
    """One that agrees with the references of a program to the byte."""
    program = built.program
    outputs: list[Sample] = []
    seen: list[Sample] = []
    for sample in samples(built):
        values = reference.run(program, {port.name: sample[port.source] for port in built.interface.inputs})
        outputs.append({port.source: values[port.name].reshape(port.shape) for port in built.interface.outputs})
        tensors = [tensor for tensor in program.tensors.values() if tensor.name in values]
        seen.append({tensor.source: in_the_models_order(tensor, values[tensor.name]) for tensor in tensors})
    nothing: list[Sample] = [{} for _ in seen]
    return ReferenceResult(runtime="somebody", own_reading="", outputs=outputs, inner=seen if inner else nothing)


def in_the_models_order(tensor: Tensor, values: Array) -> Array:
    return values.transpose(np.argsort(tensor.layout)) if tensor.layout else values


def judged(built: Compiled, said: ReferenceResult) -> Account:
    return account_for(built, samples(built), said)


def with_call(built: Compiled, index: int, change: Callable[[list[Array]], list[Array]]) -> Compiled:
    """A program one of whose steps computes something else."""
    steps = list(built.program.steps)
    call = single_calls(built)[index]
    plain = call.implementation.reference
    changed = replace(call.implementation, reference=lambda seen: change(list(plain(seen))))
    steps[steps.index(call)] = replace(call, implementation=changed)
    return replace(built, program=replace(built.program, steps=tuple(steps)))


def shifted(by: int) -> Callable[[list[Array]], list[Array]]:
    def change(results: list[Array]) -> list[Array]:
        info = np.iinfo(results[0].dtype)
        return [np.clip(results[0].astype(int) + by, info.min, info.max).astype(results[0].dtype)]

    return change


def single_calls(built: Compiled) -> list[KernelCall]:
    """Steps that are one call."""
    return [step for step in built.program.steps if isinstance(step, KernelCall)]


@pytest.mark.parametrize("inner", [True, False], ids=["all tensors", "outputs only"])
def test_a_right_model_passes(network: Compiled, inner: bool) -> None:
    found = judged(network, runtime(network, inner=inner))
    assert found.errors == ()
    assert found.tensors_compared >= (10 if inner else 1)


def test_every_step_that_is_off_by_two_is_named(network: Compiled) -> None:
    """In one element of many is enough."""
    said = runtime(network)

    def one_element(results: list[Array]) -> list[Array]:
        flat = results[0].copy().reshape(-1)
        flat[0] += 2 if flat[0] < 100 else -2
        return [flat.reshape(results[0].shape)]

    for index, call in enumerate(single_calls(network)):
        errors = judged(with_call(network, index, one_element), said).errors
        assert len(errors) == 1 and errors[0].startswith(f"{call.name}: "), (call.name, errors)


def test_a_zero_point_that_is_wrong_by_one_is_no_rounding(network: Compiled) -> None:
    said, index = runtime(network), 2
    errors = judged(with_call(network, index, shifted(1)), said).errors
    assert len(errors) == 1 and "LSB on average" in errors[0]


def test_an_element_in_ten_that_rounds_the_other_way_passes(network: Compiled) -> None:
    said = runtime(network)

    def rounded(results: list[Array]) -> list[Array]:
        flat = results[0].copy().reshape(-1)
        flat[::10] += np.where(flat[::10] < 127, 1, -1).astype(flat.dtype)
        return [flat.reshape(results[0].shape)]

    assert judged(with_call(network, 2, rounded), said).errors == ()


def test_an_output_in_another_order_fails(network: Compiled) -> None:
    said = runtime(network)
    turned = [{name: array[..., ::-1] for name, array in sample.items()} for sample in said.outputs]
    assert judged(network, replace(said, outputs=turned)).errors


def test_an_output_with_another_zero_point_fails(network: Compiled) -> None:
    said = runtime(network)
    moved = [
        {name: np.clip(a.astype(int) + 3, -128, 127).astype("int8") for name, a in s.items()} for s in said.outputs
    ]
    assert judged(network, replace(said, outputs=moved)).errors


def test_two_outputs_that_are_swapped_fail(tmp_path: Path) -> None:
    built = compiled(two_outputs(), tmp_path)
    said = runtime(built)
    assert judged(built, said).errors == ()
    left, right = built.interface.outputs
    swapped = (replace(left, source=right.source), replace(right, source=left.source))
    errors = judged(replace(built, interface=replace(built.interface, outputs=swapped)), said).errors
    assert errors


def test_an_output_that_the_reference_lacks_fails(network: Compiled) -> None:
    said = replace(runtime(network), outputs=[{} for _ in range(NUM_SAMPLES)], inner=[{} for _ in range(NUM_SAMPLES)])
    (error,) = judged(network, said).errors
    assert "gives no such tensor" in error


def test_behind_a_gap_what_the_steps_in_it_explain_passes_and_more_fails(network: Compiled) -> None:
    """The reference runtime keeps its inner tensors to itself; a step of its own rounds another way, or goes wrong."""
    program = network.program
    last = len(single_calls(network)) - 2

    def runtime_of(change: Callable[[list[Array]], list[Array]]) -> ReferenceResult:
        return runtime(with_call(network, last, change), inner=False)

    def one_up(results: list[Array]) -> list[Array]:
        flat = results[0].copy().reshape(-1)
        flat[0] += 1 if flat[0] < 127 else -1
        return [flat.reshape(results[0].shape)]

    assert len(program.steps) > 5
    assert judged(network, runtime_of(one_up)).errors == ()

    def scrambled(results: list[Array]) -> list[Array]:
        return [np.ascontiguousarray(results[0][..., ::-1])]

    known = runtime(network)  # all but the tensors of the last two steps
    hidden = {program.tensors[name].source for call in single_calls(network)[-2:] for name in call.outputs}
    inner = [{name: a for name, a in sample.items() if name not in hidden} for sample in known.inner]
    said = replace(runtime_of(scrambled), inner=inner)
    assert judged(network, said).errors
