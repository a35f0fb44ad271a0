"""Sequences of rows that several processors compute: each runs its rows through its own rings, and no bit changes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.program.steps import RowSteps, processor_of
from relay_passes.analysis.operator_graph import OperatorGraph
from relay_passes.dataflow import bindings
from relay_passes.memory.split_sequences import SplitSequences
from relay_passes.processors.sequence_parts import cuttable_sequence
from tests.passes.placements import EQUAL, UNEQUAL, report
from tests.support.image_networks import image_network
from tests.support.onnx_models import model_of, saved
from tests.support.shared_runs import Pair, delayed, write_package
from tests.support.sweeps import some_of
from tests.support.virtual_machine import run
from tvm_ext import BuildOptions
from tvm_ext.compilation.model_forms import forms_of, streamed_forms
from tvm_ext.compilation.pipeline import compile_module, fitter_of
from tvm_ext.compilation.stages import backend_of, before_order, order, sharing
from tvm_ext.core.decisions.composites import OperatorProcessor, RowSplit
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.methods import fit_methods
from tvm_ext.fitting.next_try import Try
from tvm_ext.verification.input_ranges import random_inputs

CONV = partial(helper.make_node, "Conv", pads=[1, 1, 1, 1])
SIZE = 24
WITHOUT_ROWS = {2, 12, 22, 32}
"""Seeds of networks that no division into rows makes smaller."""


def network(folder: Path, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str] = ("y",)) -> Path:
    """x: float32[1, 8, 24, 24], and weights for each convolution. Inner results have 16 channels."""
    rng = np.random.default_rng(0)
    weights = {
        node.input[1]: rng.normal(
            size=(8 if node.output[0] == "y" else 16, 8 if node.input[0] == "x" else 16, 3, 3)
        ).astype(np.float32) / 12
        for node in nodes if node.op_type == "Conv"
    }  # fmt: skip
    return saved(model_of([*nodes], {"x": (1, 8, SIZE, SIZE)}, [*outputs], weights), folder)


def chain() -> list[onnx.NodeProto]:
    names = ["x", "t0", "t1", "y"]
    return [CONV([before, f"w{number}"], [after]) for number, (before, after) in enumerate(pairwise(names))]


def residual() -> list[onnx.NodeProto]:
    """The sum reads fewer rows of `t0` than the convolutions between them."""
    return [
        *chain()[:2], CONV(["t1", "w2"], ["t2"]), helper.make_node("Add", ["t0", "t2"], ["sum"]),
        helper.make_node("MaxPool", ["sum"], ["y"], kernel_shape=[2, 2], strides=[2, 2]),
    ]  # fmt: skip


def split(path: Path, platform: Platform) -> tuple[tvm.IRModule, tvm.IRModule]:
    """A model's module in the sequences of the fewest bytes, and the same on the platform's cores."""
    options = BuildOptions()
    backend = backend_of(platform, options)
    passes = [*before_order(platform, backend, options), *order(backend), SplitSequences(backend, None)]
    module = tvm.transform.Sequential(passes)(tvm_ext.load(path))
    return module, tvm.transform.Sequential(sharing(platform, options, backend))(module)


def sequences(module: tvm.IRModule) -> dict[str, list[tuple[str, str]]]:
    """For each sequence, its variables in order, with their processors."""
    found: dict[str, list[tuple[str, str]]] = {}
    for binding in bindings(module["main"]):
        composite = module[binding.value.op]
        if label := RowSplit.read(composite).sequence:
            told = binding.var.name, OperatorProcessor.read(composite).processor
            found.setdefault(label, []).append(told)
    return found


def test_each_core_runs_its_rows_in_a_sequence_of_its_own(tmp_path: Path) -> None:
    before, after = split(network(tmp_path, chain()), EQUAL)
    (whole,) = sequences(before).values()
    upper, lower = sequences(after).values()
    assert len(whole) == len(upper) == len(lower) and {told for _, told in upper} == {""}
    assert {told for _, told in lower} == {"cpu1"}
    assert [name for name, _ in upper[-3:]] == ["t0.rows_0_14", "t1.rows_0_13", "y.nhwc.rows_0_12"]
    assert [name for name, _ in lower[-3:]] == ["t0.rows_10_24", "t1.rows_11_24", "y.nhwc.rows_12_24"]
    parts = sum(row["busy_cycles"] for row in report(after)["processors"])
    assert parts > report(after)["single_processor"]["makespan_cycles"], "rows at the seam are computed twice"
    x = np.random.default_rng(0).normal(size=(1, 8, SIZE, SIZE)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-5)


def test_rows_of_an_inner_result_are_copied_in_the_sequence(tmp_path: Path) -> None:
    """The sum needs rows 0 to 11 of `t0`, of which rows 0 to 13 are computed."""
    before, after = split(network(tmp_path, residual()), EQUAL)
    names = [name for name, _ in next(iter(sequences(after).values()))]
    assert (
        "t0.rows_0_14" in names
        and "t0.rows_0_12" in names
        and names.index("t0.rows_0_14") < names.index("t0.rows_0_12")
    )
    x = np.random.default_rng(0).normal(size=(1, 8, SIZE, SIZE)).astype(np.float32)
    np.testing.assert_allclose(run(after, x), run(before, x), rtol=1e-4, atol=1e-5)


def cuttable_in(nodes: list[onnx.NodeProto], unit: range, folder: Path, outputs: Sequence[str] = ("y",)) -> bool:
    """Whether the steps of a module with all operators in one sequence can be cut, by their numbers from the first
    convolution on."""
    options = BuildOptions()
    backend = backend_of(EQUAL, options)
    passes = [*before_order(EQUAL, backend, options), *order(backend)]
    module = tvm.transform.Sequential(passes)(tvm_ext.load(network(folder, nodes, outputs)))
    operators = OperatorGraph(module, module["main"], backend)
    first = next(index for index, step in enumerate(operators.steps) if "conv" in step[0].value.op.name_hint)
    return cuttable_sequence(operators, range(first + unit.start, first + unit.stop)) is not None


def test_what_one_core_has_to_run(tmp_path: Path) -> None:
    """Results that are read outside of the sequence, or are outputs, and single steps."""
    assert cuttable_in(chain(), range(3), tmp_path)
    assert not cuttable_in(chain(), range(1), tmp_path)
    assert not cuttable_in(residual(), range(2), tmp_path), "the sum reads the first result"
    assert not cuttable_in(chain(), range(3), tmp_path, ("y", "t1"))


def compiled_in_rows(path: Path, platform: Platform) -> tuple[Compiled, Compiled]:
    """A model in whole layers on one core, and in the sequences of the fewest bytes on all cores."""
    module, options = tvm_ext.load(path), BuildOptions(name="net", verify=())
    alone = compile_module(module, platform, replace(options, processors=(), optimize="balanced"))
    fitter = fitter_of(streamed_forms(forms_of(module, platform, options, None), options), platform, options)
    method = next(method for method in fit_methods(options) if method.name == "split")
    found = fitter.compiled(method, Try(method="split", index=len(fitter.offers(method)) - 1), options)
    assert found is not None, "rows need fewer bytes"
    return alone, found


def samples_of(compiled: Compiled) -> list[dict[str, np.ndarray]]:
    ports = {port.source: (port.shape, port.dtype) for port in compiled.interface.inputs}
    return [random_inputs(ports, draw) for draw in range(2)]


def cores_of_sequences(compiled: Compiled) -> set[str]:
    return {processor_of(step) for step in compiled.program.steps if isinstance(step, RowSteps)}


def test_a_sequence_writes_over_rows_that_a_core_keeps_together(tmp_path: Path) -> None:
    """Its operand is a tensor of rows of this core and a copy of the halo, which no other core reads."""
    _, shared = compiled_in_rows(network(tmp_path, chain()), EQUAL)
    tensors, places = shared.program.tensors, shared.plan.placements
    sharing: list[str] = []
    for step in shared.program.steps:
        if isinstance(step, RowSteps):
            source, result = places[step.body[0].inputs[0]], places[step.body[-1].outputs[0]]
            ends = source.offset + source.num_bytes, result.offset + result.num_bytes
            sharing += [step.name] if max(source.offset, result.offset) < min(ends) else []
            assert any(one.part and one.part.tensor == source.name for one in tensors.values()), "own rows, and a halo"
    assert len(sharing) == 2


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [chain, residual])
def test_threads_compute_the_bits_of_one_core(nodes: Callable[[], list[onnx.NodeProto]], tmp_path: Path) -> None:
    alone, shared = compiled_in_rows(network(tmp_path, nodes()), EQUAL)
    assert len(cores_of_sequences(shared)) == 2
    check(alone, shared, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", some_of([3], sweep={*range(40)} - WITHOUT_ROWS - {3}))
def test_random_networks(seed: int, tmp_path: Path) -> None:
    alone, shared = compiled_in_rows(saved(image_network(seed), tmp_path), (EQUAL, UNEQUAL)[seed % 2])
    if shared.parallel is not None:
        check(alone, shared, tmp_path)


def check(alone: Compiled, shared: Compiled, folder: Path) -> None:
    """Several runs on each sample, with delays at signals."""
    samples = samples_of(alone)
    with delayed(Pair(alone=alone, shared=shared, samples=samples), folder) as (expected, model):
        for turn in range(10):
            for name, array in expected[turn % 2].items():
                found = model.run(samples[turn % 2])[name]
                np.testing.assert_array_equal(found.view(np.uint8), array.view(np.uint8), err_msg=name)


@pytest.mark.slow
def test_rings_of_two_cores_do_not_race(tmp_path: Path) -> None:
    alone, shared = compiled_in_rows(network(tmp_path, residual()), Platform.load("dual_m33_equal"))
    pair = Pair(alone=alone, shared=shared, samples=samples_of(alone))
    folder = write_package(pair, shared, tmp_path / "package")
    done = subprocess.run(
        ["make", "-s", "selftest", "CFLAGS=-fsanitize=thread -include delays.h"],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
