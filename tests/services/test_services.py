"""Services: the same bytes by any number of processes or an executor, whatever dies; results kept by content."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tvm_ext.core.errors import BadInput, ChildFailed, MissingTool
from tvm_ext.core.files.kept_files import FOLDER, default_folder
from tvm_ext.core.processes.child import ChildLimits
from tvm_ext.services import job as jobs_module
from tvm_ext.services.cache import ResultCache, remembered
from tvm_ext.services.contents import LEAST_BYTES, MOST_KEPT, NamedInputs
from tvm_ext.services.executors import ExecutorServices, cluster
from tvm_ext.services.job import Job, JobOutcome
from tvm_ext.services.local import TRIES, LocalServices

LOCAL = LocalServices(jobs=2, limits=ChildLimits(seconds=20), entry="run_named")


def job(name: str, content: bytes | Path = b"") -> Job:
    inputs = (content if isinstance(content, bytes) else os.fsencode(content),)
    return Job(function=f"tests.support.small_jobs.{name}", inputs=inputs)


DOUBLED = [job("doubled", b"%d" % number) for number in range(8)]


@pytest.mark.parametrize("services", [1, 4])
def test_results_are_the_same_for_any_number_of_processes(services: int) -> None:
    found = dict(LocalServices(jobs=services, entry="run_named").outcomes(DOUBLED))
    assert found == {index: JobOutcome(result=b"%d%d" % (index, index)) for index in range(8)}


def test_a_process_that_dies_is_replaced_and_its_job_done_again(tmp_path: Path) -> None:
    asked = [job("dies_once", tmp_path / "one"), job("doubled", b"x"), job("dies_once", tmp_path / "two")]
    results = {index: outcome.result for index, outcome in LOCAL.outcomes(asked)}
    assert results == {0: b"done", 1: b"xx", 2: b"done"}


def test_what_dies_hangs_or_raises_is_an_outcome_and_not_the_end() -> None:
    asked = [job("dies"), job("hangs"), job("raises"), job("doubled", b"x")]
    services = LocalServices(jobs=2, limits=ChildLimits(seconds=3), entry="run_named")
    found = dict(services.outcomes(asked))
    assert [found[index].kind for index in range(4)] == ["ChildLost", "ChildExpired", "ChildFailed", ""]
    assert f"{TRIES} processes ended during this job" in found[0].problem and "SIGKILL" in found[0].problem
    assert "did not end within 3 s" in found[1].problem
    assert "raised KeyError: 'nothing here'" in found[2].problem
    assert found[3].result == b"xx"


def test_who_stops_listening_ends_the_processes() -> None:
    outcomes = LocalServices(jobs=2, entry="run_named").outcomes([job("doubled", b"x"), job("hangs"), job("hangs")])
    assert next(outcomes)[1].result == b"xx"
    outcomes.close()  # the test would not end in time if it waited for them


def test_an_error_of_who_makes_the_jobs_is_raised() -> None:
    def made() -> Iterator[Job]:
        yield DOUBLED[0]
        raise BadInput("no more of them")

    with pytest.raises(BadInput, match="no more of them"):
        list(LOCAL.outcomes(made()))


def test_an_executor_gives_the_same_and_what_it_loses_is_done_here() -> None:
    with ThreadPoolExecutor(2) as pool:
        services = ExecutorServices(executor=pool, local=LOCAL)
        assert dict(services.outcomes(DOUBLED)) == dict(LOCAL.outcomes(DOUBLED))
        lost = [job("raises_in_a_thread_pool"), DOUBLED[1]]
        assert dict(services.outcomes(lost)) == {0: JobOutcome(result=b"done"), 1: JobOutcome(result=b"11")}
    assert dict(services.outcomes(DOUBLED[:1])) == {0: JobOutcome(result=b"00")}  # it was shut down


def test_jobs_one_by_one_by_processes_and_by_an_executor() -> None:
    with ThreadPoolExecutor(2) as pool, LOCAL.opened() as here:
        with ExecutorServices(executor=pool, local=LOCAL).opened() as there:
            for services in (here, there):
                assert [services.submit(one).result() for one in DOUBLED[:3]] == [b"00", b"11", b"22"]
        with pytest.raises(ChildFailed, match="nothing here"):
            here.submit(job("raises")).result()
    with ExecutorServices(executor=pool, local=LOCAL).opened() as shut, pytest.raises(RuntimeError):
        shut.submit(DOUBLED[0]).result()


def test_jobs_that_nobody_waits_for_end_with_the_services() -> None:
    with LOCAL.opened() as services:
        hanging = [services.submit(job("hangs")) for _ in range(3)]
        assert services.at_once == 2
    assert all(one.done() for one in hanging)  # the test would not end in time if they were waited for


def test_a_cluster_that_is_not_there_is_missing() -> None:
    with pytest.raises(MissingTool, match=r"dask\.distributed"), cluster("tcp://127.0.0.1:9", LOCAL):
        pass


def test_a_real_cluster_gives_the_same(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `distributed` is not installed")
    asked = [*DOUBLED, job("dies_once", tmp_path / "marker")]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found,
        cluster(found.scheduler_address, LOCAL) as services,
    ):
        results = {index: outcome.result for index, outcome in services.outcomes(asked)}
    assert results == {**{index: b"%d%d" % (index, index) for index in range(8)}, 8: b"done"}


def test_a_process_receives_a_large_input_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    by_hash = NamedInputs.asked

    def counted(self: NamedInputs, digest: str) -> bytes:
        asked.append(digest)
        return by_hash(self, digest)

    monkeypatch.setattr(NamedInputs, "asked", counted)
    models = [bytes([number]) * LEAST_BYTES for number in range(MOST_KEPT + 2)]
    jobs = [job("doubled", model) for model in models for _ in range(3)]
    found = dict(LocalServices(jobs=1, entry="run_named").outcomes([*jobs, jobs[0]]))
    assert [one.result for one in found.values()] == [2 * one.inputs[0] for one in (*jobs, jobs[0])]
    assert len(asked) == len(models) + 1, "the first model is no longer among the kept inputs"


def test_a_cluster_holds_a_large_input_once() -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `distributed` is not installed")
    model, moved = b"m" * (1 << 20), list[object]()
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found,
        cluster(found.scheduler_address, LOCAL) as services,
    ):
        submit = distributed.Client.submit
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(
                distributed.Client,
                "submit",
                lambda *given, **named: (given[1] is bytes and moved.append(1)) or submit(*given, **named),
            )
            results = [one.result for _, one in services.outcomes([job("doubled", model)] * 8)]
    assert results == [2 * model] * 8 and len(moved) == 1


def test_a_cluster_goes_on_without_the_worker_that_held_a_large_input(tmp_path: Path) -> None:
    """Each of four jobs ends a worker once. Jobs after them name the same input, which was on those workers."""
    distributed = pytest.importorskip("distributed", reason="the extra `distributed` is not installed")
    model = b"m" * (1 << 20)
    ending = [
        Job(function="tests.support.small_jobs.dies_once_with", inputs=(os.fsencode(tmp_path / str(index)), model))
        for index in range(4)
    ]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as found,
        cluster(found.scheduler_address, LOCAL) as services,
    ):
        asked = [job("doubled", model), *ending, *[job("doubled", model)] * 8]
        results = {index: outcome.result for index, outcome in services.outcomes(asked)}
    assert [results[index] for index in range(13)] == [2 * model, *[model] * 4, *[2 * model] * 8]


def test_results_are_kept_by_content_and_damaged_ones_made_again(tmp_path: Path) -> None:
    kept = ResultCache(folder=tmp_path / "cache")
    first = dict(remembered(LOCAL, kept, DOUBLED[:3]))
    assert dict(remembered(_Nobody(), kept, DOUBLED[:3])) == first
    (place,) = (path for path in kept.folder.rglob("*") if path.is_file() and b'"22"' in path.read_bytes())
    place.write_bytes(place.read_bytes()[:-1])
    assert dict(remembered(LOCAL, kept, DOUBLED[:3])) == first


def entry(fields: object, *, digest: bytes | None = None) -> bytes:
    text = json.dumps(fields).encode()
    return (hashlib.sha256(text).hexdigest().encode() if digest is None else digest) + b"\n" + text


GOOD = {"key": "KEY", "result": "22", "kind": "", "problem": ""}
FORGED = {
    "an empty file": b"",
    "no digest": json.dumps(GOOD).encode(),
    "a digest of something else": entry(GOOD, digest=b"0" * 64),
    "cut off": entry(GOOD)[:-1],
    "no table": entry([]),
    "another job's": entry({**GOOD, "key": "0" * 64}),
    "no key": entry({name: value for name, value in GOOD.items() if name != "key"}),
    "more": entry({**GOOD, "x": 1}),
    "a result that is no text": entry({**GOOD, "result": 22}),
    "no result": entry({**GOOD, "result": None}),
    "a result of other characters": entry({**GOOD, "result": "\u4e2d"}),
    "a kind that is no text": entry({**GOOD, "kind": 1}),
    "a result beside an error": entry({**GOOD, "kind": "ChildLost"}),
    "a problem of none": entry({**GOOD, "problem": None}),
    "deeply nested": entry(GOOD)[:65] + b"[" * 100_000,
    "an older entry": entry({"result": "22", "kind": "", "problem": ""}),
}  # fmt: skip


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_entries_that_are_forged_or_stale_are_computed_again(tmp_path: Path, forged: bytes) -> None:
    kept, asked = ResultCache(folder=tmp_path / "cache", suffix=".s"), [job("doubled", b"1")]
    dict(remembered(LOCAL, kept, asked))
    (place,) = (path for path in kept.folder.rglob("*") if path.is_file())
    good = place.read_bytes()
    name = (asked[0].key + kept.suffix).encode()
    if b"KEY" in forged:  # the digest is that of the text that is there in the end
        head, _, text = forged.partition(b"\n")
        digest = hashlib.sha256(text).hexdigest().encode()
        text = text.replace(b"KEY", name)
        forged = (hashlib.sha256(text).hexdigest().encode() if head == digest else head) + b"\n" + text
    place.write_bytes(forged)
    assert kept.get(asked[0].key) is None
    assert dict(remembered(LOCAL, kept, asked)) == {0: JobOutcome(result=b"11")}
    assert place.read_bytes() == good


def test_only_plain_files_are_entries(tmp_path: Path) -> None:
    kept, asked = ResultCache(folder=tmp_path / "cache"), [job("doubled", b"1")]
    first = dict(remembered(LOCAL, kept, asked))
    (place,) = (path for path in kept.folder.rglob("*") if path.is_file())
    place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    assert kept.get(asked[0].key) is None
    kept.put(asked[0].key, first[0])
    assert not place.is_symlink() and kept.get(asked[0].key) == first[0]
    place.unlink()
    os.mkfifo(place)
    assert kept.get(asked[0].key) is None, "and nobody waits for it"
    place.unlink()
    place.mkdir()
    assert kept.get(asked[0].key) is None
    kept.put(asked[0].key, first[0])
    assert [path.name for path in place.parent.iterdir()] == [place.name], "what could not be kept leaves nothing"


def test_an_entry_that_is_too_large_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ResultCache(folder=tmp_path)
    kept.put("ab" * 32, JobOutcome(result=b"x" * 1000))
    assert kept.get("ab" * 32) is not None
    monkeypatch.setattr("tvm_ext.core.files.kept_files._MOST_BYTES", 1000)
    assert kept.get("ab" * 32) is None


def test_a_result_that_is_not_accepted_is_computed_again(tmp_path: Path) -> None:
    kept, counting = ResultCache(folder=tmp_path), _Counting()
    kept.put(DOUBLED[0].key, JobOutcome(result=b"99"))
    found = dict(remembered(counting, kept, DOUBLED[:1], accepts=lambda outcome: outcome.result == b"00"))
    assert found == {0: JobOutcome(result=b"00")} and counting.jobs == DOUBLED[:1]


def test_what_came_to_nothing_is_kept_too_until_it_is_asked_for_again(tmp_path: Path) -> None:
    kept, asked = ResultCache(folder=tmp_path), [job("raises"), DOUBLED[0]]
    first = dict(remembered(LOCAL, kept, asked))
    assert first[0].kind == "ChildFailed" and dict(remembered(_Nobody(), kept, asked)) == first
    counting = _Counting()
    assert dict(remembered(counting, kept, asked, again=True)) == first and counting.jobs == [asked[0]]
    other = ResultCache(folder=tmp_path, suffix=".other_limits")
    assert other.get(asked[0].key) is None


def test_other_inputs_functions_and_code_have_other_names(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Job(function="a.b", inputs=(b"x", b"yz")), Job(function="a.b", inputs=(b"xy", b"z"))
    keys = {one.key, other.key, Job(function="a.c", inputs=one.inputs).key}
    assert len(keys) == 3 and one.key == Job(function="a.b", inputs=(b"x", b"yz")).key
    monkeypatch.setattr(jobs_module, "code_hash", lambda: "another compiler")
    assert one.key not in keys


def test_the_cache_goes_where_the_user_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "own"))
    assert default_folder() == tmp_path / "own"
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "tvm_ext"


def test_a_cache_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="the cache folder cannot be created"):
        ResultCache(folder=tmp_path / "file" / "cache")


class _Nobody:
    """Services that must not be asked for anything."""

    def outcomes(self, jobs):
        for index, one in enumerate(jobs):
            assert isinstance(one, JobOutcome), "a result was not in the cache"
            yield index, one


class _Counting:
    """Local services that remember what they were asked for."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def outcomes(self, jobs):
        given = list(jobs)
        self.jobs = [one for one in given if isinstance(one, Job)]
        yield from LOCAL.outcomes(given)
