"""Children forked from a server: each is as new, without anything of the others, and none outlives its user."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tvm_ext.core.errors import ChildFailed
from tvm_ext.core.processes import fork_server
from tvm_ext.core.processes.child import Child, ChildLimits
from tvm_ext.core.processes.confine import has_filter
from tvm_ext.core.processes.system import IS_LINUX

MODULE = "tests.support.misbehaving"
pytestmark = pytest.mark.skipif(not IS_LINUX, reason="other systems start a program for each child")


def test_children_are_forks_that_share_no_state() -> None:
    with Child(MODULE) as one, Child(MODULE) as other:
        assert [one.call("count"), one.call("count"), other.call("count")] == [1, 2, 1]
        assert one.call("parent") == other.call("parent") != os.getpid()
        server = one.call("parent")
        with pytest.raises(ChildFailed, match="SIGSEGV"):
            one.call("crash", int(signal.SIGSEGV))
        assert other.call("count") == 2, "another child's crash harms no child"
    with Child(MODULE) as third:
        assert third.call("count") == 1 and third.call("parent") == server


def test_a_child_has_no_descriptor_of_others() -> None:
    """By the socket for requests a child could start another one with all rights."""
    with Child(MODULE) as alone:
        expected = sorted(alone.call("descriptors"))
        with Child(MODULE) as beside, Child(MODULE, trusted=True) as third:
            assert sorted(beside.call("descriptors")) == sorted(third.call("descriptors")) == expected
    assert "socket" not in expected


def test_each_child_has_the_folder_and_the_variables_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Child(MODULE) as child:
        server, folder = child.call("parent"), child.call("temporary_folder")
    monkeypatch.chdir(tmp_path)
    with Child(MODULE) as child:
        assert child.call("working_folder") == str(tmp_path) and child.call("parent") == server
        assert child.call("temporary_folder") not in (folder, "/tmp") and not Path(folder).exists()
    monkeypatch.setenv("TVM_EXT_OF_A_TEST", "set")
    with Child(MODULE) as child:
        assert child.call("variable", "TVM_EXT_OF_A_TEST") == "set"
        assert child.call("parent") != server, "a library may read the variable when it is imported"


def test_a_server_with_several_threads_starts_programs() -> None:
    """A fork of it could wait forever for a lock that another thread held."""
    for _ in range(2):
        with Child("tests.support.starts_a_thread", limits=ChildLimits(memory_bytes=1 << 30)) as child:
            assert child.call("count") == 1
            assert child.call("limits")["memory_bytes"] == 1 << 30
            assert not has_filter() or child.call("open_socket") == "EPERM"


def test_a_module_that_crashes_when_it_is_imported_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crashes_at_import.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with Child("crashes_at_import") as child, pytest.raises(ChildFailed, match="ended by signal SIGSEGV"):
        child.call("same", 1)


def test_a_server_beyond_the_limit_keeps_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "MOST_SERVERS", 1)
    with Child(MODULE) as first:
        server = first.call("parent")
        with Child("tests.support.starts_a_thread") as other:
            assert other.call("count") == first.call("count") == 1
        with Child(MODULE) as second:
            assert second.call("parent") != server and first.call("count") == 2
    _wait_for_end(server)


USER = """
import sys, time
from tvm_ext.core.processes.child import Child
child = Child("tests.support.misbehaving")
print(child.call("parent"), child.call("own_id"), flush=True)
child.call("sleep", 60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_server_and_children_end_with_their_user(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        pids = [int(text) for text in user.stdout.readline().split()]
        assert all(map(_runs, pids))
        os.kill(user.pid, number)
    for pid in pids:
        _wait_for_end(pid)


def test_children_end_with_a_server_that_is_killed() -> None:
    with Child(MODULE) as child:
        os.kill(child.call("parent"), signal.SIGKILL)
        with pytest.raises(ChildFailed, match="ended by signal SIGKILL"):
            child.call("sleep", 60)
    with Child(MODULE) as child:
        assert child.call("count") == 1, "the next child has a new server"


def test_an_idle_server_ends() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = f"from {fork_server.__name__} import *; import {fork_server.__name__} as own; own._IDLE_S = 0.1; main()"
    command = [sys.executable, "-c", code, "json", str(theirs.fileno())]
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()]) as server:
        theirs.close()
        assert server.wait(60) == 0
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            ours.send(b"a request")


def test_processor_time_of_forks_is_counted() -> None:
    before = fork_server.seconds_of_forks()
    with Child(MODULE) as child:
        child.call("compute", 0.2)
    assert fork_server.seconds_of_forks() - before >= 0.2


def _wait_for_end(pid: int) -> None:
    end = time.monotonic() + 20
    while _runs(pid):
        assert time.monotonic() < end, f"process {pid} still runs"
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False
