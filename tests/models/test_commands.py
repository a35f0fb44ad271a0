"""Commands that tell of a model, a platform or this machine, and the lines that end a build."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from typer.testing import CliRunner

import tvm_ext
from tests.support.onnx_models import model_of, saved
from tvm_ext.cli import app


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
    assert found == asdict(wanted) | {"predicted_ms": wanted.predicted_ms}
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
    assert "missing: apt install gcc-arm-none-eabi" in " ".join(text.replace("│", " ").split())


@pytest.mark.parametrize("quiet", [[], ["--quiet"]], ids=["with tables", "quiet"])
def test_compile_ends_with_what_is_next(small: Path, tmp_path: Path, quiet: list[str]) -> None:
    out = tmp_path / "out"
    lines = told("compile", small, "-p", "host", "-o", out, *quiet).splitlines()
    assert lines[-4].startswith("small on host: arena ") and lines[-4].endswith("verified on host")
    assert lines[-3].startswith(f"Package: {out}, in ") and f"make -C {out} run" in lines[-1]
    assert ("Memories" in "\n".join(lines)) is not bool(quiet)


def test_piped_tables_are_as_wide_as_columns_says() -> None:
    for columns in (60, 200):
        done = subprocess.run(
            [sys.executable, "-m", "tvm_ext", "platforms"], env={**os.environ, "COLUMNS": str(columns)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert (max(map(len, done.stdout.splitlines())) <= 60) is (columns == 60)
