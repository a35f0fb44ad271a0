"""Jobs: calls of pure functions from bytes to bytes. All workers with the same code return the same result.

A worker's answer contains a hash of its code. An answer of different code is refused, because its result would be
cached under the name that includes the hash of this process's code.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import Any, Protocol

from tvm_ext.core.errors import WorkerRefused
from tvm_ext.core.extensions import PASSES, PLANNERS

PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
LIBRARIES = (
    "apache-tvm", "apache-tvm-ffi", "numpy", "ml_dtypes", "jinja2", "pydantic", "onnx", "protobuf", "onnxruntime",
    "tflite", "flatbuffers", "torch", "ortools", "ai-edge-litert", "tflite-micro", "wasmtime",
)  # fmt: skip
"""Distributions whose versions may change a result; `tests/services/` compares them with pyproject.toml."""
_EXTENSIONS = ("tvm_ext.targets", "tvm_ext.operators", PASSES, PLANNERS)
"""Groups of entry points by which other distributions add code that affects results."""
_MARK = "tvm_ext answer 1"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A call of a pure function. function: `package.module.name`; it takes `inputs` and returns bytes."""

    function: str
    inputs: tuple[bytes, ...]

    @property
    def key(self) -> str:
        """Name of the result: a hash of the function's name, of the inputs and of all code."""
        digest = hashlib.sha256(code_hash().encode())
        for part in (self.function.encode(), *self.inputs):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """Outcome of a job: its result, or the class name of an error in `kind` and its message in `problem`."""

    result: bytes | None
    kind: str = ""
    problem: str = ""


class OpenServices(Protocol):
    """Workers that run single jobs in the order of their submission.

    at_once: number of jobs that run in parallel. most_ahead: limit of speculative jobs, which may turn out not to be
    needed. start_s: seconds of CPU that a worker takes before its first job; 0 for workers that run already.
    """

    @property
    def at_once(self) -> int: ...

    @property
    def most_ahead(self) -> int: ...

    @property
    def start_s(self) -> float: ...

    def submit(self, job: Job) -> Future[bytes]: ...


def answer_with(result: bytes) -> bytes:
    """Return a worker's answer: a line with its identity and the hash of its code, followed by the result."""
    worker = {
        "mark": _MARK, "code": code_hash(), "libraries": libraries(), "host": socket.gethostname(), "pid": os.getpid(),
    }  # fmt: skip
    return json.dumps(worker).encode() + b"\n" + result


def result_of(answer: bytes) -> bytes:
    """Return the result in an answer. Raises WorkerRefused if the worker's code is different or not stated."""
    head, _, result = answer.partition(b"\n")
    try:
        worker: dict[str, Any] = json.loads(head)
        told = (worker["mark"], worker["code"], worker["host"], worker["pid"])
        theirs = dict(worker["libraries"])
    except (ValueError, TypeError, KeyError):
        told, theirs = ("", "", "", 0), {}
    if told[0] != _MARK:
        raise WorkerRefused(
            "a worker does not state the version of its code, so it runs another version of tvm_ext; install this "
            "version on the worker's machine, and restart the worker."
        )
    if told[1] == code_hash():
        return result
    others = [
        f"{name} is {theirs.get(name)}, here {own}" for name, own in libraries().items() if theirs.get(name) != own
    ]
    raise WorkerRefused(
        f"the worker on {str(told[2])[:100]!r}, process {told[3]}, runs different code: "
        f"{'; '.join(others)[:500] or 'files of tvm_ext differ'}. Install the same versions there, and restart the "
        "worker; if the worker is a process of this machine, files changed after this process began: restart it."
    )


@cache
def libraries() -> dict[str, str]:
    """Return the versions of everything else that affects results: Python, libraries, extensions."""
    brought = {point.dist.name for group in _EXTENSIONS for point in entry_points(group=group) if point.dist}
    own = {"python": ".".join(map(str, sys.version_info[:3]))}
    return own | {name: _version(name) for name in (*LIBRARIES, *sorted(brought))}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


@cache
def code_hash(parts: tuple[str, ...] = PACKAGES) -> str:
    """Return a hash of all files of this compiler and of the versions of its libraries.

    parts: files and folders to include, relative to the folder of the packages.
    """
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(json.dumps(libraries()).encode())
    for part in parts:
        for path in sorted((root / part).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                name = path.relative_to(root).as_posix().encode()
                digest.update(name + b"\0" + len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()
