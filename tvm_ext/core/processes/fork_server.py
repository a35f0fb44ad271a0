"""Fork child processes from a process that has imported their module once.

Importing a reference runtime takes up to four seconds, and its run a few milliseconds. The fork server of a module
imports the module, and from then on each child is a fork of it. The server never runs a function of the module but
`prepare`, which imports what the functions would import when first called: what a model does in one child cannot reach
the next.

The calling process and the server are connected by a socket. A request on it is a message: JSON for the rights and the
limits, and beside it the descriptors of the child's input, output, prints, working folder and life line. The life line
is a socket of this child alone. The server writes the child's exit status and seconds of CPU into it. The server ends
the child when the other end closes: on request, or because the calling process has ended in any manner. The server
itself ends when the socket for requests is closed and no child is left, or after minutes without a request.

Only a process with a single thread can be forked safely. If a library starts a thread when it is imported, the server
starts a new program for each child instead, which imports everything anew.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import IO, Any, NoReturn

from tvm_ext.core.processes import child_main
from tvm_ext.core.processes.confine import Rights, confine, confined_module

MOST_SERVERS = 6
"""Most servers of a process. If there are more, the least recently used one accepts no more requests."""
_IDLE_S = 300.0
"""Seconds without a request and without a child after which a server ends, and frees its memory."""
_IMPORT_S = 300
"""Seconds of wall time in which a module is imported. A server that takes longer is ended by the system."""
_MOST_REQUEST_BYTES = 1 << 17
_OF_CHILD = ("TMPDIR", "PYTEST_CURRENT_TEST")
"""Environment variables that no library reads when it is imported. Each child has its own; all others are those of the
server, and a change of another variable takes a new server."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A child to start.

    limits: bytes of memory, bytes of a file, number of open files.
    rights: the rights that remain, or None for all of this process.
    environment: the variables of the child.
    """

    module: str
    limits: tuple[int, int, int]
    rights: Rights | None
    environment: Mapping[str, str]


class Fork:
    """A child of a fork server, with the functions of `subprocess.Popen` that `Child` uses."""

    def __init__(self, request: Request, said: IO[bytes]) -> None:
        """Request the child. said: file to which it prints. It may start later, when its module has been imported."""
        source, stdin = os.pipe()
        stdout, sink = os.pipe()
        folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._life, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._status: int | None = None
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        try:
            self._server = _SERVERS.send(request, [source, sink, said.fileno(), folder, line.fileno()])
        finally:
            line.close()
            for descriptor in (source, sink, folder):
                os.close(descriptor)

    def poll(self) -> int | None:
        return self.wait(timeout=0.0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Return the exit status, or minus the signal. None if the child is alive after `timeout` seconds."""
        if self._status is None:
            self._life.settimeout(timeout)
            try:
                told = self._life.recv(64).decode().split()
            except (TimeoutError, BlockingIOError):
                return None
            self._status = int(told[0]) if told else self._server.lost_status()
            _SERVERS.count(sum(map(float, told[1:])))
        return self._status

    def kill(self) -> None:
        """End the child and everything in its session, from any thread."""
        with suppress(OSError):  # the child has ended, and the server closed its end
            self._life.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._life.close()


class _Server:
    """A running fork server, in the process that uses it."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with control:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", __name__, module, str(control.fileno())],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
                pass_fds=[control.fileno()], start_new_session=True,
            )  # fmt: skip

    def send(self, message: bytes, descriptors: list[int]) -> bool:
        """Send a request. Return False if the server has ended, or is about to end."""
        if self.has_ended():
            return False
        try:
            socket.send_fds(self._control, [message], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def lost_status(self) -> int:
        """Return the status of a child about which the server said nothing: it died with its server."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(1.0) or -signal.SIGKILL
        return -signal.SIGKILL

    def retire(self) -> None:
        """Accept no more requests. The server ends when its last child has ended."""
        self._control.close()

    def end(self) -> None:
        """End the server and all of its children."""
        self.retire()
        self._process.kill()
        self._process.wait()


class _Servers:
    """The fork servers of this process by module and environment, the one used last at the end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, frozenset[tuple[str, str]]], _Server] = {}
        self._retired: list[_Server] = []
        self.child_seconds = 0.0

    def send(self, request: Request, descriptors: list[int]) -> _Server:
        """Send a request to the server for it, which is started if there is none, and return the server."""
        own = {name: request.environment[name] for name in _OF_CHILD if name in request.environment}
        shared = {name: value for name, value in request.environment.items() if name not in own}
        if "TMPDIR" in os.environ:  # where imports look for a folder
            shared["TMPDIR"] = os.environ["TMPDIR"]
        rights = asdict(request.rights) if request.rights else None
        message = json.dumps({"limits": request.limits, "rights": rights, "environment": own}).encode()
        key = (request.module, frozenset(shared.items()))
        with self._lock:
            server = self._running.pop(key, None)
            if server is None or not server.send(message, descriptors):
                server = _Server(request.module, shared)
                if not server.send(message, descriptors):
                    raise OSError(f"the process that imports {request.module} ended at once")
            self._running[key] = server
            while len(self._running) > MOST_SERVERS:
                oldest = self._running.pop(next(iter(self._running)))
                oldest.retire()
                self._retired = [one for one in self._retired if not one.has_ended()] + [oldest]
        return server

    def count(self, seconds: float) -> None:
        with self._lock:
            self.child_seconds += seconds

    def end(self) -> None:
        """End all servers, at the end of this process."""
        for server in (*self._running.values(), *self._retired):
            server.end()
        self.forget()

    def forget(self) -> None:
        """Forget the servers in a fork of this process: they belong to the parent."""
        self._lock, self._running, self._retired, self.child_seconds = threading.Lock(), {}, [], 0.0


_SERVERS = _Servers()
atexit.register(_SERVERS.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_SERVERS.forget)


def seconds_of_forks() -> float:
    """Return the processor time of forks that have ended, which are no children of this process for the system."""
    return _SERVERS.child_seconds


def main() -> None:
    """Run as fork server. Arguments: the module, and the descriptor of the socket for requests."""
    module, control = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that uses this one receives the same signal
    gc.disable()  # while objects are only created, the collector finds nothing
    signal.alarm(_IMPORT_S)
    with suppress(Exception, SystemExit):  # each child tries again, and reports the error
        child_main.prepared(module)
    signal.alarm(0)
    _end_threads_of_blas()
    gc.freeze()  # the collector would otherwise write into all pages that the children share
    gc.enable()
    _serve(module, control, forks=_has_one_thread())


def _has_one_thread() -> bool:
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # no /proc
        return False


def _end_threads_of_blas() -> None:
    """Fork once: OpenBLAS, which numpy loads, ends its threads before each fork, and starts them when it needs them."""
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)


def _serve(module: str, control: socket.socket, *, forks: bool) -> None:
    """Start children on request until the socket closes and no child is left."""
    lives: dict[int, socket.socket] = {}
    killed: set[int] = set()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, _wake)
    accepts = True
    while accepts or lives:
        poll = select.poll()
        watched = {life.fileno(): pid for pid, life in lives.items() if pid not in killed}
        for descriptor in (woken, *watched, *([control.fileno()] if accepts else [])):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(None if lives else 1000 * _IDLE_S)}
        if not ready:
            control.shutdown(socket.SHUT_RD)  # requests that were sent before are still received
        for descriptor in ready & watched.keys():
            _kill(watched[descriptor])
            killed.add(watched[descriptor])
        if woken in ready:
            os.read(woken, 4096)
            _reap(lives)
        if control.fileno() in ready:
            message, descriptors, _, _ = socket.recv_fds(control, _MOST_REQUEST_BYTES, 5, socket.MSG_CMSG_CLOEXEC)
            if not message:
                accepts = False
                continue
            others = (control.fileno(), woken, wake, *(life.fileno() for life in lives.values()))
            *given, line = descriptors
            life = socket.socket(fileno=line)
            try:
                pid = _start(module, json.loads(message), given, (*others, line), forks=forks)
                killed.discard(pid)
                lives[pid] = life
            except OSError as error:
                os.write(given[2], f"no process can be started: {error.strerror}\n".encode())
                _tell(life, 1, 0.0)
            for descriptor in given:
                os.close(descriptor)


def _wake(number: int, frame: object) -> None:
    """Do nothing: a signal with a handler writes to the descriptor of `set_wakeup_fd`."""


def _kill(pid: int) -> None:
    """End a child, which is not reaped yet, and its session, which the child may not have opened yet."""
    for end in (os.kill, os.killpg):
        with suppress(ProcessLookupError, PermissionError):
            end(pid, signal.SIGKILL)


def _reap(lives: dict[int, socket.socket]) -> None:
    """Remove the children that have ended, and tell their statuses."""
    with suppress(ChildProcessError):
        while (found := os.wait4(-1, os.WNOHANG))[0]:
            pid, status, used = found
            _tell(lives.pop(pid), os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime)


def _tell(life: socket.socket, status: int, seconds: float) -> None:
    with life, suppress(OSError):  # nobody may listen
        life.send(f"{status} {seconds:.6f}".encode())


def _start(module: str, request: Any, given: list[int], others: Collection[int], *, forks: bool) -> int:
    """Fork, and return the child's process id. others: descriptors that the child must not have."""
    server = os.getpid()
    if pid := os.fork():
        return pid
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in others:
            os.close(descriptor)
        _become(module, request, given, server, forks=forks)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


def _become(module: str, request: Any, given: list[int], server: int, *, forks: bool) -> NoReturn:
    """Answer the requests of a child in this process, with the child's rights and limits."""
    source, sink, said, folder = given
    os.setsid()
    for descriptor, number in ((source, 0), (sink, 1), (said, 2)):
        os.dup2(descriptor, number)
    os.fchdir(folder)
    for descriptor in given:
        os.close(descriptor)
    for name in _OF_CHILD:
        os.environ.pop(name, None)
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # an import may have looked for it
    rights = Rights(**request["rights"]) if request["rights"] is not None else None
    arguments = [module, *map(str, request["limits"]), str(server)]
    if not forks:
        command = [sys.executable, "-P", "-m", child_main.__name__, *arguments]
        if rights is not None:
            command = confined_module(rights, child_main.__name__, arguments)
        os.execv(command[0], command)
    if rights is not None:
        confine(rights)
    memory_bytes, file_bytes, open_files = request["limits"]
    child_main.answer_requests(module, memory_bytes, file_bytes, open_files, server)
    os._exit(0)


if __name__ == "__main__":
    main()
