"""The command line's promises that need no build: exit statuses, where messages go, what is machine-readable."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest


def tvm_ext(*arguments: str | Path, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, in a process of its own."""
    command = [sys.executable, "-m", "tvm_ext", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder, check=False)


def test_the_version() -> None:
    done = tvm_ext("--version")
    assert (done.returncode, done.stdout) == (0, f"tvm-ext {version('tvm-ext')}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("fly",),
        ("compile",),
        ("compile", "m.onnx", "-o", "out"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--optimize", "beauty"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--io", "pipe"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--memories", "some"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--placement-objective", "beauty"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--placement-granularity", "some"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--verify", "moon"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--verify", "host,host"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--shape", "1,3,96,96"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--shape", "x=1,-3"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--shape", "x=1,3", "--shape", "x=1,4"),
        ("compile", "m.onnx", "-p", "host", "-o", "out", "--name", "9 lives"),
        ("run", "out", "--on", "moon", "--inputs", "a.npz", "--outputs", "b.npz"),
        ("run", "out"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_status_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    result = tvm_ext(*arguments, folder=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr and "Traceback" not in result.stderr
    assert not any(tmp_path.iterdir())


def test_unknown_platform_is_status_1_and_names_a_near_one(digits: Path, tmp_path: Path) -> None:
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "cortex_m5", "-o", tmp_path / "out")
    assert result.returncode == 1
    assert result.stdout == ""
    assert "BadPlatform: unknown platform 'cortex_m5'. Did you mean" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_debug_adds_the_traceback(digits: Path, tmp_path: Path) -> None:
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "cortex_m5", "-o", tmp_path / "out", "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr and "BadPlatform: unknown platform" in result.stderr


def test_errors_are_json_too(digits: Path, tmp_path: Path) -> None:
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "cortex_m5", "-o", tmp_path / "out", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["kind"] == "BadPlatform"


def test_processors_are_named_as_the_platform_does(digits: Path, tmp_path: Path) -> None:
    names = ("--processors", "cpu0,npu", "--placement-objective", "energy", "--placement-granularity", "branches")
    result = tvm_ext("compile", digits / "digits.onnx", "-p", "dual_m33", "-o", tmp_path / "out", *names)
    assert result.returncode == 2
    assert "BadOptions: processors: dual_m33 has no processor 'npu'; it has cpu0, cpu1." in result.stderr
    assert not (tmp_path / "out").exists()


def test_platforms_are_listed_and_as_json() -> None:
    table = tvm_ext("platforms")
    listed = tvm_ext("platforms", "--json")
    assert table.returncode == listed.returncode == 0
    platforms = {platform["name"]: platform for platform in json.loads(listed.stdout)}
    assert {"host", "cortex_m4", "cortex_m55"} <= set(platforms)
    assert platforms["cortex_m4"]["board"]["qemu_machine"] == "mps2-an386"
    assert all(name in table.stdout for name in platforms)
    assert table.stdout.index("Cores") < table.stdout.index("Boards") < table.stdout.index("nucleo_h743zi")
    assert "nucleo_h743zi" in platforms and len(platforms) > 40


def test_a_platform_in_a_pipe_is_its_file(digits: Path, tmp_path: Path) -> None:
    """Under an alias; the file compiles, and shows as a table what was changed in it."""
    text = tvm_ext("platforms", "Nucleo-F446RE")
    assert text.returncode == 0 and 'name = "nucleo_f446re"' in text.stdout and "DS10693" in text.stdout
    assert tvm_ext("platforms", "nucleo_f446re", "--toml").stdout == text.stdout
    mine = tmp_path / "my.toml"
    mine.write_text(text.stdout.replace('"nucleo_f446re"', '"mine"').replace('"32KiB"', '"96KiB"'))
    shown = json.loads(tvm_ext("platforms", mine, "--json").stdout)
    assert (shown["name"], shown["memories"][1]["reserved_bytes"]) == ("mine", 96 << 10)
    built = tvm_ext(
        "compile", digits / "digits.onnx", "-p", mine, "-o", tmp_path / "out", "--verify", "host", "--quiet"
    )
    assert built.returncode == 0 and "on mine: arena" in built.stdout
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(text.stdout.replace("clock_hz", "clock"))
    assert "clock: unknown key" in tvm_ext("platforms", wrong).stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is not a package"),
        ("{", "is damaged"),
        ("[]", "schema_version is missing"),
        ('{"schema_version": 99}', "reads at most"),
        ('{"schema_version": 1}', "is damaged at"),
    ],
)
def test_report_of_something_else(text: str | None, message: str, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "report.json").write_text(text, encoding="utf-8")
    result = tvm_ext("report", tmp_path)
    assert result.returncode == 1
    assert "BadPackage: " in result.stderr and message in result.stderr and "Traceback" not in result.stderr


def test_running_what_is_no_package(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros(3, np.float32))
    result = tvm_ext("run", tmp_path, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert result.returncode == 1
    assert "BadPackage: " in result.stderr
    assert not (tmp_path / "out.npz").exists()
