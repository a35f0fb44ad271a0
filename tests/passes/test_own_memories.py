"""Memories that one core alone reaches: what lies there, who copies, what is gained, and that answers stay the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tvm_ext
from codegen_c.backend.build import Compiled
from codegen_c.program.steps import KernelCall, Transfer, calls
from relay_passes.solvers.memories.problem import AssignmentProblem, Step
from relay_passes.solvers.memories.search import _Search, assign
from tests.passes.test_memory_search import SEEDS, checked
from tests.support.core_platforms import host_cores, with_own_memory
from tests.support.image_networks import image_network
from tests.support.memory_problems import always_on, on_two_cores, random_problem
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.platform import Platform
from tvm_ext.core.time_model import TimeModel

TWO = host_cores(1_000_000_000, 1_000_000_000)


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(1, 14), st.booleans())
def test_only_its_core_touches_what_lies_in_a_memory(seed: int, steps: int, dma: bool) -> None:
    problem = on_two_cores(random_problem(seed, steps), seed, dma=dma)
    found = assign(problem)
    checked(problem, found)
    assert problem.predicted_cycles(found) <= problem.predicted_cycles(problem.at_home())
    second = {index for index, step in enumerate(problem.steps) if step.processor == "cpu1"}
    for value, place in enumerate(found.places):
        assert place.born == "sram" or problem.makers[value] in second
        away = {use for use in problem.uses[value] if place.memory_at(use, "sram") != "sram"}
        assert away <= second
        for move in problem.moves_of(value, place):
            assert dma or move.processor == "cpu1"
    assert {index for index, memory in found.scratch.items() if memory == "dtcm"} <= second
    assert {index for index, copy in found.weights.items() if copy.memory == "dtcm"} <= second


@settings(max_examples=15, deadline=None)
@given(SEEDS, st.integers(2, 12), st.booleans())
def test_the_search_counts_as_the_problem_says(seed: int, steps: int, dma: bool) -> None:
    problem = on_two_cores(random_problem(seed, steps), seed, dma=dma)
    search = _Search(problem)
    state, random = search.state, np.random.default_rng(seed)
    for item in search.items:
        menu = search.menus[item]
        state.set(item, menu[int(random.integers(len(menu)))])
    overflow, cycles = state.score()
    assert overflow == problem.overflow(state.assignment())
    assert cycles == pytest.approx(problem.predicted_cycles(state.assignment()))


def test_a_core_at_half_the_clock_takes_twice_the_cycles() -> None:
    platform = always_on()
    second = replace(platform.processor, name="cpu1", clock_hz=platform.processor.clock_hz // 2)
    links = [replace(link, source="cpu1") for link in platform.links if link.source == "cpu"]
    both = replace(platform, processors=(platform.processor, second), links=(*platform.links, *links))
    steps = tuple(
        Step(cycles=1.0, reads={number: 640}, writes={number + 1: 640}, processor=name)
        for number, name in enumerate(("", "cpu1"))
    )
    problem = AssignmentProblem(
        steps=steps, sizes=(640, 640, 640), outputs=frozenset({2}), default_memory="sram", near=("dtcm",),
        limits={"sram": 1 << 20, "dtcm": 1 << 20}, stored="flash", time=TimeModel(platform=both),
    )  # fmt: skip
    assert problem.read_cycles(1, "sram", 1) == 2 * problem.read_cycles(0, "sram", 0) > 0
    assert problem.write_cycles(1, "sram", 2) == 2 * problem.write_cycles(0, "sram", 1) > 0


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "net.onnx"
    onnx.save(image_network(1), path)
    return path


def compiled(net: Path, platform: Platform, **options: object) -> Compiled:
    return compile_module(tvm_ext.load(net), platform, BuildOptions(name="net", **options))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("owner", "dma"), [("cpu", False), ("cpu1", False), ("cpu1", True)])
def test_tensors_of_its_core_lie_there(net: Path, owner: str, dma: bool) -> None:
    """The plan passes the validator, which knows the links; a core copies for itself, and a DMA for the first."""
    found = compiled(net, with_own_memory(TWO, owner, capacity_bytes=1 << 14, dma=dma))
    assert found.parallel is not None and found.plan.bytes_in("own") > 0
    near = {name for name, place in found.plan.placements.items() if place.memory == "own"}
    copies = [call for step in found.program.steps for call in calls(step) if isinstance(call, Transfer)]
    touching = [call for call in found.program.kernel_calls() if near & {*call.inputs, *call.outputs}]
    assert touching and all(call.processor == owner for call in touching if isinstance(call, KernelCall))
    for copy in copies:
        copies_itself = copy.number is None and owner != TWO.processor.name
        assert not near & {copy.source, copy.target} or copy.processor == (owner if copies_itself else "")


def test_one_core_alone_has_its_own_memory_too(net: Path) -> None:
    platform = with_own_memory(TWO, "cpu1", capacity_bytes=1 << 14)
    assert compiled(net, platform, processors=("cpu",)).plan.bytes_in("own") == 0
    assert compiled(net, platform, memories="default").plan.bytes_in("own") == 0
    assert "own" in BuildOptions().limits_bytes(platform)
    assert "own" not in BuildOptions(processors=("cpu",)).limits_bytes(platform)


@pytest.mark.slow
def test_answers_on_threads_are_those_of_the_model(net: Path, tmp_path: Path) -> None:
    platform = with_own_memory(TWO, "cpu1", capacity_bytes=1 << 14)
    package = tvm_ext.build(tvm_ext.load(net), platform, tmp_path / "out", BuildOptions(name="net", verify=("host",)))
    report = package.report
    assert report["verify"]["host"]["passed"]
    assert {memory["name"]: memory["used_bytes"] for memory in report["memories"]}["own"] > 0
    assert ("ram", "own") in {(row["source"], row["target"]) for row in report["prediction"]["moved"]}
    assert report["prediction"]["cycles"] < report["prediction"]["cycles_in_default_memory"]
    steps = {step["name"]: step for step in report["steps"]}
    assert all(step["predicted_cycles"] > 0 for step in steps.values())
