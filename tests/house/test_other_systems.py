"""Systems without limits, locks, signals and process groups: models load, are estimated and compiled all the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.onnx_models import SMALL_MODELS, saved

WITHOUT = """
import builtins, os, signal
found = builtins.__import__
def without(name, globals=None, *rest, **named):
    importer = (globals or {}).get("__name__", "").partition(".")[0]
    if importer in ("tvm_ext", "relay_passes", "codegen_c"):
        if name in ("resource", "fcntl", "termios", "pty", "pwd", "grp"):
            raise ImportError(name)
    return found(name, globals, *rest, **named)
builtins.__import__ = without
for module, names in (
    (os, "fork forkpty killpg mkfifo geteuid getuid O_NONBLOCK O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_PATH"),
    (signal, "pthread_sigmask sigwait SIGHUP SIGCHLD"),
):
    for name in names.split():
        delattr(module, name)
"""
"""Taken away in this process and in every Python that it starts, before anything is imported."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT, encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.slow
def test_a_model_is_compiled_and_verified(tmp_path: Path, environment: dict[str, str]) -> None:
    model, out = saved(SMALL_MODELS["image_in_and_out"](), tmp_path), tmp_path / "out"
    command = [sys.executable, "-m", "tvm_ext", "compile", model, "-p", "host", "-o", out, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verify"]["host"]["passed"] and (out / "small.c").is_file()
    assert "run with your own rights and without limits" in done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".tvm_ext.")]


@pytest.mark.slow
def test_a_model_is_estimated_from_python(tmp_path: Path, environment: dict[str, str]) -> None:
    model = saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    code = f"import tvm_ext; print(tvm_ext.estimate({str(model)!r}, 'cortex_m4').ram_bytes > 0)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


@pytest.mark.slow
def test_an_error_and_the_end_of_a_tool_in_vain(tmp_path: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tvm_ext", "compile", tmp_path / "no.onnx", "-p", "host", "-o", tmp_path / "out"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "BadModel: " in done.stderr
    code = (
        "import sys; from pathlib import Path; from tvm_ext.core.processes.process import run_program\n"
        "print(run_program([sys.executable, '-c', 'import time; time.sleep(60)'], Path.cwd(), seconds=1).left)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("did not end within 1 s"), done.stderr
