"""Memory that runs out is an error of its own, which names the limit, and never a defect of the compiler."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import tvm

from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext.core.errors import OutOfMemory
from tvm_ext.core.memory_exhausted import check_memory, memory_message, says_memory
from tvm_ext.core.toolchain import run_tool
from tvm_ext.frontends.load import load
from tvm_ext.frontends.pytorch.import_program import open_program


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


EXHAUSTED = [
    MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: 12 bytes"),
    tvm.error.InternalError("std::bad_alloc"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    RuntimeError("can't start new thread"),
    caused(ValueError("x"), MemoryError("Unable to allocate 4 GiB")),
    caused(KeyError("x"), caused(ValueError("y"), MemoryError())),
]


@pytest.mark.parametrize("error", EXHAUSTED, ids=repr)
def test_it_is_told_from_other_exceptions(error: Exception) -> None:
    with pytest.raises(OutOfMemory, match=r"memory (ran out|is exhausted).*\(.+\)"):
        check_memory(error)
    assert memory_message(error) is not None


@pytest.mark.parametrize(
    "error", [ValueError("memory"), OSError(errno.ENOENT, "x"), KeyError("x"), ImportError("no x")]
)
def test_other_exceptions_are_left_alone(error: Exception) -> None:
    check_memory(error)
    assert memory_message(error) is None and not says_memory(str(error))


def limited(size_bytes: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_AS, (size_bytes, size_bytes))


def python(code: str, size_bytes: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, preexec_fn=limited(size_bytes),
        cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_near_a_limit_any_exception_may_come_of_it() -> None:
    code = (
        "from tvm_ext.core.memory_exhausted import memory_message\n"
        "print(memory_message(AttributeError('no such function')))"
    )
    said = python(code, 400 << 20).stdout
    assert "memory ran out under this process's limit (AttributeError: no such function): it may use 409600 KiB" in said
    assert "ulimit -v unlimited" in said
    assert python(code, 64 << 30).stdout == "None\n"


@pytest.mark.parametrize("mib", [200, 350, 580])
def test_the_command_under_a_limit(mib: int, tmp_path: Path) -> None:
    """From before Python's own libraries are read to where TVM's are, and threads begin."""
    model = saved(SMALL_MODELS["unused_input"](), tmp_path)
    command = [sys.executable, "-m", "tvm_ext", "compile", str(model), "-p", "host", "-o", str(tmp_path / "out")]
    done = subprocess.run(
        [*command, "--verify", "none"], capture_output=True, text=True, check=False, preexec_fn=limited(mib << 20),
        timeout=60,
    )  # fmt: skip
    assert "InternalError" not in done.stderr and "defect" not in done.stderr
    if done.returncode:
        assert "OutOfMemory: memory ran out under this process's limit" in done.stderr
        assert f"{mib << 10} KiB" in done.stderr and not (tmp_path / "out").exists()
    else:
        assert mib > 350


def test_a_tool_that_gets_no_memory(tmp_path: Path) -> None:
    tool = tmp_path / "cc"
    tool.write_text("#!/bin/sh\necho 'cc1: out of memory allocating 65536 bytes' >&2\nexit 1\n")
    tool.chmod(0o755)
    with pytest.raises(OutOfMemory, match=r"cc: cc1: out of memory allocating"):
        run_tool([str(tool)], tmp_path, reads=[])


def test_a_tool_that_cannot_be_started_for_lack_of_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    monkeypatch.setattr(subprocess, "Popen", refuses)
    with pytest.raises(OutOfMemory, match="Cannot allocate memory"):
        run_tool(["cc"], tmp_path, reads=[])


def test_a_converter_that_gets_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tvm_ext.frontends.onnx.import_graph as module

    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate")

    monkeypatch.setattr(module, "is_control_flow", exhausted)
    with pytest.raises(OutOfMemory, match="Unable to allocate"):
        load(saved(SMALL_MODELS["unused_input"](), tmp_path))


def test_a_library_of_torch_that_cannot_be_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    import tvm_ext.frontends.pytorch.import_program as module

    real = builtins.__import__

    def refuses(name: str, *values: object) -> object:
        if name == "torch":
            raise ImportError("libtorch_cpu.so: failed to map segment from shared object")
        return real(name, *values)

    monkeypatch.setattr(module, "screened_archive", lambda *_: None)
    monkeypatch.setattr(builtins, "__import__", refuses)
    with pytest.raises(OutOfMemory, match="failed to map segment"):
        open_program(tmp_path, memoryview(b""), None)
