"""Answers of workers: those of other code are refused by name, and are neither used nor kept."""

from __future__ import annotations

import json
import re
import tomllib
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.services.test_services import DOUBLED, LOCAL, job
from tvm_ext.core.errors import WorkerRefused
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services import job as jobs_module
from tvm_ext.services import work
from tvm_ext.services.cache import ResultCache, remembered
from tvm_ext.services.executors import ExecutorServices
from tvm_ext.services.job import LIBRARIES, answer_with, code_hash, libraries, result_of
from tvm_ext.services.local import LocalServices

ROOT = Path(__file__).parents[2]


def answer_of(**changed: object) -> bytes:
    """An answer whose first line says something else."""
    head, _, result = answer_with(b"right or wrong").partition(b"\n")
    return json.dumps({**json.loads(head), **changed}).encode() + b"\n" + result


def test_an_answer_of_this_code_is_taken_as_it_is() -> None:
    for result in (b"", b"\n", b"a\nb", bytes(range(256))):
        assert result_of(answer_with(result)) == result


OLD_NUMPY = {**libraries(), "numpy": "1.0"}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"xx", "does not state the version of its code"),
        (b"", "does not state the version of its code"),
        (b"[]\nxx", "does not state the version of its code"),
        (b'{"mark": "tvm_ext answer 1"}\nxx', "does not state the version of its code"),
        (answer_of(mark="tvm_ext answer 0"), "does not state the version of its code"),
        (answer_of(libraries=3), "does not state the version of its code"),
        (answer_of(code="0" * 64, host="there", pid=7), r"worker on 'there', process 7, .* files of tvm_ext differ"),
        (answer_of(code="0" * 64, libraries=OLD_NUMPY), rf"numpy is 1\.0, here {re.escape(libraries()['numpy'])}"),
        (answer_of(code="0" * 64, libraries={}), r"apache-tvm is None, here"),
        (answer_of(code=None), "files of tvm_ext differ"),
    ],
)
def test_an_answer_of_other_code_is_refused(answer: bytes, said: str) -> None:
    with pytest.raises(WorkerRefused, match=said):
        result_of(answer)


def other(function: str, *inputs: bytes) -> bytes:
    """What a worker with another tvm_ext answers."""
    del function, inputs
    return answer_of(code="0" * 64, host="old machine")


def test_an_executor_with_other_code_ends_a_sweep_and_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tvm_ext.services.executors.run", other)
    kept = ResultCache(folder=tmp_path)
    with ThreadPoolExecutor(2) as pool:
        services = ExecutorServices(executor=pool, local=LOCAL)
        with pytest.raises(WorkerRefused, match="'old machine'"):
            dict(remembered(services, kept, DOUBLED))
        with services.opened() as opened, pytest.raises(WorkerRefused, match="'old machine'"):
            opened.submit(DOUBLED[0]).result()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_files_that_change_while_a_process_runs_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "code_hash", lambda *_: "1" * 64)
    services = LocalServices(limits=ChildLimits(seconds=60), entry="run_named")
    with pytest.raises(WorkerRefused, match="files changed after this process began"):
        dict(services.outcomes([job("doubled", b"x")]))


def test_a_result_that_nobody_waits_for_is_cancelled_with_its_answer() -> None:
    class Waiting:
        """An executor that has no worker."""

        def __init__(self) -> None:
            self.answers: list[Future[bytes]] = []

        def submit(self, *_: Any) -> Future[bytes]:
            self.answers.append(Future())
            return self.answers[-1]

    waiting: Any = Waiting()
    with ExecutorServices(executor=waiting, local=LOCAL).opened() as opened:
        first, second, third = (opened.submit(one) for one in DOUBLED[:3])
        assert first.cancel() and first.cancelled() and waiting.answers[0].cancelled()
        waiting.answers[1].set_running_or_notify_cancel()
        assert not second.cancel() and not second.done()
        waiting.answers[1].set_result(answer_with(b"done"))
        assert second.result() == b"done"
    assert third.cancelled(), "with the services"


def test_every_library_that_decides_results_has_its_version_in_names() -> None:
    """Of pyproject.toml all requirements, but for tools that no result depends on."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tools = {"test", "dev", "docs", "bench", "distributed", "parquet", "train", "quantizers", "keras", "forms", "vela"}
    extras = [one for name, extra in table["optional-dependencies"].items() if name not in tools for one in extra]
    asked = {re.split(r"[<>=;\[ ]", one)[0] for one in (*table["dependencies"], *extras)}
    assert asked - {"rich", "typer"} <= {*LIBRARIES}
    assert "ortools" in asked


@pytest.mark.parametrize("name", ["ortools", "numpy", "python"])
def test_another_version_names_another_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, hashed = libraries(), code_hash.__wrapped__
    assert name in before
    first = hashed()
    monkeypatch.setattr(jobs_module, "libraries", lambda: {**before, name: "another"})
    assert hashed() != first


def test_extensions_are_part_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        class dist:
            name = "pytest"

    monkeypatch.setattr(jobs_module, "entry_points", lambda group: [Point] if group == "tvm_ext.targets" else [])
    assert jobs_module.libraries.__wrapped__()["pytest"] == pytest.__version__


def test_a_worker_says_its_code() -> None:
    assert result_of(work.run("tests.support.small_jobs.doubled", b"ab")) == b"abab"
