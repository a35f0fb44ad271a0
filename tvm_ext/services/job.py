"""A call of a pure function from bytes to bytes: its name and inputs decide the result, whoever computes it."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

_PACKAGES = ("tvm_ext", "relay_passes", "codegen_c")
_LIBRARIES = ("apache-tvm", "apache-tvm-ffi", "onnx", "onnxruntime", "tflite", "numpy")


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


@cache
def code_hash() -> str:
    """Hash of this compiler, file by file, and of the versions of what it stands on: another one, other results."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256(" ".join(f"{name}={version(name)}" for name in _LIBRARIES).encode())
    for package in _PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
