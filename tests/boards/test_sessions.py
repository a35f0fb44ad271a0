"""Sessions: a package kept ready on the host and on its board, one process for many runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tests.support.state_models import integrator
from tests.support.sweeps import some_of
from tvm_ext import BuildOptions, Package
from tvm_ext.core.errors import BadInput, BadOptions, RunFailed

pytestmark = pytest.mark.board


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("session")
    source = saved(SMALL_MODELS["two_inputs_two_outputs"](), folder)
    return tvm_ext.build(source, "cortex_m4", folder / "out", BuildOptions(verify=()))


def samples(count: int) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(3)
    return [
        {name: random.standard_normal((2, 6)).astype(np.float32) for name in ("left", "right")} for _ in range(count)
    ]


def test_many_runs_on_one_board_give_what_single_runs_give(package: Package) -> None:
    given = samples(8)
    expected = package.run_board(given).outputs
    with package.session(on="qemu") as board, package.session(on="host") as host:
        process = board._process.pid
        for sample, wanted in zip(given, expected, strict=True):
            found, here = board.run(sample), host.run(sample)
            assert list(found) == list(wanted) == list(here)
            for name in wanted:
                np.testing.assert_array_equal(found[name], wanted[name])
                np.testing.assert_allclose(found[name], here[name], rtol=1e-6, atol=1e-6)
        assert board._process.pid == process and board._process.poll() is None
    assert board._process.poll() is not None, "closed with the block"


@pytest.mark.parametrize("on", ["host", "qemu"])
def test_wrong_samples_are_told_the_way_and_leave_the_session_open(package: Package, on) -> None:
    (good,) = samples(1)
    with package.session(on=on) as session:
        for change, said in (
            ({"lefd": good["left"]}, "'lefd' is not an input of small, which reads left, right. Did you mean 'left'"),
            ({"left": good["left"].astype("float64")}, r"is float64\[2, 6\]; .* .astype\(\"float32\"\) converts it"),
            ({"left": good["left"].reshape(12)}, r"float32\[12\]; small reads .* .reshape\(\[2, 6\]\)"),
            ({"left": [[1.0], [1.0, 2.0]]}, "input 'left' is not an array: its rows differ in length"),
        ):
            with pytest.raises(BadInput, match=said):
                session.run({**good, **change})
        with pytest.raises(BadInput, match="input 'right' is missing"):
            session.run({"left": good["left"]})
        with pytest.raises(BadInput, match="inputs: the list holds 1 values and needs one for each input; small"):
            session.run([1])
        assert len(session.run(good)) == 2
    with pytest.raises(RunFailed, match="the session of small is closed; open a new one"):
        session.run(good)
    if on == "qemu":
        with pytest.raises(RunFailed, match="is closed"):
            session.reset()


def test_states_carry_over_and_reset(tmp_path: Path) -> None:
    model = integrator()
    module = tvm_ext.load(saved(model, tmp_path), states={"h": "h.next"})
    package = tvm_ext.build(module, "cortex_m4", tmp_path / "out", BuildOptions(verify=()))
    assert package.interface.state_bytes
    random = np.random.default_rng(1)
    steps = [
        {name: random.standard_normal(spec.shape).astype(spec.dtype) for name, spec in package.inputs.items()}
        for _ in range(3)
    ]
    wanted = package.run_board(steps).outputs
    with package.session(on="qemu") as board:
        for _ in range(2):
            for step, expected in zip(steps, wanted, strict=True):
                for name, found in board.run(step).items():
                    np.testing.assert_array_equal(found, expected[name])
            board.reset()


OTHERS = [{"io": "caller"}, {"context": "caller", "memories": "default"}]


@pytest.mark.parametrize("options", some_of([{"io": "stream"}], sweep=OTHERS), ids=str)
def test_other_ways_to_hand_over_tensors(package: Package, tmp_path: Path, options: dict[str, str]) -> None:
    source = saved(SMALL_MODELS["two_inputs_two_outputs"](), tmp_path)
    other = tvm_ext.build(source, "cortex_m4", tmp_path / "out", BuildOptions(verify=(), **options))
    given = samples(3)
    with other.session(on="qemu") as session, package.session(on="qemu") as same:
        for sample in given:
            for name, found in session.run(sample).items():
                np.testing.assert_array_equal(found, same.run(sample)[name])


def test_places_that_a_session_does_not_have(package: Package, tmp_path: Path) -> None:
    with pytest.raises(BadOptions, match="on = 'moon': a session runs on 'host' or 'qemu'"):
        package.session(on="moon")  # type: ignore[call-overload]
    source = saved(SMALL_MODELS["unused_input"](), tmp_path)
    host = tvm_ext.build(source, "host", tmp_path / "out", BuildOptions(verify=()))
    with pytest.raises(RunFailed, match="has no firmware: host has no board"):
        host.session(on="qemu")


def test_a_board_that_ends_or_hangs_is_an_error(package: Package) -> None:
    (good,) = samples(1)
    with package.session(on="qemu") as session:
        session._process.kill()
        with pytest.raises(RunFailed, match=r"mps2-an386 ended \(exit -9\):"):
            session.run(good)
    with package.session(on="qemu") as session:
        session._seconds = 0.0
        session._process.send_signal(signal.SIGSTOP)
        os.waitpid(session._process.pid, os.WUNTRACED)
        with pytest.raises(RunFailed, match="did not answer within 0 s; set TVM_EXT_PATIENCE=10"):
            session.run(good)
