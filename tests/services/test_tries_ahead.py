"""Tries by services: the package is the same by any number of them; what is likely to follow begins, and no more."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

import tvm_ext
from tests.support.packages import files_of
from tvm_ext.core.errors import BadOptions, DoesNotFit
from tvm_ext.core.files.kept_files import FOLDER
from tvm_ext.core.options import BuildOptions
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.ahead import TriesAhead
from tvm_ext.fitting.fitter import TryOutcome
from tvm_ext.fitting.methods import fit_methods
from tvm_ext.fitting.next_try import Try
from tvm_ext.services.job import Job, result_of
from tvm_ext.services.work import run

BOARD = Platform.load("cortex_m4")


def test_a_package_is_the_same_by_processes_by_an_executor_and_alone(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_ext.services.local._Opened.start_s", 0.0)
    module, options = tvm_ext.load(digits / "digits.onnx"), BuildOptions(ram=5000, verify=())
    alone = files_of(tvm_ext.build(module, BOARD, tmp_path / "alone", options).folder)
    assert len(json.loads(alone["report.json"])["fit"]["attempts"]) > 1
    assert files_of(tvm_ext.build(module, BOARD, tmp_path / "two", options, jobs=2).folder) == alone
    with ThreadPoolExecutor(1) as pool:
        assert files_of(tvm_ext.build(module, BOARD, tmp_path / "pool", options, executor=pool).folder) == alone
    monkeypatch.setattr("tvm_ext.fitting.ahead._TRY", "tests.support.small_jobs.raises")
    assert files_of(tvm_ext.build(module, BOARD, tmp_path / "lost", options, jobs=2).folder) == alone


def test_what_runs_at_once_is_the_same(digits: Path, tmp_path: Path) -> None:
    module, options = tvm_ext.load(digits / "digits.onnx"), BuildOptions(verify=("host", "qemu"))
    packages = [tvm_ext.build(module, BOARD, tmp_path / str(jobs), options, jobs=jobs) for jobs in (1, 3)]
    assert files_of(packages[0].folder) == files_of(packages[1].folder)


def test_a_package_is_the_same_without_a_cache_of_objects(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, options = tvm_ext.load(digits / "digits.onnx"), BuildOptions(verify=("host",))
    kept = files_of(tvm_ext.build(module, BOARD, tmp_path / "kept", options, jobs=2).folder)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file"))
    assert files_of(tvm_ext.build(module, BOARD, tmp_path / "none", options, jobs=2).folder) == kept


def test_what_does_not_fit_says_the_same(digits: Path, tmp_path: Path) -> None:
    module, said = tvm_ext.load(digits / "digits.onnx"), set[str]()
    for jobs in (1, 2):
        with pytest.raises(DoesNotFit) as error:
            tvm_ext.build(module, BOARD, tmp_path / "out", BuildOptions(ram=1000, verify=()), jobs=jobs)
        said.add(str(error.value))
    assert len(said) == 1 and "nearest budget" in said.pop()


@pytest.mark.parametrize(("jobs", "scheduler"), [(0, None), (1, "tcp://127.0.0.1:9")])
def test_services_that_are_none_are_refused(jobs: int, scheduler: str | None, digits: Path, tmp_path: Path) -> None:
    module = tvm_ext.load(digits / "digits.onnx")
    with ThreadPoolExecutor(1) as pool, pytest.raises(BadOptions, match=r"jobs = 0|only one of them"):
        tvm_ext.build(module, BOARD, tmp_path, executor=pool if scheduler else None, jobs=jobs, scheduler=scheduler)


class _Held:
    """Services that do nothing until they are told to."""

    at_once, most_ahead, start_s = 1, 8, 0.0

    def __init__(self) -> None:
        self.jobs: list[tuple[Job, Future[bytes]]] = []

    def submit(self, job: Job) -> Future[bytes]:
        self.jobs.append((job, Future[bytes]()))
        return self.jobs[-1][1]

    def do(self, index: int) -> None:
        """Do a job in the time to come."""
        job, future = self.jobs[index]
        future.set_running_or_notify_cancel()
        threading.Timer(0.3, lambda: future.set_result(result_of(run(job.function, *job.inputs)))).start()


def test_services_have_what_follows_and_this_process_what_none_has_begun(digits: Path) -> None:
    module, options, services = tvm_ext.load(digits / "digits.onnx"), BuildOptions(ram=11_000), _Held()
    methods = {method.name: method for method in fit_methods(options)}
    whole, lean, split, strips = [
        (methods[name], Try(method=name)) for name in ("whole", "least scratch", "split", "patches")
    ]
    done_here: list[str] = []
    tries = TriesAhead(lambda _: module, BOARD, services, lambda asked, _: done_here.append(asked[1].method))

    def handed_over() -> list[str]:
        return [json.loads(job.inputs[0])["method"] for job, _ in services.jobs]

    assert tries.outcome(whole, options, iter([lean, split])) is None and handed_over() == []
    assert tries.outcome(lean, options, iter([whole, split, strips])) is None
    assert handed_over() == ["split", "patches"]  # not what is done here
    services.do(0)
    outcome = tries.outcome(split, options, iter([strips]))
    assert outcome is not None and outcome.num_bytes[BOARD.activations] < 11_264
    assert done_here == ["patches"] and tries.outcome(strips, options, iter(())) is None
    assert tries.outcome(split, BuildOptions(ram=5_000), iter(())) == outcome  # no limit matters to it
    assert handed_over() == ["split", "patches"]


def test_a_search_that_is_shorter_than_the_start_of_a_service_needs_none(digits: Path) -> None:
    module, options, services = tvm_ext.load(digits / "digits.onnx"), BuildOptions(ram=11_000), _Held()
    services.start_s = 1e9
    whole, lean, split = [(method, Try(method=method.name)) for method in fit_methods(options)][:3]
    tries = TriesAhead(lambda _: module, BOARD, services, lambda *_: None)
    for asked, likely in ((whole, lean), (lean, split)):
        assert tries.outcome(asked, options, iter([likely])) is None
    assert not services.jobs


def test_an_outcome_is_its_text_again() -> None:
    outcome = TryOutcome(num_bytes={"sram": 12, "dtcm": 0}, instructions=7, is_held=False)
    assert TryOutcome.from_json(outcome.to_json().encode()) == outcome
