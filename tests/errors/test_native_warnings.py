"""What C++ prints on standard error: TVM's warnings are dropped, everything else arrives, also from a crash."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.onnx_models import model_of, saved

NOISE = b"[12:34:56] /project/include/tvm/topi/transform.h:1261: Warning: Fast mode segfaults\n"
PRELUDE = f"""
import os, subprocess, sys, threading
from tvm_ext.core.processes.native_warnings import native_warnings_dropped
NOISE = {NOISE!r}
"""


def said(program: str) -> tuple[int, list[str]]:
    """Exit status and lines on standard error of a program."""
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.splitlines()


def test_only_warnings_are_dropped() -> None:
    program = """
with native_warnings_dropped():
    with native_warnings_dropped():
        os.write(2, NOISE + b"real\\n[12:34:56] /project/x.cc:1: Error: kept\\n")
    subprocess.run(["sh", "-c", "echo child >&2"])
    os.write(2, NOISE)
    sys.stderr.write("python\\n")  # in one call: the filter writes to the same place
os.write(2, b"after\\n" + NOISE)
"""
    status, lines = said(program)
    kept = ["real", "[12:34:56] /project/x.cc:1: Error: kept", "child", "python", "after", NOISE.decode().strip()]
    assert status == 0 and sorted(lines) == sorted(kept)


def test_the_last_words_of_a_crash_arrive() -> None:
    status, lines = said('with native_warnings_dropped():\n    os.write(2, NOISE + b"terminate called\\n"); os.abort()')
    assert status < 0 and lines == ["terminate called"]


def test_threads_restore_the_descriptor_once() -> None:
    program = """
place = lambda: (os.fstat(2).st_dev, os.fstat(2).st_ino)
before = place()
def work():
    for _ in range(5):
        with native_warnings_dropped():
            os.write(2, NOISE)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert place() == before and sys.stderr.fileno() == 2
"""
    assert said(program) == (0, [])


@pytest.mark.parametrize("closed", ["os.close(2)", "os.environ['PATH'] = ''"])
def test_without_a_filter_nothing_changes(closed: str) -> None:
    assert said(f"{closed}\nwith native_warnings_dropped():\n    pass")[0] == 0


def pooled() -> onnx.ModelProto:
    """Powers of a window, of which TVM warns when a model is quantized."""
    nodes = [
        helper.make_node("LpPool", ["x"], ["p"], kernel_shape=[2, 2], p=3),
        helper.make_node("Conv", ["p", "w"], ["y"]),
    ]
    return model_of(nodes, {"x": (1, 2, 4, 4)}, ["y"], {"w": np.ones((1, 2, 1, 1), np.float32)})


X = {"x": np.ones((1, 2, 4, 4), np.float32)}


def test_the_command_says_nothing(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X["x"][np.newaxis])
    command = [sys.executable, "-m", "tvm_ext", "compile", str(saved(pooled(), tmp_path)), "--platform", "host"]
    command += ["-o", str(tmp_path / "out"), "--quantize", "int8", "--calibration", str(tmp_path / "x.npz")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "/project/" not in done.stderr


def test_build_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import tvm_ext

    options = tvm_ext.BuildOptions(quantize="int8", verify=("host",))
    tvm_ext.build(tvm_ext.load(saved(pooled(), tmp_path)), "host", tmp_path / "out", options, calibration=[X])
    assert "/project/" not in capfd.readouterr().err
