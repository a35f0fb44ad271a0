"""The process behind `Child`, which limits itself, imports a module, and runs its functions on request."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from functools import partial
from types import ModuleType
from typing import IO

from tvm_ext.core.processes.system import die_with, limit_self
from tvm_ext.core.processes.wire import Value, read_value, write_value


def main() -> None:
    """Read the arguments: module, bytes of memory, bytes of a file, number of open files, the parent's process id."""
    module, *numbers = sys.argv[1:]
    answer_requests(module, *map(int, numbers))


def answer_requests(module_name: str, memory_bytes: int, file_bytes: int, open_files: int, parent: int) -> None:
    """Limit this process, and run functions of a module until standard input ends."""
    source, sink = _private_pipes()
    die_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives the same signal, and ends this process
    limit_self({"AS": memory_bytes, "FSIZE": file_bytes, "NOFILE": open_files, "CORE": 0})
    module = None
    while True:
        try:
            request = read_value(partial(_read, source))
        except EOFError:
            return
        try:
            module = module or prepared(module_name)
            asks = {"ask": partial(_ask, source, sink)} if request["asks"] else {}
            value = getattr(module, request["function"])(*request["values"], **asks)
            answer = {"kind": "result", "value": value}
        except Exception as error:
            answer = {"kind": "error", "class": type(error).__name__, "message": str(error)}
        write_value(sink, answer)


def prepared(module_name: str) -> ModuleType:
    """Import a module, and what its functions would import when first called: its function `prepare`, if any."""
    module = importlib.import_module(module_name)
    getattr(module, "prepare", _nothing)()
    return module


def _nothing() -> None:
    """Prepare a module whose functions import nothing."""


def _private_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """Return the pipes to the parent, unreachable for prints: standard output becomes standard error."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return source, sink


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _ask(source: IO[bytes], sink: IO[bytes], *values: Value) -> Value:
    write_value(sink, {"kind": "ask", "values": values})
    return read_value(partial(_read, source))


if __name__ == "__main__":
    main()
