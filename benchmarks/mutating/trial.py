"""A copy of the tree in which one file at a time is changed and its tests run, in a process forked for each change.

The parent imports the large libraries once and nothing of the project; a child imports the changed project anew. That
is several times as fast as a process of its own, where importing takes longer than the tests of one file.
"""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal

Outcome = Literal["killed", "survived", "timed out"]
LIBRARIES = ("hypothesis", "numpy", "onnx", "onnxruntime", "pytest", "tvm", "_pytest.assertion.rewrite")
NO_TESTS_FAILED = 0
POLL_SECONDS = 0.05


def copied(root: Path, folder: Path) -> Path:
    """The files that git knows, as they stand, in a new folder."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (root / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, folder / name)
    os.environ.setdefault("TVM_EXT_SHARED", str(root.parent / "shared"))
    return folder


def import_libraries() -> None:
    for name in LIBRARIES:
        importlib.import_module(name)


def try_change(tree: Path, file: str, source: bytes, tests: Sequence[str], *, limit_seconds: float) -> Outcome:
    """Run the tests on another text of one file, which is put back afterwards."""
    path = tree / file
    plain = path.read_bytes()
    compiled = Path(cache_from_source(str(path)))
    try:
        path.write_bytes(source)
        compiled.unlink(missing_ok=True)  # Python takes files of one size and second for the same
        return run_tests(tree, tests, limit_seconds=limit_seconds)
    finally:
        path.write_bytes(plain)
        compiled.unlink(missing_ok=True)


def run_tests(tree: Path, tests: Sequence[str], *, limit_seconds: float) -> Outcome:
    """All tests up to the first that fails."""
    process = os.fork()
    if process == 0:
        _run_and_exit(tree, tests)
    end = time.monotonic() + limit_seconds
    while time.monotonic() < end:
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
            return "survived" if os.waitstatus_to_exitcode(status) == NO_TESTS_FAILED else "killed"
        time.sleep(POLL_SECONDS)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return "timed out"


def _run_and_exit(tree: Path, tests: Sequence[str]) -> None:
    """Run in the child, in a group of its own, so that compilers and packages end with it."""
    code = 1
    try:
        os.setsid()
        os.chdir(tree)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(tree), *(path for path in sys.path if Path(path).resolve() != Path(__file__).parents[2])]
        os.environ["PYTHONPATH"] = str(tree)
        for stream in (1, 2):
            os.dup2(os.open("log.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        code = int(importlib.import_module("pytest").main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)
