"""A call of a pure function from bytes to bytes: its name and inputs decide the result, on any worker of the same code.

A worker's answer says which code it computes with, and an answer of other code is refused: its result would be kept
under the name that this code gives the job.
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
    "tflite", "flatbuffers", "torch", "ortools", "ai-edge-litert", "tflite-micro",
)  # fmt: skip
"""Distributions whose versions may change a result; `tests/services/` compares them with pyproject.toml."""
_EXTENSIONS = ("tvm_ext.targets", "tvm_ext.operators", PASSES, PLANNERS)
"""Groups of entry points by which other distributions bring code that decides results."""
_MARK = "tvm_ext answer 1"


@dataclass(frozen=True, kw_only=True)
class Job:
    """A function's call. function: `package.module.name`; it takes `inputs` and returns bytes."""

    function: str
    inputs: tuple[bytes, ...]

    @property
    def key(self) -> str:
        """Name of the result: a hash of the inputs, and of the code that the function is part of."""
        digest = hashlib.sha256(code_hash().encode())
        for part in (self.function.encode(), *self.inputs):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class JobOutcome:
    """The end of a job: its result; or why there is none, as the class of an error of ours and its text."""

    result: bytes | None
    kind: str = ""
    problem: str = ""


class OpenServices(Protocol):
    """Whoever does jobs that are handed over one by one, in the order in which they come.

    at_once: jobs that are done at once. most_ahead: jobs that may be handed over before it is known that they are
    needed.
    """

    @property
    def at_once(self) -> int: ...

    @property
    def most_ahead(self) -> int: ...

    def submit(self, job: Job) -> Future[bytes]: ...


def answer_with(result: bytes) -> bytes:
    """A worker's answer: who it is and the code that it computes with, then the result."""
    worker = {
        "mark": _MARK, "code": code_hash(), "libraries": libraries(), "host": socket.gethostname(), "pid": os.getpid(),
    }  # fmt: skip
    return json.dumps(worker).encode() + b"\n" + result


def result_of(answer: bytes) -> bytes:
    """The result of an answer. Raises WorkerRefused where it is of other code than this process's, or does not say."""
    head, _, result = answer.partition(b"\n")
    try:
        worker: dict[str, Any] = json.loads(head)
        told = (worker["mark"], worker["code"], worker["host"], worker["pid"])
        theirs = dict(worker["libraries"])
    except (ValueError, TypeError, KeyError):
        told, theirs = ("", "", "", 0), {}
    if told[0] != _MARK:
        raise WorkerRefused(
            "a worker does not say which code it computes with, as those of this version of tvm_ext do; install this "
            "version where the worker runs, and start it again."
        )
    if told[1] == code_hash():
        return result
    others = [
        f"{name} is {theirs.get(name)}, here {own}" for name, own in libraries().items() if theirs.get(name) != own
    ]
    raise WorkerRefused(
        f"the worker on {str(told[2])[:100]!r}, process {told[3]}, computes with other code: "
        f"{'; '.join(others)[:500] or 'files of tvm_ext differ'}. Install the same there, and start it again; where "
        "the worker is a process of this machine, files changed since this process began: start this one again."
    )


@cache
def libraries() -> dict[str, str]:
    """Versions of all that decides results beside this compiler's own files: Python, libraries, extensions."""
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
    """Hash of this compiler, file by file, and of the versions of what it stands on: another one, other results.

    parts: folders and files of it, relative to the folder of its packages, where only some of them matter.
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
