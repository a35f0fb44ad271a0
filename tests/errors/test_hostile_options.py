"""Options, paths and environments nobody means: errors of ours, or wrong usage; never a foreign error."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, nasty_names, saved
from tvm_ext import BuildOptions, Platform
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadInput, BadModel, BadOptions, BadPackage, BadPlatform
from tvm_ext.frontends.calibration import read_calibration

HUGE = 10**5000  # Python does not write it out
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    *(("ram = ", {"ram": value}) for value in (0, -1, 10**30, HUGE, 1.5, "64k", True, float("nan"), [], [1])),
    *(("flash = ", {"flash": value}) for value in (0, -1, 10**30, HUGE, 1.5, "64k", True, float("nan"), [], {"x": 1})),
    *(("ram.* = ", {"ram": value}) for value in ({"ram": "x"}, {"ram": None}, {"ram": -1}, {"ram": HUGE}, {3: 5})),
    *(
        ("min_snr_db = ", {"min_snr_db": value})
        for value in (float("nan"), float("inf"), -1e308, HUGE, "x", None, True)
    ),
    *(("name = ", {"name": value}) for value in ("", "a" * 300, "a\0b", "a\n", "../x", "é", "Int", "stdio", 5, b"x")),
    *(("verify = ", {"verify": value}) for value in ("host", ("moon",), 5, [None], (5,), b"host")),
    *(("pin", {"pin": {"x": value}}) for value in (-16, 1, 2**48, 10**30 * 16, HUGE, 1.5, "0", None, True)),
    *(("pin = ", {"pin": value}) for value in ([("x", 0)], "x", {3: 0}, 5)),
    *(("keep = ", {"keep": value}) for value in ("x", 5, (3,), [None])),
    ("least_scratch = ", {"least_scratch": 5}),
    ("least_flash = ", {"least_flash": 5}),
    *(
        (f"{key} = ", {key: value})
        for key in ("optimize", "io", "quantize", "memories", "weights")
        for value in ("", None, [], 5)
    ),
]


@pytest.mark.parametrize("index", range(len(OPTIONS)))
def test_options_of_any_kind(index: int) -> None:
    message, options = OPTIONS[index]
    with pytest.raises(BadOptions, match=message) as error:
        BuildOptions(**options)
    assert len(str(error.value)) < 500


def test_a_pin_beyond_every_memory() -> None:
    with pytest.raises(BadOptions, match="pin x=2147483648: cortex_m4 has no memory for tensors above"):
        BuildOptions(pin={"x": 2**31}).limit_bytes(Platform.load("cortex_m4"))


def test_things_of_another_kind(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    with pytest.raises(BadOptions, match="options is a dict; give a BuildOptions"):
        tvm_ext.build(mod, "host", tmp_path / "out", {"verify": ()})  # pyright: ignore[reportArgumentType]
    with pytest.raises(BadPlatform, match="unknown platform 'None'"):
        tvm_ext.build(mod, None, tmp_path / "out")  # pyright: ignore[reportArgumentType]
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=()))
    with pytest.raises(BadInput, match="inputs are a NoneType; give an array, or a dict of arrays"):
        package.run(None)  # pyright: ignore[reportArgumentType]
    for calibration in ({"x": [[1], [1, 2]]}, [{"x": [[1], [1, 2]]}]):
        with pytest.raises(BadInput, match="'x' is not an array: its rows differ in length"):
            read_calibration(calibration, {"x": ((1, 4), "float32")})  # pyright: ignore[reportArgumentType]


USAGE: list[tuple[str, str]] = [
    *(("--ram", value) for value in ("-5", "9" * 5000, "9" * 16, "x=", "=5", "٣", "1e3", "", "ram=1" + "0" * 400)),
    *(("--pin", value) for value in ("x=-1", "=0", "x=", "٣=٣", f"x={'9' * 3000}", "x=0x")),
    *(("--shape", value) for value in (f"x={'9' * 5000}", "x=²", "x=1,,4", "x", "=1", "x=1,²", "x=-1")),
    *(("--verify", value) for value in ("", ",", "host,", "none,host", "HOST")),
    *(("--min-snr", value) for value in ("x", "")),
    *(("--optimize", value) for value in ("", "beauty")),
    *(("--name", value) for value in ("", "a" * 300, "a\0b", "é", "stdio")),
    *(("--min-snr", value) for value in ("nan", "inf", "1e400", "-1e308")),
    *(("--flash", value) for value in ("", "-5", "x=5", "9" * 16, "1e3")),
    ("--weights", "int2"),
    ("--pin", "x=5"),
    ("--ram", "1000000000000000MiB"),
]


@pytest.mark.parametrize(("option", "value"), USAGE, ids=[f"{o} {v[:12]}" for o, v in USAGE])
def test_wrong_usage(option: str, value: str, tmp_path: Path) -> None:
    arguments = ["compile", "absent.onnx", "-p", "host", "-o", str(tmp_path / "out"), option, value]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2, result.output
    assert "InternalError" not in result.output and not any(tmp_path.iterdir())


def _nothing(path: Path) -> None:
    pass


MODELS: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": lambda path: os.mkfifo(path),
    "a loop of links": lambda path: path.symlink_to(path),
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "nothing": _nothing,
}


@pytest.mark.parametrize("suffix", [".onnx", ".tflite", ".pt2"])
@pytest.mark.parametrize("name", MODELS)
def test_models_that_are_no_files(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"model{suffix}"
    MODELS[name](path)
    with pytest.raises(BadModel, match=rf"model\{suffix}: (cannot be read|no such file|is a folder)"):
        tvm_ext.load(path)


@pytest.mark.parametrize("path", ["a\0.onnx", f"{'a' * 300}.onnx", "", "\udce4.onnx"])
def test_models_of_no_name(path: str) -> None:
    with pytest.raises(BadModel):
        tvm_ext.load(path)


def test_an_output_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("")
    outputs = ["", ".", "/", "a" * 300, "/proc/x/y", "/dev/null", *map(str, tmp_path.iterdir())]
    for output in (*outputs, str(tmp_path / "file" / "out")):
        for command in ("compile", "pareto"):
            result = CliRunner().invoke(app, [command, "absent.onnx", "-p", "host", "-o", output])
            assert (result.exit_code, "BadPackage: " in result.output) == (1, True), (output, result.output)


def test_results_are_refused_before_the_package_runs(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    package = tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=()))
    good = {name: np.zeros(spec.shape, spec.dtype) for name, spec in package.inputs.items()}
    inputs = tmp_path / "in.npz"
    np.savez(inputs, allow_pickle=False, **good)
    before = (tmp_path / "small.onnx").read_bytes()
    places = ["", "/", "a" * 300, "/proc/x.npz", "/dev/full", "/dev/zero", "small.onnx", "absent/x.npz"]
    for place in places:
        where = place if place.startswith(("/", "a")) and place != "absent/x.npz" else str(tmp_path / place)
        arguments = ["run", str(package.folder), "--inputs", str(inputs), "--outputs", where]
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, "BadInput: " in result.output) == (1, True), (place, result.output)
    assert (tmp_path / "small.onnx").read_bytes() == before


@pytest.mark.parametrize("environment", [{"LC_ALL": "C", "PYTHONUTF8": "0"}, {"PYTHONIOENCODING": "ascii"}])
def test_names_that_the_terminal_has_no_letters_for(environment: dict[str, str], tmp_path: Path) -> None:
    package = tvm_ext.build(
        tvm_ext.load(saved(nasty_names(), tmp_path)), "host", tmp_path / "out", BuildOptions(verify=())
    )
    report = package.folder / "report.json"
    report.write_text(report.read_text(encoding="utf-8").replace('"run"', '"日本 \\ud800"'), encoding="utf-8")
    for command in (
        ["report", str(package.folder)],
        ["report", str(package.folder), "--json"],
        ["report", "日本\udcff"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tvm_ext", *command], env={**os.environ, **environment}, capture_output=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == (1 if command[1].startswith("日本") else 0), done.stderr
        assert b"Traceback" not in done.stderr and b"InternalError" not in done.stderr


def test_who_reads_only_the_beginning(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m tvm_ext platforms --json | head -c 1; exit ${{PIPESTATUS[0]}}", shell=True,
        executable="/bin/bash", capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.stdout == "[" and done.stderr == ""


def test_standard_output_that_is_full() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tvm_ext", "platforms"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 1 and "No space left on device" in done.stderr and "Traceback" not in done.stderr


def test_an_output_that_is_foreign_keeps_the_package_out(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["unused_input"](), tmp_path))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.json").write_text("{}")
    with pytest.raises(BadPackage, match=r"has no manifest\.json"):
        tvm_ext.build(mod, "host", tmp_path / "out", BuildOptions(verify=()))
