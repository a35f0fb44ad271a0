"""Errors of ours show the caller's line, the public function, and the line that raised; defects show all."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import tvm_ext
from tests.support.onnx_models import SMALL_MODELS, saved
from tvm_ext.command_line.main import app
from tvm_ext.core.errors import BadModel, BadOptions, PlanRejected, TvmExtError
from tvm_ext.core.short_tracebacks import full_tracebacks, short_tracebacks


def frames(error: BaseException) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


def test_errors_within_passes_of_tvm_are_short(tmp_path: Path) -> None:
    mod = tvm_ext.load(saved(SMALL_MODELS["image_in_and_out"](), tmp_path))
    with pytest.raises(BadOptions, match="'zz' is not a tensor") as raised:
        tvm_ext.estimate(mod, "cortex_m4", pin={"zz": 16})
    assert frames(raised.value)[:2] == ["test_errors_within_passes_of_tvm_are_short", "short"]
    assert len(frames(raised.value)) == 3 and raised.value.__suppress_context__
    with pytest.raises(BadOptions) as raised, full_tracebacks():
        tvm_ext.estimate(mod, "cortex_m4", pin={"zz": 16})
    assert len(frames(raised.value)) > 10


CALLS: dict[str, Callable[[Path], object]] = {
    "load": lambda folder: tvm_ext.load(folder / "no.onnx"),
    "build": lambda folder: tvm_ext.build(folder / "no.onnx", "host"),
    "estimate": lambda folder: tvm_ext.estimate(folder / "no.onnx", "host"),
    "bundle": lambda folder: tvm_ext.bundle(folder / "no.toml", "host", folder / "out"),
    "compare": lambda folder: tvm_ext.compare(folder / "no", {}),
    "relax_pipeline": lambda _: tvm_ext.relax_pipeline("no"),
    "sweep": lambda folder: tvm_ext.sweep(str(folder), ["host"]),
}


@pytest.mark.parametrize("call", CALLS)
def test_public_functions_are(call: str, tmp_path: Path) -> None:
    with pytest.raises(TvmExtError) as raised:
        CALLS[call](tmp_path)
    assert len(frames(raised.value)) <= 4


def test_causes_stay_and_defects_show_all() -> None:
    @short_tracebacks
    def fails(kind: str) -> None:
        try:
            np.zeros(3).reshape(5)
        except ValueError as error:
            if kind == "cause":
                raise BadModel("m") from error
            if kind == "plan":
                raise PlanRejected("p") from None
            raise

    with pytest.raises(BadModel) as raised:
        fails("cause")
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(PlanRejected) as rejected:
        fails("plan")
    assert frames(rejected.value)[-1] == "fails"
    with pytest.raises(ValueError, match="cannot reshape"):
        fails("foreign")


def test_debug_of_the_command_line_shows_all(tmp_path: Path) -> None:
    path = saved(SMALL_MODELS["image_in_and_out"](), tmp_path)
    result = CliRunner().invoke(app, ["estimate", str(path), "-p", "cortex_m4", "--pin", "zz=16", "--debug"])
    assert result.exit_code == 2 and result.output.count("File ") > 10
