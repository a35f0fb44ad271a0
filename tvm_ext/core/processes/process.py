"""Run a program to its end, with limits on time and output. Afterwards it and everything it started have ended."""

from __future__ import annotations

import math
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tvm_ext.core.errors import BadOptions
from tvm_ext.core.processes.system import end_group, limit_processor_time, signal_name

PATIENCE = "TVM_EXT_PATIENCE"
"""Environment variable: a factor on every time limit, for slow or loaded machines."""

_MOST_PRINTED_BYTES = 16 << 20
_GRACE_S = 0.5
"""Seconds that a pipe may stay open after its program has ended, where the program passed it to another."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A program that has ended.

    problem: why it was ended early, as a clause; None where it exited by itself.
    """

    status: int
    stdout: str
    stderr: str
    problem: str | None = None

    @property
    def left(self) -> str:
        """The outcome as the end of a sentence."""
        if self.problem:
            return self.problem
        if self.status < 0 and (name := signal_name(-self.status)):
            return f"failed (ended by {name})"
        return f"failed (exit {self.status})"


def allowed_seconds(seconds: float) -> float:
    """Return a time limit, stretched by the user's factor.

    Raises BadOptions where the factor is not a positive number.
    """
    text = os.environ.get(PATIENCE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = math.nan
    if not 0 < factor < 1e6:
        raise BadOptions(f"{PATIENCE} = {text!r}: give a factor for time limits, a number above 0 and below 1000000.")
    return seconds * factor


def run_program(
    command: Sequence[str], folder: Path, *, seconds: float, environment: Mapping[str, str] | None = None
) -> Finished:
    """Run a program in `folder`, in a session of its own, without input.

    Everything that it started in that session ends with it: at its own end, at the limit, or at an exception here.
    Raises OSError or ValueError where it cannot be started.
    """
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            limit_processor_time(process.pid, seconds)
            printed, problem = _collect(process, seconds) if hasattr(os, "fork") else _awaited(process, seconds)
        finally:
            end_group(process)
            status = process.wait()
    stdout, stderr = (part.decode(errors="replace") for part in printed)
    return Finished(status=status, stdout=stdout, stderr=stderr, problem=problem)


def _collect(process: subprocess.Popen[bytes], seconds: float) -> tuple[tuple[bytes, bytes], str | None]:
    """Return standard output and error until the program's end, and why it has to be ended now, if so."""
    streams = _stream(process.stdout), _stream(process.stderr)
    chunks: dict[int, list[bytes]] = {stream.fileno(): [] for stream in streams}
    printed, end = 0, time.monotonic() + seconds
    problem = None
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map() and problem is None:
            ready = selector.select(max(0.0, min(_GRACE_S, end - time.monotonic())))
            for key, _ in ready:
                data = os.read(key.fd, 1 << 16)
                chunks[key.fd].append(data)
                printed += len(data)
                if not data:
                    selector.unregister(key.fileobj)
            if not ready and process.poll() is not None:
                break
            if time.monotonic() >= end:
                problem = _expired(seconds)
            elif printed > _MOST_PRINTED_BYTES:
                problem = f"printed more than {_MOST_PRINTED_BYTES >> 20} MiB"
    if problem is None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(_GRACE_S, end - time.monotonic()))
        if process.poll() is None:
            problem = _expired(seconds)
    stdout, stderr = (b"".join(chunks[stream.fileno()]) for stream in streams)
    return (stdout, stderr), problem


def _awaited(process: subprocess.Popen[bytes], seconds: float) -> tuple[tuple[bytes, bytes], str | None]:
    """Return the same where pipes cannot be selected, as on Windows, where output is counted only at the end."""
    try:
        return process.communicate(timeout=seconds), None
    except subprocess.TimeoutExpired:
        end_group(process)
        return process.communicate(), _expired(seconds)


def _expired(seconds: float) -> str:
    return f"did not end within {seconds:g} s; {PATIENCE}=10 in the environment allows ten times as long"


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None, "the program was started with pipes"
    return stream
