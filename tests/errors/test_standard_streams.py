"""Standard streams that are full, closed or cut off: one sentence and a status, no traceback, nothing half-done."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext import BuildOptions
from tvm_ext.core.errors import BadInput, BadModel
from tvm_ext.core.files.read_file import address_of

_COMMANDS = ["platforms", "platforms --json", "--version", "--help", "compile --help", "report absent --json"]


def _shell(line: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = line.replace("tvm-ext", f"{sys.executable} -m tvm_ext")
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False, cwd=folder,
        env=os.environ | root,
    )  # fmt: skip


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_full_standard_output(command: str) -> None:
    done = _shell(f"tvm-ext {command} > /dev/full")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert done.stderr.endswith("standard output cannot be written: No space left on device.\n")


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_closed_standard_output(command: str) -> None:
    done = _shell(f"tvm-ext {command} >&-")
    assert (done.returncode, done.stderr) == (
        1, "tvm-ext: standard output is closed: results are written there; give it a file, or /dev/null.\n",
    )  # fmt: skip
    done = _shell(f"tvm-ext {command} >&- 2>&-")
    assert (done.returncode, done.stderr) == (1, "")


def test_a_closed_output_is_told_before_anything_is_done(tmp_path: Path) -> None:
    """Else a file of the package would take its number, and the table would be written into it."""
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    before = sorted(tmp_path.rglob("*"))
    done = _shell(f"tvm-ext compile {path} -p host -o {tmp_path}/out --verify none >&-")
    assert done.returncode == 1 and "closed" in done.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_closed_input_and_error_change_nothing(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    done = _shell(f"tvm-ext compile {path} -p host -o {tmp_path}/out --verify none --json <&- 2>&-")
    assert done.returncode == 0
    assert json.loads(done.stdout) == json.loads((tmp_path / "out" / "report.json").read_text())


def test_a_reader_that_leaves() -> None:
    done = _shell("tvm-ext platforms --json | head -c 1; exit ${PIPESTATUS[0]}")
    assert (done.stdout, done.stderr) == ("[", "")


@pytest.mark.parametrize("address", ["https://host/models/net.onnx", "s3://bucket/net.tflite", "http://x"])
def test_an_address_is_no_path(address: str, tmp_path: Path) -> None:
    """Paths have one slash where an address has two."""
    done = _shell(f"tvm-ext compile '{address}' -p host -o {tmp_path}/out")
    assert done.returncode == 1
    said = f"BadModel: {address}: models are read from files; download it, and give its path."
    assert said in done.stderr.splitlines()  # a slow machine also says what it is doing
    with pytest.raises(BadModel, match=f"^{address}: models are read from files"):
        tvm_ext.load(address)


def test_paths_that_are_no_addresses(tmp_path: Path) -> None:
    assert address_of(Path("c:/models/net.onnx")) is None, "a drive has one letter"
    assert address_of(Path("a/https:/b.onnx")) is None
    with pytest.raises(BadModel, match="no such file"):
        tvm_ext.load(tmp_path / "https" / "net.onnx")


def test_a_file_that_looks_like_an_address_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("https:").mkdir()
    saved(SMALL_MODELS["branches"](), Path("https:"), "net")
    assert tvm_ext.load("https://net.onnx") is not None


def test_calibration_says_the_shape_that_is_taken(tmp_path: Path) -> None:
    """Both forms are taken; the message says the one without an axis of 1."""
    path = saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    options = BuildOptions(quantize="int8", verify=())
    with pytest.raises(BadInput, match=r"has shape \(5, 3, 9, 9\), but must have \(N, 3, 12, 10\)"):
        tvm_ext.build(path, "host", tmp_path / "out", options, calibration={"x": np.zeros((5, 3, 9, 9), np.float32)})


def test_messages_about_shapes_name_the_option(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    done = _shell(f"tvm-ext compile {path} -p host -o {tmp_path}/out --shape x=1,2 ")
    assert done.returncode == 2 and "BadOptions: shape of x = [1, 2] has rank 2" in done.stderr
    done = _shell(f"tvm-ext compile {path} -p host -o {tmp_path}/out --shape zz=1,2 ")
    assert "BadOptions: shape of zz: the model has no input 'zz'." in done.stderr.replace("\n", "")


def test_a_report_holds_every_option(tmp_path: Path) -> None:
    """And no path of this machine."""
    path = saved(SMALL_MODELS["branches"](), tmp_path)
    options = BuildOptions(verify=(), ram="64KiB", memories="default", keep=("all",), name="net", optimize="size")
    package = tvm_ext.build(path, "cortex_m4", tmp_path / "out", options)
    said = package.report["options"]
    assert said == json.loads(options.to_json())
    assert set(said) == set(BuildOptions.__dataclass_fields__)
    assert str(tmp_path) not in (package.folder / "report.json").read_text()
    assert BuildOptions.from_json(json.dumps(said)) == options
