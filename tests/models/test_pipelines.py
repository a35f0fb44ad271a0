"""Models as pipelines: on the host stages are threads, and each input's answer is that of one processor."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.golden import models as plain_models
from tests.support import state_models, tflite_state_models
from tests.support.core_platforms import host_cores
from tests.support.onnx_models import saved
from tests.support.pipelines import random_order
from tests.support.placed import place_by_hand
from tests.support.random_models import random_model
from tests.support.shared_runs import (
    NETWORKS,
    Pair,
    Sample,
    delayed,
    pair_of,
    stateful_pair,
    write_package,
    write_sources,
)
from tests.support.sweeps import some_of
from tests.support.tflite_runners import saved_tflite
from tvm_ext import BuildOptions, Package
from tvm_ext.building.subject import answer, host_outputs
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import BadPackage, RunFailed, VerificationFailed
from tvm_ext.core.objectives import Grouping
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.frontends.shapes import ModelNotice

PLATFORM = "dual_m33_equal"
ORDERS = 6
SLEEPS = """\
#define _POSIX_C_SOURCE 200809L
#include <time.h>
#define TVM_EXT_SIGNAL_DELAY() ((void)nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL))
"""
"""Delays long enough for other threads to go on."""


def check_same_bytes(pair: Pair, tmp_path: Path, seed: int) -> None:
    """Five inputs in several orders of puts and takes, with delays, and the answers of one processor."""
    with delayed(pair, tmp_path) as (expected, model):
        orders = [random_order(random.Random(seed * ORDERS + turn), len(expected), 2) for turn in range(ORDERS)]
        answers = [model.run_successive(pair.samples, order) for order in ["", *orders]]
        answers.append([model.run(sample) for sample in pair.samples])
    for found in answers:
        check_equal(expected, found)


def check_equal(expected: Sequence[Sample], found: Sequence[Sample]) -> None:
    for one, other in zip(expected, found, strict=True):
        for name, array in one.items():
            np.testing.assert_array_equal(other[name].view(np.uint8), array.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("seed", some_of([1], sweep=range(2, 60)))
def test_threads_answer_as_one_processor(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = pair_of(random_model(seed, 5), Platform.load(PLATFORM), tmp_path, monkeypatch, seed, pipelined=True)
    assert pair.shared.interface.in_flight == 2
    check_same_bytes(pair, tmp_path, seed)


def test_tensors_of_the_caller_are_held_until_their_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, platform = plain_models.branching_network(), Platform.load("dual_m33")
    pair = pair_of(network, platform, tmp_path, monkeypatch, 4, io="caller", pipelined=True)
    assert "net_handed[net_flow.put]" in pair.shared.sources()["net.c"]
    check_same_bytes(pair, tmp_path, 4)


def test_three_stages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place_by_hand(monkeypatch, lambda index, _: ("cpu1", "", "cpu2")[min(index, 2)])
    module = tvm_ext.load(saved(plain_models.branching_network(), tmp_path, "net"))
    options = BuildOptions(processors=("cpu",), placement_objective="throughput", verify=("host",))
    package = tvm_ext.build(module, host_cores(10**8, 10**8, 10**8), tmp_path / "package", options)
    assert package.report["in_flight"] == 3 and package.report["verify"]["host"]["passed"]
    assert "_phase2" in (package.folder / "net.c").read_text(encoding="utf-8")


@pytest.mark.sweep
def test_threads_have_no_data_races(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ThreadSanitizer, which finds the one where a stage reads the place of another input."""
    pair = pair_of(random_model(2, 5), Platform.load(PLATFORM), tmp_path, monkeypatch, 2, pipelined=True)
    folder = write_package(pair, pair.shared, tmp_path / "package")
    (folder / "delays.h").write_text(SLEEPS, encoding="utf-8")
    assert "data race" not in raced(folder)
    source = folder / "net.c"
    source.write_text(source.read_text(encoding="utf-8").replace("_phase1", ""), encoding="utf-8")
    assert any("data race" in raced(folder) for _ in range(3))


def raced(folder: Path) -> str:
    """Findings of ThreadSanitizer in the package's self-test, with delays."""
    flags = "CFLAGS=-fsanitize=thread -include delays.h"
    done = subprocess.run(["make", "-s", "selftest", flags], cwd=folder, capture_output=True, text=True, timeout=300)
    return done.stderr


def halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first operator on cpu0, the others on cpu1."""
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index else "")


def test_a_package_is_verified_over_successive_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves(monkeypatch)
    module = tvm_ext.load(saved(plain_models.branching_network(), tmp_path, "net"))
    options = BuildOptions(processors=("cpu0",), placement_objective="throughput", verify=("host",))
    package = tvm_ext.build(module, PLATFORM, tmp_path / "package", options)
    assert package.report["in_flight"] == 2 and package.report["verify"]["host"]["passed"]
    assert package.report["interval_instructions"] is None and package.report["stage_instructions"] == {
        "cpu0": None, "cpu1": None,
    }  # fmt: skip
    readme = (package.folder / "README.md").read_text(encoding="utf-8")
    assert "net_put();" in readme and "net_take();" in readme
    done = subprocess.run(["make", "-s", "selftest"], cwd=package.folder, capture_output=True, text=True, timeout=300)
    assert done.stdout == "PASS 3 vectors, 96 drawn\n"
    report = package.folder / "report.json"
    report.write_text(report.read_text(encoding="utf-8").replace('"in_flight": 2', '"in_flight": 3'), encoding="utf-8")
    with pytest.raises(BadPackage, match=r"differs from report\.json, which has net_in_flight = 3"):
        Package.load(package.folder)
    source = package.folder / "net.c"
    source.write_text(source.read_text(encoding="utf-8").replace("_phase1", ""), encoding="utf-8")
    interface = compile_module(module, Platform.load(PLATFORM), options).interface
    rng = np.random.default_rng(0)
    samples = [
        {port.source: rng.uniform(-1, 1, port.shape).astype(np.float32) for port in interface.inputs} for _ in range(4)
    ]
    with (
        HostModel(package.folder, interface, toolchain=QUICK_TOOLCHAIN) as model,
        pytest.raises(VerificationFailed, match="depend on the other samples in the pipeline"),
    ):
        host_outputs(model, samples)


def test_puts_without_room_and_takes_of_nothing_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    halves(monkeypatch)
    module = tvm_ext.load(saved(plain_models.branching_network(), tmp_path, "net"))
    options = BuildOptions(processors=("cpu0",), placement_objective="throughput", verify=())
    compiled = compile_module(module, Platform.load(PLATFORM), options)
    folder = write_sources(compiled, tmp_path / "sources")
    samples = [{port.source: np.ones(port.shape, np.float32) for port in compiled.interface.inputs}] * 3
    with HostModel(folder, compiled.interface, toolchain=QUICK_TOOLCHAIN) as model:
        for order, said in (("t", -4), ("ppp", -3)):
            with pytest.raises(RunFailed, match=f"net_put or net_take returned {said}"):
                model.run_successive(samples, order)


@pytest.mark.parametrize("name", some_of(["hops", "window", "cell"], sweep=["moved window", "delays", "two hops"]))
def test_states_stay_in_their_stage(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred inputs in several orders of puts and takes, each from a reset, and the answers of one processor."""
    pair = stateful_pair(name, Platform.load(PLATFORM), tmp_path, monkeypatch)
    warm_up = pair.shared.interface.warm_up_runs
    put, take = pair.shared.sources()["net.c"].split("net_status net_put(void)")[1].split("net_status net_take(void)")
    assert "tvm_ext_notify(" in put and "tvm_ext_notify(" not in take.split("net_status net_run(void)")[0]
    with delayed(pair, tmp_path) as (expected, model):
        for turn in range(3):
            order = random_order(random.Random(turn), len(pair.samples), 2) if turn else ""
            found = model.run_successive(pair.samples, order)
            assert len(found) == len(pair.samples) - warm_up and model.state()
            check_equal(expected, found)
            model.run_successive(pair.samples[:2], "pp")  # a reset takes what is under way
            model.reset()
        check_equal(expected, [found for sample in pair.samples if (found := answer(model, sample))])


@pytest.mark.parametrize(("group", "least"), [("none", 2), ("volume", 0)])
def test_the_search_leaves_states_in_one_stage(group: Grouping, least: int, tmp_path: Path) -> None:
    """Lists of several cores are stages, or all of a model is on one core."""
    stages: list[int] = []
    for name, (make, chosen, states, _) in NETWORKS.items():
        made = make()
        path = saved_tflite(made, tmp_path) if isinstance(made, bytes) else saved(made, tmp_path, "net")
        options = BuildOptions(placement_objective="throughput", placement_granularity=group, verify=(), **chosen)
        compiled = compile_module(tvm_ext.load(path, states=states or None), Platform.load(PLATFORM), options)
        assert compiled.parallel is None or compiled.interface.is_pipeline, name
        stages.append(compiled.interface.in_flight)
    assert stages.count(2) >= least


def test_a_state_of_two_stages_makes_no_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage adds to what the other one left for it in the run before."""
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index % 2 else "")
    states = {"z1": "z1.next", "z2": "z2.next"}
    module = tvm_ext.load(saved(state_models.delays(), tmp_path, "net"), states=states)
    options = BuildOptions(processors=("cpu0",), placement_objective="throughput", verify=("host",))
    package = tvm_ext.build(module, PLATFORM, tmp_path / "package", options)
    assert package.report["in_flight"] == 1 and len(package.report["processors"]) == 2
    assert package.report["verify"]["host"]["passed"]


def test_a_package_with_states_is_verified_over_successive_inputs(tmp_path: Path) -> None:
    """Placed by the search, which leaves a window and what reads it on one core."""
    module = tvm_ext.load(saved_tflite(tflite_state_models.over_time(), tmp_path))
    options = BuildOptions(
        new_frames={"frames": 1}, time_axis={"frames": 1}, placement_objective="throughput", verify=("host",)
    )
    package = tvm_ext.build(module, PLATFORM, tmp_path / "package", options)
    assert package.report["in_flight"] == 2 and package.report["verify"]["host"]["passed"]
    placement = package.report["placement"]
    assert placement["interval_cycles"] < 0.6 * placement["single_processor"]["interval_cycles"]
    done = subprocess.run(["make", "-s", "selftest"], cwd=package.folder, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("PASS")
    text = (package.folder / f"{package.interface.model}_state.c").read_text(encoding="utf-8")
    assert "inputs in flight are lost" in text


def test_what_does_not_fit_takes_one_input_at_a_time(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(plain_models.branching_network(), tmp_path, "net"))
    alone = compile_module(module, Platform.load(PLATFORM), BuildOptions(processors=("cpu0",), verify=()))
    options = BuildOptions(placement_objective="throughput", verify=(), ram=alone.plan.arena_bytes)
    with pytest.warns(ModelNotice, match="net cannot be a pipeline over cpu0 and cpu1: .* takes one input"):
        package = tvm_ext.build(module, PLATFORM, tmp_path / "package", options)
    assert package.report["in_flight"] == 1 and "net_put" not in (package.folder / "net.h").read_text(encoding="utf-8")
