"""The canary sees what a case runs, writes and connects to, in Python and below it, and nothing of what it may do."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.fuzzing import outcome as ends
from benchmarks.fuzzing import seccomp
from benchmarks.fuzzing.batches import read_in_batches
from benchmarks.fuzzing.canary import MODULE, Policy, alarms, watch
from benchmarks.fuzzing.forked import Limits, apart
from benchmarks.fuzzing.pool import judged_end
from benchmarks.fuzzing.seccomp import Call
from benchmarks.fuzzing.specimen import CommandSpecimen, ModelSpecimen, Specimen

pytestmark = pytest.mark.skipif(not seccomp.is_available(), reason="seccomp is Linux's, and read here on x86-64")
POLICY = Policy(folder=Path("/work"), may_build=True)


def heard(work: Callable[[Path], object], folder: Path, *, may_build: bool = False) -> list[str]:
    def watched() -> None:
        watch(Policy(folder=folder, may_build=may_build))
        with suppress(Exception):
            work(folder)

    end = apart(watched, limits=Limits(wall_s=120.0))
    assert end.is_done, end.said
    return alarms(end.said)


def written_by_c(path: Path) -> None:
    ctypes.CDLL(None).fopen(str(path).encode(), b"w")


def connected(_: Path) -> None:
    with socket.socket() as one:
        one.settimeout(1.0)
        one.connect(("127.0.0.1", 9))


def connected_below_python(_: Path) -> None:
    address = b"\x02\x00\x00\x09\x7f\x00\x00\x01" + bytes(8)
    library = ctypes.CDLL(None)
    library.connect(library.socket(2, 1, 0), address, len(address))


def unpickled(_: Path) -> None:
    pickle.loads(b"cos\ngetcwd\n(tR.")


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda folder: (folder.parent / "beside").write_text("x"), "writes {beside}"),
        (lambda folder: written_by_c(folder.parent / "beside"), "writes {beside}"),
        (lambda folder: (folder.parent / "beside").mkdir(), "writes {beside}"),
        (lambda folder: (folder.parent / "here").rename(folder.parent / "beside"), "writes {beside}"),
        (lambda folder: (folder.parent / "beside").unlink(), "writes {beside}"),
        (lambda folder: os.symlink("x", folder.parent / "beside"), "writes {beside}"),
        (lambda _: subprocess.run(["/bin/true"], check=False), "runs /bin/true"),
        (lambda _: os.system("true"), "runs os.system(b'true')"),
        (lambda _: os.execv("/bin/true", ["true"]), "runs /bin/true"),
        (connected, "connects to 127.0.0.1:9"),
        (connected_below_python, "connects to 127.0.0.1:9"),
        (unpickled, "unpickles os.getcwd"),
        (lambda _: __import__(MODULE), f"imports {MODULE}"),
    ],
)
def test_alarms(work: Callable[[Path], object], says: str, tmp_path: Path) -> None:
    folder = tmp_path / "case"
    folder.mkdir()
    if "execv" in work.__code__.co_names:
        end = apart(lambda: (watch(Policy(folder=folder, may_build=False)), work(folder)))
        assert says in alarms(end.said)
        return
    assert says.format(beside=tmp_path / "beside") in heard(work, folder)


def in_its_folder(folder: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "a").rename(folder / "b")
    (folder / "b").unlink()
    tempfile.TemporaryFile().close()
    Path(os.devnull).write_text("x")
    Path("/etc/hostname").open().close()


def built(folder: Path) -> None:
    (folder / "a.c").write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "a.c", "-o", "a"], cwd=folder, check=True)
    subprocess.run([str(folder / "a")], check=True)


def test_what_a_case_may_do(tmp_path: Path) -> None:
    assert heard(in_its_folder, tmp_path) == []
    assert heard(built, tmp_path, may_build=True) == []
    assert any(alarm.startswith("runs ") and alarm.endswith("/gcc") for alarm in heard(built, tmp_path))


@pytest.mark.parametrize(
    ("call", "alarm"),
    [
        (Call(kind="write", name="/work/x"), None),
        (Call(kind="write", name="/work"), None),
        (Call(kind="write", name="/workshop/x"), "writes /workshop/x"),
        (Call(kind="write", name="/dev/null"), None),
        (Call(kind="exec", name="/usr/bin/env"), "runs /usr/bin/env"),
        (Call(kind="exec", name="/nowhere/gcc"), None),
        (Call(kind="connect", name="10.0.0.1:80"), "connects to 10.0.0.1:80"),
    ],
)
def test_policy(call: Call, alarm: str | None) -> None:
    assert POLICY.alarm(call) == alarm


def test_an_alarm_is_a_failure_of_its_own(tmp_path: Path) -> None:
    def runs() -> None:
        watch(Policy(folder=tmp_path, may_build=False))
        os.system("true")

    outcome = judged_end(apart(runs))
    assert (outcome.kind, outcome.error) == (ends.RAN, "runs") and outcome.is_failure


def test_a_batch_goes_on_after_a_case_that_ends_it() -> None:
    def draw(index: int) -> Specimen | None:
        if index == 1:
            os.abort()
        if index == 2:
            os.system("true")
        if index == 3:
            return CommandSpecimen(arguments=("bundle", "BUNDLE.toml"), files={"BUNDLE.toml": b"name = "})
        return ModelSpecimen(model=b"x", suffix=".onnx") if index == 4 else None

    found = dict(read_in_batches(draw, range(5)))
    kinds = [found[index].kind for index in range(5)]
    assert kinds == [ends.SKIPPED, ends.SIGNAL, ends.RAN, ends.REFUSED, ends.REFUSED]
    assert [found[index].error for index in (3, 4)] == ["BadBundle", "BadModel"]
