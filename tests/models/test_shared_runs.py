"""Models that several processors share: on the host each is a thread, and answers are those of one processor."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tvm_ext
from tests.golden import models as plain_models
from tests.support import state_models
from tests.support.image_networks import image_network
from tests.support.onnx_models import saved
from tests.support.placed import place_by_hand
from tests.support.random_models import random_model
from tests.support.shared_runs import Pair, delayed, pair_of, write_package, write_sources
from tests.support.sweeps import some_of, some_rows
from tvm_ext import BuildOptions
from tvm_ext.compilation.pipeline import compile_module
from tvm_ext.core.errors import RunFailed
from tvm_ext.core.platform import QUICK_TOOLCHAIN, Platform
from tvm_ext.execution.host_model import HostModel
from tvm_ext.verification.input_ranges import random_inputs

RUNS = 20
ON_ONE = {13, 25, 31}
"""Seeds by which chance leaves all of a streamed model to one processor."""


def check_same_bytes(pair: Pair, tmp_path: Path) -> None:
    """Several runs on each sample, with delays, and the answers of one processor."""
    with delayed(pair, tmp_path) as (expected, model):
        for turn in range(RUNS):
            index = turn % len(pair.samples)
            found = model.run(pair.samples[index])
            for name, array in expected[index].items():
                np.testing.assert_array_equal(found[name].view(np.uint8), array.view(np.uint8), err_msg=name)


@pytest.mark.parametrize("seed", some_of([1, 2], sweep=range(3, 40)))
def test_threads_answer_as_one_processor(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform.load("dual_m33_equal")
    check_same_bytes(pair_of(random_model(seed, 5), platform, tmp_path, monkeypatch, seed), tmp_path)


def test_tensors_of_the_caller_reach_all_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = Platform.load("dual_m33")
    pair = pair_of(plain_models.branching_network(), platform, tmp_path, monkeypatch, 4, io="caller")
    assert "net_handed" in pair.shared.sources()["net_cpu1.c"]
    check_same_bytes(pair, tmp_path)


@pytest.mark.parametrize("seed", some_of([3], sweep={*range(4, 40)} - ON_ONE))
def test_rows_of_the_application_reach_all_processors(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform = Platform.load("dual_m33_equal")
    check_same_bytes(pair_of(random_model(seed, 5), platform, tmp_path, monkeypatch, seed, io="stream"), tmp_path)


@pytest.mark.board
@pytest.mark.parametrize(
    ("board", "network", "ram"),
    some_rows(
        [("dual_m33_equal", lambda: image_network(1), 2000)], sweep=[("dual_m33", plain_models.integer_network, None)]
    ),
)
def test_a_run_whose_function_fails_goes_on_to_its_end(
    board: str,
    network: Callable[[], onnx.ModelProto],
    ram: int | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The self-test lets each fail wherever it is called, also while layers run by rows, and runs once more."""
    every_other(monkeypatch)
    module = tvm_ext.load(saved(network(), tmp_path, "net"))
    options = BuildOptions(io="stream", processors=("cpu0",), ram=ram, verify=("host", "qemu"))
    package = tvm_ext.build(module, board, tmp_path / "package", options)
    assert len(package.report["processors"]) == 2 and package.report["verify"]["qemu"]["passed"]
    for target, said in (("run", "PASS"), ("selftest", "PASS 1 vectors, 96 drawn")):
        done = subprocess.run(
            ["make", "-s", target], cwd=package.folder, check=True, capture_output=True, text=True, timeout=120
        )
        assert (done.stdout + done.stderr).rstrip().endswith(said)
    text = (package.folder / "net.c").read_text(encoding="utf-8")
    assert text.count("if (status == 0) {") >= 2 and len(re.findall(r"return (?:\(\w+\))?status;", text)) == 1
    assert "(void)memset(" in text and ("a row of" in text or "Rows [" in text) == bool(ram)


def every_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets every other operator run on cpu1."""
    place_by_hand(monkeypatch, lambda index, _: "cpu1" if index % 2 else "")


def test_a_processor_whose_steps_are_all_saved_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run a join alone, whose inputs are born in its result."""
    place_by_hand(monkeypatch, lambda _, name: "cpu1" if "concat" in name else "")
    nodes = [onnx.helper.make_node("Relu", ["x"], ["r"]), onnx.helper.make_node("Sigmoid", ["x"], ["s"]),
             onnx.helper.make_node("Concat", ["r", "s"], ["y"], axis=1)]  # fmt: skip
    model = state_models.model_of(nodes, {"x": (1, 4, 1, 1)}, ["y"], {})
    options = BuildOptions(processors=("cpu0",), verify=())
    compiled = compile_module(tvm_ext.load(saved(model, tmp_path, "net")), Platform.load("dual_m33_equal"), options)
    assert [step.name for step in compiled.program.steps if "concat" in step.name] == []
    assert compiled.parallel is None and compiled.interface.servers == ()


@pytest.mark.board
def test_states_go_from_run_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    every_other(monkeypatch)
    module = tvm_ext.load(saved(state_models.frames(), tmp_path, "net"), states={"before": "before.next"})
    options = BuildOptions(processors=("cpu0",), verify=("host", "qemu"))
    package = tvm_ext.build(module, "dual_m33_equal", tmp_path / "package", options)
    assert [one["name"] for one in package.report["processors"]] == ["cpu0", "cpu1"]
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))
    with package.session() as session:
        rng = np.random.default_rng(0)
        name, spec = next(iter(package.inputs.items()))
        frames = [rng.uniform(-1, 1, spec.shape).astype(np.float32) for _ in range(6)]
        first = [session.run({name: frame}) for frame in frames]
        session.reset()
        for frame, expected in zip(frames, first, strict=True):
            for output, array in session.run({name: frame}).items():
                np.testing.assert_array_equal(array, expected[output])
        session.reset()
        streams = [session.state()] * 2  # by turns, each with its own
        for frame, expected in zip(frames, first, strict=True):
            for number, state in enumerate(streams):
                session.restore(state)
                for output, array in session.run({name: frame}).items():
                    np.testing.assert_array_equal(array, expected[output])
                streams[number] = session.state()


@pytest.mark.board
def test_runs_before_the_window_is_full_are_whole_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They answer something else than 0, and the other processor has done its part all the same."""
    every_other(monkeypatch)
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[5, 1]),
        onnx.helper.make_node("Relu", ["c"], ["r"]),
        onnx.helper.make_node("Conv", ["r", "v"], ["y"], kernel_shape=[1, 1]),
    ]
    constants = {"w": state_models.weights(3, 4, 5, 1), "v": state_models.weights(2, 3, 1, 1)}
    window = state_models.model_of(nodes, {"x": (1, 4, 9, 1)}, ["y"], constants)
    options = BuildOptions(processors=("cpu0",), new_frames={"x": 1}, time_axis={"x": 2}, verify=("host", "qemu"))
    module = tvm_ext.load(saved(window, tmp_path, "net"))
    package = tvm_ext.build(module, "dual_m33_equal", tmp_path / "package", options)
    assert package.report["warm_up_runs"] > 0 and len(package.report["processors"]) == 2
    assert all(package.report["verify"][target]["passed"] for target in ("host", "qemu"))


def test_a_run_that_does_not_begin_leaves_the_others_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library whose state nobody has set: its run answers at once, and the next one finds the same thread."""
    every_other(monkeypatch)
    module = tvm_ext.load(saved(state_models.frames(), tmp_path, "net"), states={"before": "before.next"})
    compiled = compile_module(module, Platform.load("dual_m33_equal"), BuildOptions(processors=("cpu0",)))
    folder = write_sources(compiled, tmp_path / "sources")
    with HostModel(folder, compiled.interface, toolchain=QUICK_TOOLCHAIN) as model:
        sample = {port.source: np.ones(port.shape, np.float32) for port in compiled.interface.inputs}
        expected = model.run(sample)
        model.restore(bytes(compiled.interface.state_bytes))
        with pytest.raises(RunFailed, match="returned -1"):
            model.run(sample)
        model.reset()
        for name, array in model.run(sample).items():
            np.testing.assert_array_equal(array, expected[name])


@pytest.mark.parametrize("planted", ["", "memory_order_release", "memory_order_acquire"])
def test_threads_have_no_data_races(planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By ThreadSanitizer, which finds those of a header whose signals order nothing."""
    pair = pair_of(random_model(2, 5), Platform.load("dual_m33_equal"), tmp_path, monkeypatch, 2)
    folder = write_package(pair, pair.shared, tmp_path / "package")
    header = folder / "tvm_ext_signal.h"
    text = header.read_text(encoding="utf-8")
    assert planted in text
    header.write_text(text.replace(planted, "memory_order_relaxed") if planted else text, encoding="utf-8")
    done = subprocess.run(
        ["make", "-s", "selftest", "CFLAGS=-fsanitize=thread"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ("data race" in done.stderr) == bool(planted), done.stderr[-2000:]
    assert (done.returncode == 0) == (not planted)


@pytest.mark.parametrize(("seed", "ram"), some_rows([(1, 3076)], sweep=[(3, 5495)]))
def test_both_cores_stay_within_a_budget(seed: int, ram: int, tmp_path: Path) -> None:
    module = tvm_ext.load(saved(image_network(seed), tmp_path, "net"))
    board = Platform.load("dual_m33_equal")
    package = tvm_ext.build(module, board, tmp_path / "both", BuildOptions(ram=ram, verify=("host",)))
    attempts, placement = package.report["fit"]["attempts"], package.report["placement"]
    assert attempts[0]["arena_bytes"] > ram >= package.report["arena_bytes"]
    assert all(one["cores"] == 2 for one in attempts) and all(one["steps"] for one in package.report["processors"])
    assert placement["makespan_cycles"] < placement["single_processor"]["makespan_cycles"]
    alone = tvm_ext.build(module, board, tmp_path / "alone", BuildOptions(processors=("cpu0",), verify=()))
    inputs = random_inputs({one["name"]: (tuple(one["shape"]), one["dtype"]) for one in package.report["inputs"]}, 5)
    for name, array in alone.run(inputs, on="host").items():
        np.testing.assert_array_equal(package.run(inputs, on="host")[name].view(np.uint8), array.view(np.uint8))


def test_the_report_says_why_one_core_runs_all(tmp_path: Path) -> None:
    module = tvm_ext.load(saved(image_network(2), tmp_path, "net"))
    compiled = compile_module(module, Platform.load("dual_m33_equal"), BuildOptions(ram=700))
    told = [(one.arena_bytes, one.added_instructions, one.cores) for one in compiled.attempts]
    assert told == [(1320, told[0][1], 2), (672, 0, 1)]
