"""Commands that tell of a model, a platform or this machine, and the lines that end a build."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

import tvm_ext
from codegen_c.targets.registry import startup_of
from tests.support.onnx_models import model_of, saved
from tvm_ext.command_line import show as stages_shown
from tvm_ext.command_line.main import app
from tvm_ext.command_line.show import SafeConsole
from tvm_ext.core.toolchain import linker_name

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Relu", ["c"], ["y"])]
    return saved(
        model_of(nodes, {"x": (1, 2, 6, 6)}, ["y"], {"w": np.ones((3, 2, 3, 3), np.float32)}), tmp_path, "small"
    )


def told(*arguments: str | Path, columns: int = 80, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == status, result.output
    return result.stdout


def test_inspect_tells_what_is_in_a_file(small: Path) -> None:
    found = json.loads(told("inspect", small, "--json"))
    assert found["inputs"] == [
        {"name": "x", "dtype": "float32", "shape": [1, 2, 6, 6], "scale": None, "zero_point": None}
    ]
    assert [port["shape"] for port in found["outputs"]] == [[1, 3, 4, 4]]
    assert found["operators"] == {"Conv": 1, "Relu": 1}
    assert (found["num_parameters"], found["parameter_bytes"], found["macs"]) == (54, 216, 3 * 16 * 18)
    text = told("inspect", small)
    assert "54 parameters in 216 B, 864 multiply-accumulates" in text and "[1, 2, 6, 6]" in text


def test_inspect_names_operators_that_cannot_be_compiled(tmp_path: Path) -> None:
    nodes = [helper.make_node("Unheard", ["x"], ["y"], domain="com.example")]
    path = saved(model_of(nodes, {"x": (1, 4)}, ["y"], {}), tmp_path, "strange")
    result = CliRunner().invoke(app, ["inspect", str(path)])
    assert result.exit_code == 1 and "Unheard" in result.stderr


def test_estimate_is_that_of_python(small: Path) -> None:
    options = tvm_ext.BuildOptions(optimize="size", ram="8KiB")
    wanted = tvm_ext.estimate(small, "cortex_m4", options)
    found = json.loads(told("estimate", small, "-p", "cortex_m4", "--optimize", "size", "--ram", "8KiB", "--json"))
    assert wanted.best_case is None, "the model has no branches"
    values = {key: value for key, value in asdict(wanted).items() if key != "best_case"}
    assert found == values | {"predicted_ms": wanted.predicted_ms}
    text = told("estimate", small, "-p", "cortex_m4", "--optimize", "size", "--ram", "8KiB")
    assert f"{wanted.predicted_instructions:,}" in text and f"{wanted.ram_bytes:,} B" in text
    assert not list(small.parent.glob("*.c"))


def test_estimate_has_no_options_of_packages() -> None:
    text = told("estimate", "--help")
    assert "--quantize" in text and "--verify" not in text and "--hooks" not in text


def test_doctor_names_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {one["name"]: one for one in json.loads(told("doctor", "--json"))}
    assert found["gcc"]["found"][:1].isdigit() and found["apache-tvm"]["found"].startswith("0.")
    monkeypatch.setenv("PATH", str(tmp_path))
    text = told("doctor", status=1)
    assert "missing:" in text and "gcc-arm-none-eabi" in text
    missing = {one["name"]: one["how"] for one in json.loads(told("doctor", "--json", status=1)) if not one["found"]}
    tools = {
        "clang-19": "clang-19", "wasm-ld-19": "lld-19", "ld.lld-19": "lld-19", "llvm-nm-19": "llvm-19",
        "node": "nodejs", "qemu-hexagon": "qemu-user", "qemu-aarch64": "qemu-user",
        "qemu-system-xtensa": "qemu-system-misc", "xtensa-lx106-elf-gcc": "gcc-xtensa-lx106",
        "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    }  # fmt: skip
    assert {name: missing.get(name) for name in tools} == {name: f"apt install {one}" for name, one in tools.items()}


def test_doctor_names_the_tools_of_every_platform() -> None:
    """Each program has its version, or the command that installs it."""
    found = {one["name"]: one for one in json.loads(told("doctor", "--json"))}
    for name in tvm_ext.Platform.shipped():
        platform = tvm_ext.Platform.load(name)
        if platform.board:
            startup = startup_of(platform)
            tools = {platform.toolchain.compiler_name, linker_name(platform.toolchain), startup.emulator}
            assert tools | ({startup.emulator_runs} - {""}) <= set(found), name
    assert all(one["found"] or one["how"] for one in found.values())
    assert found["node"]["found"] in ("", subprocess_version("node"))
    assert (
        found["wasmtime"]["purpose"] == "runs firmware for wasm"
        and found["qemu-hexagon"]["purpose"] == "runs firmware for hexagon_v66"
    )


def subprocess_version(program: str) -> str:
    """Return the version that a program prints after a `v`, or an empty text without the program."""
    path = shutil.which(program)
    return subprocess.run([path, "--version"], capture_output=True, text=True).stdout.strip()[1:] if path else ""


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["with tables", "quiet"])
def test_compile_ends_with_what_is_next(small: Path, tmp_path: Path, quiet: list[str]) -> None:
    out = tmp_path / "out"
    lines = told("compile", small, "-p", "host", "-o", out, *quiet).splitlines()
    assert lines[-4].startswith("small on host: arena ") and lines[-4].endswith("verified on host")
    assert lines[-3].startswith(f"Package: {out}, in ") and lines[-1].startswith(f"  make -C {out} selftest ")
    assert ("Memories" in "\n".join(lines)) is not bool(quiet)


def test_piped_tables_are_as_wide_as_columns_says() -> None:
    for columns in (60, 200):
        done = subprocess.run(
            [sys.executable, "-m", "tvm_ext", "platforms"], env={**os.environ, "COLUMNS": str(columns)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (max(map(len, done.stdout.splitlines())) <= 60) is (columns == 60)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tvm_ext", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_stages_stand_in_a_pipe_with_their_seconds(small: Path, tmp_path: Path) -> None:
    done = run("compile", small, "-p", "host", "-o", tmp_path / "out")
    stages = re.findall(r"^(?:\N{CHECK MARK}|done) (.*), \d+\.\d s$", done.stderr, re.MULTILINE)
    assert {"loading small.onnx", "compiling the model to C", "running on the host"} <= {*stages}
    quiet = run("compile", small, "-p", "host", "-o", tmp_path / "out", "--quiet")
    assert quiet.stderr == "" and "Package:" in quiet.stdout


def test_a_stage_that_fails_is_shown_as_that(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"no model")
    done = run("compile", tmp_path / "net.onnx", "-p", "host", "-o", tmp_path / "out")
    assert re.match(r"(?:\N{BALLOT X}|failed) loading net.onnx, \d+\.\d s\nBadModel: ", done.stderr)


def test_a_platform_that_is_left_out_is_asked_for_with_what_there_is(small: Path) -> None:
    for command in (["compile", small, "-o", "out"], ["estimate", small]):
        result = run(*command)
        assert result.returncode == 2 and all(name in result.stderr for name in tvm_ext.Platform.shipped())


def test_completion_knows_platforms() -> None:
    environment = {**os.environ, "_TVM_EXT_COMPLETE": "complete_bash", "COMP_WORDS": "tvm-ext compile x -p cortex_m7",
                   "COMP_CWORD": "4"}  # fmt: skip
    program = Path(sys.executable).parent / "tvm-ext"
    done = subprocess.run([program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["cortex_m7", "cortex_m7_psram"]


ERRORS = [kind for kind in vars(tvm_ext.errors).values() if isinstance(kind, type) and getattr(kind, "way_out", "")]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_is_explained_by_pages_that_are_there(kind: type[tvm_ext.errors.TvmExtError]) -> None:
    found = json.loads(told("explain", kind.__name__, "--json"))
    assert found["meaning"] and found["way_out"]
    for page in found["pages"]:
        assert (ROOT / page.split("#")[0]).is_file(), page
    assert f"Way out: {found['way_out']}" in told("explain", kind.__name__)


def test_explain_knows_what_was_meant() -> None:
    result = CliRunner().invoke(app, ["explain", "DoesntFit"])
    assert result.exit_code == 2 and "Did you mean DoesNotFit?" in result.stderr


def test_an_error_says_where_more_is_said(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert result.stderr.splitlines()[-1] == "More: tvm-ext explain BadPackage"


def test_the_list_of_commands_fits_a_terminal_of_80_columns() -> None:
    listed = told("--help").split("Commands:")[1].splitlines()
    assert len(listed) > 10 and not any(line.endswith("...") for line in listed)


@pytest.mark.parametrize("limited", [False, True])
def test_what_moves_on_a_terminal_stands_still_in_a_pipe_and_under_a_limit(
    limited: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread that gets no memory may hang Python for good."""
    threads: list[int] = []
    for is_terminal in (False, True):
        console = SafeConsole(file=io.StringIO(), force_terminal=is_terminal)
        monkeypatch.setattr(stages_shown, "stderr", console)
        monkeypatch.setattr(stages_shown, "is_limited", lambda: limited)
        before = threading.active_count()
        with stages_shown.stages_shown(quiet=False) as show_stage, show_stage("weighing"), stages_shown.waiting("so"):
            threads.append(threading.active_count() - before)
        assert isinstance(console.file, io.StringIO)
        assert re.search(r"weighing, \d+\.\d s", console.file.getvalue())
    assert threads[0] == 0 and (threads[1] > 0) is not limited
