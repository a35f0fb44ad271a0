"""Rights that are given up: what is not trusted starts no process, opens no socket and writes no file but its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tvm_ext.core.errors import ChildFailed
from tvm_ext.core.processes.child import Child
from tvm_ext.core.processes.confine import Rights, confined_command, has_filter, has_landlock

MODULE = "tests.support.misbehaving"
pytestmark = pytest.mark.skipif(not has_filter() or not has_landlock(), reason="Linux with seccomp and Landlock")


@pytest.mark.parametrize("how", ["system", "fork", "posix_spawn", "vfork", "execve", "shell"])
def test_a_child_starts_nothing(tmp_path: Path, how: str) -> None:
    canary = tmp_path / "canary"
    with Child(MODULE, writes=[tmp_path]) as child:
        said = child.call("start", how, str(canary))
    assert not canary.exists() and "EPERM" in said, said
    with Child(MODULE, trusted=True) as child:  # the test is able to fail
        child.call("start", "system", str(canary))
    assert canary.exists()


def test_a_child_writes_its_own_files_alone(tmp_path: Path) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    own.write_text("")
    other.write_text("kept")
    with Child(MODULE, writes=[own]) as child:
        assert child.call("write", str(own)) == "done"
        assert child.call("read", str(other)) == "kept"
        for name in ("write", "remove", "rename", "truncate", "chmod"):
            assert child.call(name, str(other)) in ("EACCES", "EPERM"), name
        assert child.call("write", str(tmp_path / "new")) == "EACCES"
        assert child.call("make_folder", str(tmp_path / "folder")) == "EACCES"
    assert own.read_text() == "written" and other.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "own"]


def test_a_child_opens_no_socket_and_signals_nobody_else() -> None:
    with Child(MODULE) as child:
        assert child.call("open_socket") == "EPERM"
        assert child.call("send_signal", os.getpid()) == "EPERM"
        assert child.call("limit", os.getpid()) == "EPERM"
        with pytest.raises(ChildFailed, match="SIGABRT"):
            child.call("abort")


def test_a_child_starts_threads_and_uses_large_files_within_its_limit(tmp_path: Path) -> None:
    with Child(MODULE, writes=[tmp_path]) as child:
        assert child.call("thread_sum") == 45
        assert child.call("write", str(tmp_path / "new")) == "done"


def ran(rights: Rights, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(confined_command(rights, command), capture_output=True, text=True, check=False)


SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache")


def test_a_program_reads_what_it_may(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "secret").write_text("secret")
    rights = Rights(reads=(*SYSTEM, str(tmp_path / "mine")), executes=True)
    assert ran(rights, "/bin/cat", str(tmp_path / "mine")).stdout == "mine"
    refused = ran(rights, "/bin/cat", str(tmp_path / "secret"))
    assert refused.returncode == 1 and "Permission denied" in refused.stderr and not refused.stdout


def test_a_program_is_not_followed_by_another(tmp_path: Path) -> None:
    rights = Rights(reads=SYSTEM, executes=True)
    canary = tmp_path / "canary"
    done = ran(rights, "/bin/sh", "-c", f"/usr/bin/touch {canary}; echo after")
    assert done.returncode != 0 and not canary.exists() and "after" not in done.stdout


def test_the_largest_file_is_limited(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    rights = Rights(writes=(str(tmp_path / "out"),), executes=True, file_bytes=1000)
    done = ran(rights, "/bin/dd", "if=/dev/zero", f"of={tmp_path / 'out'}", "bs=3000", "count=1")
    assert done.returncode in (1, -signal.SIGXFSZ) and (tmp_path / "out").stat().st_size <= 1000


def test_what_cannot_be_started_is_said(tmp_path: Path) -> None:
    done = ran(Rights(executes=True), str(tmp_path / "nothing"))
    assert done.returncode == 1 and done.stderr == f"{tmp_path / 'nothing'}: No such file or directory\n"


@pytest.mark.parametrize("demands", [False, True])
def test_a_machine_without_a_filter_goes_on_unless_one_is_demanded(demands: bool, tmp_path: Path) -> None:
    code = (
        "import platform, sys; platform.machine = lambda: 'mips'; from tvm_ext.core.processes import confine\n"
        f"confine.confine(confine.Rights(demands_filter={demands})); print('went on')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ("went on" in done.stdout) is not demands
    assert ("has no filter of system calls" in done.stderr) is demands
